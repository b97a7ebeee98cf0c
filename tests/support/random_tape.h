/// Tapes from RapidCheck: it shrinks them, and with them the stream that is made of one.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/random_program.h"

namespace sluice::testing {

inline rc::Gen<Tape> any_tape() {
  const auto choice = rc::gen::resize(100, rc::gen::arbitrary<std::uint16_t>());
  const auto choices = rc::gen::scale(12.0, rc::gen::container<std::vector<std::uint16_t>>(choice));
  return rc::gen::map(choices, [](std::vector<std::uint16_t> c) { return Tape(std::move(c)); });
}

}  // namespace sluice::testing
