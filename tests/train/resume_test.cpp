/// A run that goes on from a checkpoint is the run that was never stopped, bit for bit, wherever
/// either keeps its bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoints.h"
#include "engine/checkpoint/state_reader.h"
#include "engine/data/learning_rate.h"
#include "tests/support/errors.h"
#include "tests/support/extent.h"
#include "tests/support/file_size_limit.h"
#include "tests/train/crown_rows.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

/// Few samples, so that epochs end within the run.
void write_short_data(const TempFolder& folder) {
  write_tokens(folder / "tokens.bin", 200, 601);
}

Job saving(Job job, double clip) {
  job.train.gradient_clipping = clip;
  job.checkpoint.every = std::int64_t{2};
  job.checkpoint.keep = 100;
  job.version = "test";
  return job;
}

/// What does not depend on how the state is cut into chunks.
struct Saved {
  checkpoint::Position position;
  std::map<int, std::uint64_t> sums;                         // by segment
  std::map<int, std::pair<std::uint64_t, float>> gradients;  // that wait, with their factor
  friend bool operator==(const Saved&, const Saved&) = default;
};

Saved look_at(const fs::path& folder) {
  const checkpoint::StateReader reader(folder, {});
  Saved saved{reader.manifest().position, {}, {}};
  saved.position.nvme_written = 0;  // is about the placement
  for (const auto& record : reader.manifest().records) saved.sums[record.segment] += record.sum;
  for (const auto& record : reader.manifest().gradients) {
    auto& [sum, factor] = saved.gradients[record.segment];
    sum += record.sum;
    factor = record.factor;
  }
  return saved;
}

/// The part of a run that comes after so many steps.
Fingerprint tail(Fingerprint print, std::int64_t steps, std::int64_t evaluations) {
  const auto cut = [](auto& list, std::int64_t n) { list.erase(list.begin(), list.begin() + n); };
  for (auto* list : {&print.losses, &print.norms}) cut(*list, steps);
  if (!print.largest_norms.empty()) cut(print.largest_norms, steps);
  for (auto* list : {&print.clipped, &print.skipped}) cut(*list, steps);
  if (!print.loss_scales.empty()) cut(print.loss_scales, steps);
  cut(print.valid_losses, evaluations);
  return print;
}

class Resume : public testing::TestWithParam<Wiring> {};
INSTANTIATE_TEST_SUITE_P(
    All, Resume,
    testing::Values(Wiring{true, DType::kF32, true}, Wiring{false, DType::kBf16, false},
                    Wiring{true, DType::kBf16, false}, Wiring{false, DType::kF32, true},
                    Wiring{true, DType::kF16, false},
                    Wiring{true, DType::kBf16, true, Wiring::Order::kBySegment},
                    Wiring{true, DType::kBf16, false, Wiring::Order::kDelayed},
                    Wiring{false, DType::kF32, true, Wiring::Order::kDelayed},
                    Wiring{false, DType::kF16, false, Wiring::Order::kDelayed}),
    [](const auto& info) { return name_of(info.param); });

/// Each placement saves the same state, and each goes on from one that another one has saved: so
/// each goes on from every other.
TEST_P(Resume, GoesOnFromTheCheckpointsOfEveryOtherPlacementBitForBit) {
  const TempFolder folder;
  write_short_data(folder);
  const Disturbance spoiled = disturbance_of(GetParam());
  const double clip = clip_threshold(folder, GetParam());
  const Fingerprint whole = run(saving(job_of(folder, GetParam()), clip), spoiled);
  ASSERT_EQ(whole.skipped[kSpoiledStep], !GetParam().by_segment());
  ASSERT_GT(std::ranges::count(whole.clipped, true), 0);
  ASSERT_GT(std::ranges::count(whole.clipped, false), 0);

  const std::vector<CrownRow> rows = crown_rows_of(GetParam(), 1);
  ASSERT_GT(rows.size(), test::extent() == test::Extent::kLeast ? 0U : 2U);
  std::map<std::string, Saved> first;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Job from = saving(job_of(folder, rows[i]), clip);
    from.folder = folder / ("run-" + std::to_string(i));
    EXPECT_EQ(run(from, spoiled), whole) << rows[i].name();
    for (const std::string at : {"step-2", "step-4"}) {
      const Saved saved = look_at(fs::path(from.folder) / "checkpoints" / at);
      const auto [known, is_first] = first.emplace(at, saved);
      EXPECT_EQ(known->second, saved) << rows[i].name() << ' ' << at;
      const CrownRow& other = rows[(i + 1) % rows.size()];
      Job onto = saving(job_of(folder, other), clip);
      onto.folder = folder / "resumed";
      onto.resume = (fs::path(from.folder) / "checkpoints" / at).string();
      const std::int64_t steps = saved.position.step;
      EXPECT_EQ(run(onto, spoiled), tail(whole, steps, steps / 2))
          << rows[i].name() << " onto " << other.name() << " from " << at;
    }
  }
  const Saved& after_the_skip = first.at("step-4");
  checkpoint::Position position{4, 3, 1, 0};
  if (GetParam().compute == DType::kF16) position = {4, 3, 0, 0, 1024, 0};  // lowered: not counted
  if (GetParam().by_segment()) position = {4, 4, 0, 0};
  const bool waits = GetParam().delayed() && !GetParam().drains();
  if (waits) {
    position.pending = checkpoint::Position::Pending::kSkipped;
    const Job job = job_of(folder, GetParam());
    position.pending_lr = static_cast<float>(
        data::lr_at(job.scheduler, job.optimizer.lr, kSpoiledStep, *job.train.steps));
  }
  EXPECT_EQ(after_the_skip.position, position);
  EXPECT_EQ(first.at("step-2").position.pending == checkpoint::Position::Pending::kApplied, waits);
  EXPECT_EQ(after_the_skip.gradients.size(), waits ? after_the_skip.sums.size() : 0);
}

