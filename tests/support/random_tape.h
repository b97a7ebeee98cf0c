/// Tapes from RapidCheck: it shrinks them, and with them the stream that is made of one.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/random_program.h"

namespace sluice::testing {

/// At most so many choices for each unit of RapidCheck's size, which goes up to 100.
inline rc::Gen<Tape> any_tape(double choices = 12.0) {
  const auto choice = rc::gen::resize(100, rc::gen::arbitrary<std::uint16_t>());
  const auto tape = rc::gen::scale(choices, rc::gen::container<std::vector<std::uint16_t>>(choice));
  return rc::gen::map(tape, [](std::vector<std::uint16_t> c) { return Tape(std::move(c)); });
}

}  // namespace sluice::testing
