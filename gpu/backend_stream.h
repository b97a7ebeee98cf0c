/// What streams of every backend refuse, for this room only.
#pragma once

#include <functional>
#include <string_view>

#include "engine/base/units.h"
#include "gpu/stream.h"

namespace sluice::gpu::backend {

/// Throws  kLogic when the two overlap
void check_copy(std::string_view lane, const void* dst, const void* src, Bytes n);

/// Throws  kLogic when there is nothing to run
void check_work(std::string_view lane, const std::function<void()>& work);

/// Throws  kLogic when one of them has no time yet
void check_reached(const Event& begin, const Event& end);

}  // namespace sluice::gpu::backend