class SaverFaults : public testing::Test {
 protected:
  SaverFaults() {
    job_.checkpoint.every = std::int64_t{2};
    job_.checkpoint.keep = 100;
    expected_ = run(job_);
  }
  /// The run goes on to the end that it has without faults; the steps that it has saved.
  std::vector<std::int64_t> saved_by(const Job& job) {
    Fingerprint seen;
    Job watched = job;
    watched.on_step = [&, inner = job.on_step](const data::StepRecord& record) {
      if (inner) inner(record);
      seen.losses.push_back(record.loss);
    };
    EXPECT_EQ(make_session(watched).run(), Outcome::kDone);
    EXPECT_EQ(seen.losses, expected_.losses);
    std::vector<std::int64_t> steps;
    if (!fs::is_directory(job.folder + "/checkpoints")) return steps;
    for (const auto& found : checkpoint::list_checkpoints(job.folder + "/checkpoints")) {
      if (found.complete) steps.push_back(found.step);
    }
    return steps;
  }
  void new_folder() {
    fs::remove_all(job_.folder);
    fs::create_directories(job_.folder);
  }

  const TempFolder folder_;
  Job job_ = tiny_job(folder_, tiny_llama());
  Fingerprint expected_;
};

/// As a disk that is full: the first checkpoint finds no room, the second does.
TEST_F(SaverFaults, ACheckpointThatFindsNoRoomIsGivenUpAndTheNextOneIsTried) {
  for (const rlim_t room : {rlim_t{0}, rlim_t{100 << 10}}) {
    new_folder();
    std::optional<test::FileSizeLimit> limit;
    Job job = job_;
    job.on_step = [&](const data::StepRecord& record) {
      if (record.step == 1) limit.emplace(room);
      if (record.step == 3) limit.reset();
    };
    job.execution = Execution::kSerial;  // the checkpoint of step 2 has run when step 3 is told of
    testing::internal::CaptureStderr();
    EXPECT_EQ(saved_by(job), std::vector<std::int64_t>{4});
    const std::string said = testing::internal::GetCapturedStderr();
    if (room > 0) {  // what is captured goes into a file too
      EXPECT_NE(said.find("no checkpoint of step 2"), std::string::npos) << said;
      EXPECT_NE(said.find("the run goes on"), std::string::npos) << said;
    }
    for (const auto& entry : fs::directory_iterator(job.folder + "/checkpoints")) {
      EXPECT_EQ(entry.path().filename(), "step-4") << "nothing is left of the other";
    }
  }
}

TEST_F(SaverFaults, WhereNoFolderCanBeMadeTheRunGoesOnWithoutCheckpoints) {
  new_folder();
  std::ofstream(job_.folder + "/checkpoints") << "in the way";
  EXPECT_EQ(saved_by(job_), std::vector<std::int64_t>{});
  EXPECT_TRUE(fs::is_regular_file(job_.folder + "/checkpoints"));
}

/// Also when it is the last thing that the run does.
TEST_F(SaverFaults, ARunThatIsStoppedAndCannotSaveSaysSo) {
  new_folder();
  std::ofstream(job_.folder + "/checkpoints") << "in the way";
  std::atomic<int> signal{0};
  job_.stop = &signal;
  job_.on_step = [&](const data::StepRecord&) { signal = 15; };
  EXPECT_EQ(make_session(job_).run(), Outcome::kStopped);
}

TEST_F(SaverFaults, OldOnesGoOnceANewOneIsWholeButThoseToKeep) {
  new_folder();
  job_.train.steps = 9;
  job_.checkpoint.every = std::int64_t{1};
  job_.checkpoint.keep = 2;
  job_.checkpoint.keep_every = 3;
  EXPECT_EQ(make_session(job_).run(), Outcome::kDone);
  std::vector<std::int64_t> steps;
  for (const auto& found : checkpoint::list_checkpoints(job_.folder + "/checkpoints")) {
    EXPECT_TRUE(found.complete);
    steps.push_back(found.step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{9, 8, 6, 3}));
}

/// A byte that the drive gives back otherwise is found in the program of first values.
TEST_F(SaverFaults, AFlippedBitOfEachRecordIsNamed) {
  const std::string last = job_.folder + "/checkpoints/step-4";
  std::vector<std::uint64_t> offsets;
  std::string name;
  {
    const checkpoint::StateReader reader(last, {});
    for (const auto& record : reader.manifest().records) {
      offsets.push_back(record.offset + record.bytes() - 5);
    }
    name = reader.manifest().files.at(0);
  }
  const fs::path file = fs::path(last) / name;
  const auto flip = [&](std::uint64_t at) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(at));
    const int byte = stream.get();
    stream.seekp(static_cast<std::streamoff>(at));
    stream.put(static_cast<char>(byte ^ 1));
  };
  Job job = job_;
  job.resume = last;
  job.homes.sub_group_size = 3 * 48_KiB;  // cut otherwise
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    job.folder = folder_ / ("again-" + std::to_string(i));
    fs::create_directories(job.folder);
    flip(offsets[i]);
    test::expect_error(Errc::kCheckpoint, {name, "the record of ", "is not what was written"},
                       [&] { make_session(job).run(); });
    flip(offsets[i]);
  }
  EXPECT_NO_THROW(make_session(job).run());
}

}  // namespace
}  // namespace sluice::train
