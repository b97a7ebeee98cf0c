#include "tests/train/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace sluice::train {
namespace {

std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  return names;
}

}  // namespace

Ending ending_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& e) {
    return {e.code, e.what()};
  }
}

void expect_nothing_left(const Job& job) {
  for (const std::string& name : entries_of(job.folder)) {
    EXPECT_TRUE(name == "nvme" || name == "checkpoints") << name;
  }
  const fs::path saved = fs::path(job.folder) / "checkpoints";
  if (fs::exists(saved)) {  // before it failed
    EXPECT_THAT(entries_of(saved), testing::Each(testing::Not(testing::HasSubstr("partial"))));
  }
  const fs::path nvme = fs::path(job.folder) / "nvme";
  if (fs::exists(nvme)) {
    EXPECT_THAT(entries_of(nvme), testing::IsEmpty());
  }
}

Job nvme_job(const TempFolder& folder, Execution execution) {
  Job job = tiny_job(folder, tiny_gpt());
  job.train.steps = 2;
  job.homes.offload_optimizer = schedule::OptimizerHome::kNvme;
  job.execution = execution;
  job.final_dtype = DType::kBf16;  // not that of compute: saving reads the state
  return job;
}

std::shared_ptr<std::shared_ptr<const test::FaultySeam>> inject(Job& job,
                                                                const test::Faults& faults) {
  auto seam = std::make_shared<std::shared_ptr<const test::FaultySeam>>();
  job.hooks.wrap_queue = [=, aio = job.aio](std::unique_ptr<nvme::IoQueue>) {
    auto queue = std::make_unique<test::FaultyQueue>(aio, faults);
    *seam = queue->seam();
    return queue;
  };
  return seam;
}

}  // namespace sluice::train
