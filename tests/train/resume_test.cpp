/// A run that goes on from a checkpoint is the run that was never stopped, bit for bit, wherever
/// either keeps its bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoints.h"
#include "engine/checkpoint/state_reader.h"
#include "tests/support/errors.h"
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
  std::map<int, std::uint64_t> sums;  // by segment
  friend bool operator==(const Saved&, const Saved&) = default;
};

Saved look_at(const fs::path& folder) {
  const checkpoint::StateReader reader(folder, {});
  Saved saved{reader.manifest().position, {}};
  saved.position.nvme_written = 0;  // is about the placement
  for (const auto& record : reader.manifest().records) saved.sums[record.segment] += record.sum;
  return saved;
}

/// The part of a run that comes after so many steps.
Fingerprint tail(Fingerprint print, std::int64_t steps, std::int64_t evaluations) {
  const auto cut = [](auto& list, std::int64_t n) { list.erase(list.begin(), list.begin() + n); };
  for (auto* list : {&print.losses, &print.norms}) cut(*list, steps);
  for (auto* list : {&print.clipped, &print.skipped}) cut(*list, steps);
  cut(print.valid_losses, evaluations);
  return print;
}

std::string name_of(const Wiring& w) {
  return std::string(w.tied ? "tied" : "untied") + (w.bf16 ? "_bf16" : "_fp32") +
         (w.accumulates ? "_accumulated" : "");
}

class Resume : public testing::TestWithParam<Wiring> {};
INSTANTIATE_TEST_SUITE_P(All, Resume,
                         testing::Values(Wiring{true, false, true}, Wiring{false, true, false},
                                         Wiring{true, true, false}, Wiring{false, false, true}),
                         [](const auto& info) { return name_of(info.param); });

/// Each placement saves the same state, and each goes on from one that another one has saved: so
/// each goes on from every other.
TEST_P(Resume, GoesOnFromTheCheckpointsOfEveryOtherPlacementBitForBit) {
  const TempFolder folder;
  write_short_data(folder);
  const Disturbance spoiled{.spoiled_steps = {kSpoiledStep}};
  const double clip = clip_threshold(folder, GetParam());
  const Fingerprint whole = run(saving(job_of(folder, GetParam()), clip), spoiled);
  ASSERT_TRUE(whole.skipped[kSpoiledStep]);
  ASSERT_GT(std::ranges::count(whole.clipped, true), 0);
  ASSERT_GT(std::ranges::count(whole.clipped, false), 0);

  std::vector<CrownRow> rows;
  for (const CrownRow& row : crown_rows()) {
    if (row.wiring == GetParam()) rows.push_back(row);
  }
  ASSERT_GT(rows.size(), 2U);
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
  EXPECT_EQ(after_the_skip.position, (checkpoint::Position{4, 3, 1, 0}));
}

}  // namespace
}  // namespace sluice::train
