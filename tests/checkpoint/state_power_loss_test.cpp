/// What a power loss at any moment leaves of a checkpoint: nothing under its name, or all of it.
///
/// A checkpoint is written, and every call that changed files is noted. Then, for each number of
/// calls, the folder is made anew as a drive has it that lost everything but what was synced by
/// then.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoints.h"
#include "engine/checkpoint/state_scan.h"
#include "tests/checkpoint/gradient.h"
#include "tests/support/file_calls.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::FileCall;
using Kind = FileCall::Kind;

/// Names that were not synced may be there or not.
enum class Names : std::uint8_t { kLost, kThere };

/// What is on the drive after some calls. Paths are those under which a file was written.
class Drive {
 public:
  explicit Drive(Names names) : names_(names) {}

  void see(const FileCall& call) {
    if (call.kind == Kind::kRename) {
      pending_[call.path] = call.renamed;
    } else if (call.kind == Kind::kChange) {
      made_.insert(call.path);
      synced_.erase(call.path);
    } else if (made_.contains(call.path)) {
      synced_.insert(call.path);
    } else {
      sync_folder(call.path);
    }
  }

  /// Where the file is now, if anywhere; what was not synced of it is gone.
  std::optional<fs::path> place(const fs::path& file) const {
    if (names_ == Names::kLost && !is_named(file)) return std::nullopt;
    for (const auto* renames : {&done_, names_ == Names::kThere ? &pending_ : nullptr}) {
      if (renames == nullptr) continue;
      for (const auto& [from, to] : *renames) {
        const fs::path inside = file.lexically_relative(from);
        if (!inside.empty() && *inside.begin() != "..") return to / inside;
      }
    }
    return file;
  }
  bool synced(const fs::path& file) const { return synced_.contains(file); }
  const std::set<fs::path>& made() const { return made_; }

 private:
  /// From the file up to the folder that is renamed, each has its name in the one above it.
  bool is_named(const fs::path& file) const {
    for (fs::path at = file; at.has_relative_path(); at = at.parent_path()) {
      if (done_.contains(at)) return true;
      if (!named_.contains(at)) return false;
    }
    return false;
  }
  void sync_folder(const fs::path& folder) {
    for (fs::path at : made_) {
      for (; at.has_relative_path(); at = at.parent_path()) {
        if (at.parent_path() == folder) named_.insert(at);
      }
    }
    for (const auto& [from, to] : pending_) {
      if (to.parent_path() == folder) done_[from] = to;
    }
  }

  const Names names_;
  std::set<fs::path> made_, synced_, named_;
  std::map<fs::path, fs::path> pending_, done_;  // renames
};

void in_one_piece_of_all(std::size_t count,
                         const std::function<void(std::size_t, std::size_t)>& work) {
  work(0, count);
}

class StatePowerLoss : public testing::TestWithParam<Names> {};
INSTANTIATE_TEST_SUITE_P(All, StatePowerLoss, testing::Values(Names::kLost, Names::kThere));

TEST_P(StatePowerLoss, LeavesNothingUnderTheNameOrAllOfIt) {
  const test::TempFolder folder;
  const fs::path root = fs::canonical(folder.path());
  const shape::Model model = small_model("llama");
  nvme::Options threads;
  threads.engine = nvme::Engine::kThreads;
  std::vector<FileCall> calls;
  {
    const test::FileCalls recorder;
    Manifest manifest = lay_out_for(model, kGrainElems, 1_MiB);
    lay_out_gradients_for(manifest, 2 * kGrainElems, 100_KiB);
    StateWriter writer(std::move(manifest), root / "checkpoints" / "step-12",
                       companions_of(model.decoder), threads);
    const std::vector<std::uint64_t> sums = write_records(writer);
    writer.seal(pending_at(), sums, write_gradients(writer));
    writer.publish();
    calls = recorder.calls();
  }
  // Of what O_DIRECT is tried with.
  std::erase_if(calls, [](const FileCall& c) { return c.path.string().ends_with("(deleted)"); });
  const fs::path partial = std::ranges::find(calls, Kind::kRename, &FileCall::kind)->path;
  ASSERT_GT(calls.size(), 20U);

  bool was_whole = false;
  for (std::size_t after = 0; after <= calls.size(); ++after) {
    Drive drive(GetParam());
    for (std::size_t i = 0; i < after; ++i) drive.see(calls[i]);
    const test::TempFolder left;
    for (const fs::path& file : drive.made()) {
      const auto now = drive.place(file);
      if (!now) continue;
      const fs::path there = left.path() / now->lexically_relative(root);
      fs::create_directories(there.parent_path());
      const fs::path written = root / "checkpoints" / "step-12" / file.lexically_relative(partial);
      if (drive.synced(file)) {
        fs::copy_file(written, there);
      } else {
        std::ofstream(there, std::ios::binary);
        fs::resize_file(there, fs::file_size(written));  // its size came, its bytes did not
      }
    }
    bool whole = false;
    for (const Found& found : list_checkpoints(left.path() + "/checkpoints")) {
      EXPECT_TRUE(found.complete) << "after call " << after;
      const StateReader reader(found.folder, {});
      scan_state(
          reader, in_one_piece_of_all,
          {[](const StatePiece&) {},
           [&](const Error& e) { ADD_FAILURE() << "after call " << after << ": " << e.what(); }});
      whole = true;
    }
    EXPECT_TRUE(whole || !was_whole) << "gone again after call " << after;
    was_whole = whole;
  }
  EXPECT_TRUE(was_whole) << "once publish() has returned nothing can be lost";
}

}  // namespace
}  // namespace sluice::checkpoint
