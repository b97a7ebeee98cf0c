#include "engine/schedule/gradient_route.h"

namespace sluice::schedule {

GradientRoute gradient_route(const Setup& setup, int segment) {
  const bool at_device = setup.homes.offload_gradient == GradientHome::kNone;
  const bool separate = setup.sharing == Sharing::kSeparate;
  GradientRoute route;
  route.uses = setup.uses[static_cast<std::size_t>(segment)];
  route.home = at_device ? prefetch::Tier::kGpu : prefetch::Tier::kCpu;
  const bool one_of_each = setup.micro_batches == 1 && route.uses > 1;
  route.apart = one_of_each && !setup.delays();
  route.head_waits = one_of_each && setup.delays();
  route.summed = !route.apart &&
                 (setup.micro_batches > 1 || route.uses > 1 || setup.grad_dtype == GradDType::kF32);
  route.dtype = route.summed ? DType::kF32 : setup.compute;
  route.offloaded = !at_device && separate;
  route.copied_by_chunk = at_device != setup.updates_on_device() && separate;
  return route;
}

}  // namespace sluice::schedule
