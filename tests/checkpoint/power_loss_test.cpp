#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <set>

#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/writer.h"
#include "tests/checkpoint/weights.h"
#include "tests/support/errors.h"
#include "tests/support/file_calls.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::FileCall;
using Kind = FileCall::Kind;

/// Which write by calls, as the recorder knows them.
nvme::Options threads() {
  nvme::Options options;
  options.engine = nvme::Engine::kThreads;
  return options;
}

void write_all(Writer& writer, const shape::Model& model) {
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    writer.write(static_cast<int>(s), 0, flat(model, s));
  }
  writer.finish();
}

/// What publishing a model under new folders did to files.
class Publishing : public testing::Test {
 protected:
  Publishing() {
    const shape::Model model = small_model("llama");
    const test::FileCalls recorder;
    // Several files, and their index.
    Writer writer(model, DType::kBf16, target_, 16_KiB, {}, in_one_piece, threads());
    write_all(writer, model);
    calls_ = recorder.calls();
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].kind == Kind::kRename) renames_.push_back(i);
    }
  }

  bool happened(Kind kind, const fs::path& path, std::size_t from, std::size_t to) const {
    return std::any_of(calls_.begin() + static_cast<std::ptrdiff_t>(from),
                       calls_.begin() + static_cast<std::ptrdiff_t>(to),
                       [&](const FileCall& c) { return c.kind == kind && c.path == path; });
  }
  /// One past the last change of a file; 0 when there was none.
  std::size_t changed(const fs::path& path) const {
    std::size_t end = calls_.size();
    while (end > 0 && !(calls_[end - 1].kind == Kind::kChange && calls_[end - 1].path == path)) {
      --end;
    }
    return end;
  }

  const test::TempFolder folder_;
  const fs::path above_ = fs::canonical(folder_.path());
  const fs::path target_ = above_ / "runs" / "run" / "final";
  std::vector<FileCall> calls_;
  std::vector<std::size_t> renames_;
};

TEST_F(Publishing, GivesTheNameOnceAndChangesNothingAfterwards) {
  ASSERT_EQ(renames_.size(), 1U);
  EXPECT_EQ(calls_[renames_[0]].renamed, target_);
  for (std::size_t i = renames_[0]; i < calls_.size(); ++i) {
    EXPECT_NE(calls_[i].kind, Kind::kChange) << calls_[i].path;
  }
}

TEST_F(Publishing, SyncsEveryFileAfterItsLastChangeAndBeforeTheName) {
  ASSERT_EQ(renames_.size(), 1U);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(target_)) {
    const fs::path name = entry.path().filename();
    const fs::path file = calls_[renames_[0]].path / name;
    names.insert(name);
    ASSERT_GT(changed(file), 0U) << name << ": nobody saw who wrote it";
    EXPECT_TRUE(happened(Kind::kSync, file, changed(file), renames_[0])) << name;
  }
  EXPECT_GE(names.size(), 4U);
  EXPECT_TRUE(names.contains("config.json"));
  EXPECT_TRUE(names.contains("model.safetensors.index.json"));
}

TEST_F(Publishing, SyncsTheNamesOfTheFilesBeforeItsOwn) {
  ASSERT_EQ(renames_.size(), 1U);
  const fs::path partial = calls_[renames_[0]].path;
  std::size_t all_are_there = 0;
  for (const auto& entry : fs::directory_iterator(target_)) {
    all_are_there = std::max(all_are_there, changed(partial / entry.path().filename()));
  }
  EXPECT_TRUE(happened(Kind::kSync, partial, all_are_there, renames_[0]));
}

TEST_F(Publishing, SyncsItsNameAndThoseOfTheFoldersAboveIt) {
  ASSERT_EQ(renames_.size(), 1U);
  for (const fs::path& folder : {above_ / "runs" / "run", above_ / "runs", above_}) {
    EXPECT_TRUE(happened(Kind::kSync, folder, renames_[0], calls_.size())) << folder;
  }
}

/// Whole blocks are written by other threads, after write() has returned: the last one, and the
/// first, which fails while others are still to come.
TEST(WritesBehind, ThatFailLeaveNothingUnderTheName) {
  const test::TempFolder folder;
  const shape::Model model = small_model("llama");
  const auto save = [&](test::FileCalls& calls, int whole) {
    calls.disturb(std::chrono::milliseconds(20), whole);
    Writer writer(model, DType::kF32, folder / "final", 5_GiB, {}, in_one_piece, threads());
    write_all(writer, model);
  };
  int all = 0;
  {
    test::FileCalls calls;
    save(calls, std::numeric_limits<int>::max());
    all = calls.disturbed();
  }
  ASSERT_GT(all, 1);
  fs::remove_all(folder / "final");
  for (const int whole : {all - 1, 0}) {
    test::FileCalls calls;
    test::expect_error(Errc::kIo, {"model.safetensors", "write of", "dmesg"},
                       [&] { save(calls, whole); });
    EXPECT_TRUE(folder.empty()) << whole;
  }
}

/// More pieces than there is memory for: a slow drive has each before the next takes its place.
TEST(WritesBehind, KeepTheirMemoryUntilTheyAreDone) {
  const test::TempFolder folder;
  shape::Decoder d = small_model("llama").decoder;
  d.vocab = 200'000;
  const shape::Model model = shape::make_model(d);
  {
    test::FileCalls calls;
    calls.disturb(std::chrono::milliseconds(20));
    Writer writer(model, DType::kF32, folder / "final", 5_GiB, {}, in_one_piece, threads());
    write_all(writer, model);
    ASSERT_GT(calls.disturbed(), 16);
  }
  const Reader reader(folder / "final");
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    for (const zero::Placed& p : zero::make_layout(model.segments[s]).tensors) {
      const auto& name = model.segments[s].tensors[static_cast<std::size_t>(p.tensor)].name;
      std::uint64_t elem = p.offset_elems;
      for (const float x : reader.read(name)) ASSERT_EQ(x, value_of(s, elem++)) << name;
    }
  }
}

}  // namespace
}  // namespace sluice::checkpoint
