// Whole runs on gpu/cuda and an emulated runtime, with stand-ins for the model's functions.
#include "engine/train/session.h"

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>

#include "tests/gpu/cuda/emulated_runtime.h"
#include "tests/train/cuda/wrapped_compute.h"
#include "tests/train/tested_compute.h"
#include "tests/train/tiny_run.h"

namespace sluice::train {
namespace {

namespace emulated = gpu::emulated;

struct Place {
  std::string name;
  void (*put)(schedule::Options&);
  friend std::ostream& operator<<(std::ostream& out, const Place& place) {
    return out << place.name;
  }
};

class CudaSession : public testing::TestWithParam<Place> {
 protected:
  Job job() const {
    Job job = tiny_job(folder_, tiny_llama());
    job.train.gradient_accumulation_steps = 2;
    job.train.train_batch_size = 4;
    GetParam().put(job.homes);
    return job;
  }

 private:
  const TempFolder folder_;
};

TEST_P(CudaSession, HasTheSameBitsWhenItsOpsRunOneByOne) {
  Job one_by_one = job();
  one_by_one.execution = Execution::kSerial;
  EXPECT_EQ(run(job()), run(one_by_one));
}

TEST_P(CudaSession, NeverWaitsForTheDeviceInAStep) {
  Job watched = job();
  std::size_t waits = 0;
  watched.hooks.wrap_handler = [&](executor::Handler&, const memory::SlotMemory&) {
    EXPECT_GT(emulated::allocations(), 0U);
    waits = emulated::host_waits();
    return nullptr;
  };
  watched.on_step = [&](const data::StepRecord& record) {
    EXPECT_EQ(emulated::host_waits(), waits) << record.step;
  };
  run(watched, {.poisons = false});  // that would wait
}

TEST_P(CudaSession, PinsPagesThatWereMadeBefore) {
  Job watched = job();
  const Bytes before = emulated::untouched();
  watched.hooks.wrap_handler = [&](executor::Handler&, const memory::SlotMemory&) {
    EXPECT_GT(emulated::registered(), 0U);
    EXPECT_EQ(emulated::untouched(), before);
    return nullptr;
  };
  run(watched);
}

TEST_P(CudaSession, LeavesRoomForWhatLibrariesHaveTaken) {
  const auto limit_with = [&](Bytes kept) {
    Job made = job();
    made.make_compute = [&](const schedule::Setup& setup, const Numerics& numerics) {
      return std::make_unique<KeepingCompute>(tested_compute()(setup, numerics), kept);
    };
    return make_session(made).plan().limits.tiers[index(prefetch::Tier::kGpu)];
  };
  EXPECT_EQ(limit_with(3_MiB), limit_with(1_MiB) - 2_MiB);
}

INSTANTIATE_TEST_SUITE_P(Placements, CudaSession,
                         testing::Values(Place{"host",
                                               [](schedule::Options& o) {
                                                 o.offload_param = schedule::ParamHome::kCpu;
                                                 o.offload_gradient = schedule::GradientHome::kCpu;
                                               }},
                                         Place{"device",
                                               [](schedule::Options& o) {
                                                 o.offload_param = schedule::ParamHome::kNone;
                                                 o.offload_gradient = schedule::GradientHome::kNone;
                                                 o.offload_optimizer =
                                                     schedule::OptimizerHome::kNone;
                                               }}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sluice::train
