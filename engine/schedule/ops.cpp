#include "engine/schedule/ops.h"

namespace sluice::schedule {

prefetch::OpKind kind_of(OpId id) {
  static constexpr std::array kNames = {"load batch",
                                        "fetch batch",
                                        "read weights",
                                        "fetch weights",
                                        "embed forward",
                                        "layer forward",
                                        "layer forward keep",
                                        "head",
                                        "head loss",
                                        "layer backward",
                                        "layer backward kept",
                                        "embed backward",
                                        "offload activation",
                                        "write activation",
                                        "read activation",
                                        "fetch activation",
                                        "offload gradient",
                                        "accumulate",
                                        "add uses",
                                        "norm",
                                        "decide",
                                        "read state",
                                        "adam",
                                        "write state",
                                        "publish",
                                        "write weights",
                                        "init control",
                                        "init state",
                                        "report loss",
                                        "save"};
  static_assert(kNames.size() == static_cast<std::size_t>(OpId::kCount));
  return {static_cast<std::uint16_t>(id), kNames[static_cast<std::size_t>(id)]};
}

prefetch::Lanes make_lanes() {
  using prefetch::Issue;
  return {{"compute", 1, Issue::kFifo},           {"h2d", 2, Issue::kOldestReady},
          {"d2h", 2, Issue::kOldestReady},        {"nvme-read", 4, Issue::kOldestReady},
          {"nvme-write", 4, Issue::kOldestReady}, {"cpu", 1, Issue::kOldestReady},
          {"data", 1, Issue::kOldestReady},       {"control", 1, Issue::kOldestReady}};
}

}  // namespace sluice::schedule
