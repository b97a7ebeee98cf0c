/// Folders that claim to be a checkpoint of state. Each is an error that names what is wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/checkpoint/json.h"
#include "engine/checkpoint/state_reader.h"
#include "nvme/sums.h"
#include "tests/checkpoint/gradient.h"
#include "tests/support/errors.h"
#include "tests/support/extent.h"
#include "tests/support/temp_folder.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::expect_error;
using test::TempFolder;

enum class Saved : std::uint8_t { kState, kStateAndGradient };

class DamagedFolder : public testing::TestWithParam<Saved> {
 protected:
  DamagedFolder() {
    if (GetParam() == Saved::kState) {
      save(small_model("gpt2"), folder_ / "step-12", kGrainElems, 100_KiB);
    } else {
      save_delayed(small_model("gpt2"), folder_ / "step-12", kGrainElems, kGrainElems, 100_KiB);
      names_.emplace_back("gradient-0-of-1-0.safetensors");
    }
  }

  void open() const { (void)StateReader(folder_ / "step-12", {}).model(); }
  std::string read(const std::string& name) const { return folder_.read("step-12/" + name); }
  void write(const std::string& name, const std::string& bytes) const {
    folder_.write("step-12/" + name, bytes);
  }
  fs::path path(const std::string& name) const { return folder_ / ("step-12/" + name); }

  /// Opening fails and names the file; the file is as it was afterwards.
  void expect_damaged(const std::string& name, const std::string& bytes,
                      const std::string& named) const {
    const std::string before = read(name);
    write(name, bytes);
    expect_error(Errc::kCheckpoint, {named}, [&] { open(); });
    write(name, before);
  }
  /// A manifest that COMPLETE vouches for.
  void vouch_for(const std::string& manifest) const {
    write("manifest.json", manifest);
    write("COMPLETE",
          hex(nvme::sum_of(std::as_bytes(std::span(manifest.data(), manifest.size())))) + "\n");
  }

  /// The manifest with one value changed, vouched for, is refused with this word.
  void expect_refused(const nlohmann::json& changed, const std::string& word) const {
    vouch_for(changed.dump());
    expect_error(Errc::kCheckpoint, {word}, [&] { open(); });
  }

  const TempFolder folder_;
  std::vector<std::string> names_ = {"COMPLETE", "manifest.json", "model/config.json",
                                     "state-0-of-1-0.safetensors", "state-0-of-1-2.safetensors"};
};
INSTANTIATE_TEST_SUITE_P(Of, DamagedFolder,
                         testing::Values(Saved::kState, Saved::kStateAndGradient));

/// Of a checkpoint with a gradient.
class DamagedGradient : public DamagedFolder {};
INSTANTIATE_TEST_SUITE_P(Of, DamagedGradient, testing::Values(Saved::kStateAndGradient));

TEST_P(DamagedFolder, AsItWasWrittenIsNone) {
  EXPECT_NO_THROW(open());
  EXPECT_GT(StateReader(folder_ / "step-12", {}).manifest().files.size(), 2U);
}

/// Of data only the records' sums know.
TEST_P(DamagedFolder, AFlippedBitAnywhereButInDataIsFound) {
  for (const std::string& name : names_) {
    const std::size_t bytes = name.ends_with(".safetensors") ? kAlignment : read(name).size();
    const std::string named = name == "COMPLETE" ? "manifest.json" : name;
    const std::size_t stride = test::by_extent(1, 1, 13);  // odd: every bit has its turn
    for (std::size_t i = 0; i < bytes; i += stride) {
      flip_bit(path(name), i, static_cast<int>(i % 8));
      expect_error(Errc::kCheckpoint, {named}, [&] { open(); });
      flip_bit(path(name), i, static_cast<int>(i % 8));
    }
  }
}

TEST_P(DamagedFolder, AFileThatIsShorterOrLongerIsNamed) {
  for (const std::string& name : names_) {
    const std::string whole = read(name);
    const std::string named = name == "COMPLETE" ? "COMPLETE" : name;
    for (const std::size_t size : {std::size_t{0}, whole.size() / 2, whole.size() - 1}) {
      expect_damaged(name, whole.substr(0, size), named);
    }
    expect_damaged(name, whole + " ", named);
  }
}

TEST_P(DamagedFolder, AFileThatIsMissingOrNoFileIsNamed) {
  for (const std::string& name : names_) {
    const std::string whole = read(name);
    fs::remove(path(name));
    expect_error(Errc::kCheckpoint, {name, "is not there"}, [&] { open(); });
    fs::create_directory(path(name));
    expect_error(Errc::kCheckpoint, {name}, [&] { open(); });
    fs::remove(path(name));
    ASSERT_EQ(::mkfifo(path(name).c_str(), 0600), 0);  // nobody waits for it
    expect_error(Errc::kCheckpoint, {name}, [&] { open(); });
    fs::remove(path(name));
    write(name, whole);
  }
  expect_error(Errc::kCheckpoint, {"step-13"}, [&] { StateReader(folder_ / "step-13", {}); });
}

TEST_P(DamagedFolder, AManifestOfANewerVersionSaysSo) {
  std::string newer = read("manifest.json");
  newer.replace(newer.find("\"version\": "), 12, "\"version\": 3");
  vouch_for(newer);
  expect_error(Errc::kCheckpoint, {"manifest.json", "version 3", "newer"}, [&] { open(); });
}

/// With sums that are right: nothing that it says is believed.
TEST_P(DamagedFolder, AManifestThatSomebodyWroteIsLookedAt) {
  using nlohmann::json;
  const json whole = json::parse(read("manifest.json"));
  const auto refused = [&](const char* pointer, const json& value, const std::string& word) {
    json changed = whole;
    changed[json::json_pointer(pointer)] = value;
    expect_refused(changed, word);
  };
  for (const std::string name : {"../elsewhere", "model/elsewhere", ".", ""}) {
    refused("/files/0", name, "'" + name + "'");
  }
  refused("/files/0", "manifest.json", "manifest.json");
  refused("/beside", {{"../../secret", "0000000000000000"}}, "'../../secret'");
  refused("/beside", json::object(), "config.json");
  refused("/records/0/offset", 0, "do not lie");
  refused("/records/0/elems", 0, "has 0 elements");
  refused("/records/0/elems", std::uint64_t{1} << 63, "elements");
  refused("/records/1/first", 4096, "no record of segment");
  refused("/records/1/segment", 77, "no record of segment");
  refused("/records/0/file", std::uint64_t{1} << 40, "is in file");
  refused("/records/0/xxh3", "zz", "16 digits");
  refused("/segments/0/elems", std::uint64_t{1} << 60, "elements");
  refused("/segments/0/elems", 8192, "no record of segment");
  refused("/segments/0/tensors/0/shape", {24, 130}, "another model");
  refused("/segments", json::array(), "record 0 belongs to no segment");
  refused("/records", json::array(), "no record of segment");
  refused("/position", "here", "'position'");
  refused("/position/loss_scale", 12, "no power of two");
  refused("/position/scale_held", "long", "'scale_held'");
  refused("/version", -1, "'version'");
  refused("/version", 0, "version 0");
}

TEST_P(DamagedGradient, AManifestThatSaysOneThingAndAnotherIsRefused) {
  using nlohmann::json;
  const json whole = json::parse(read("manifest.json"));
  const auto refused = [&](const std::string& pointer, const json& value, const std::string& word) {
    json changed = whole;
    changed[json::json_pointer(pointer)] = value;
    expect_refused(changed, word);
  };
  // Layers have more than one record.
  const auto& all = whole["gradients"];
  std::size_t second = 1;
  while (all[second]["segment"] != all[second - 1]["segment"]) ++second;
  const std::string of_second = "/gradients/" + std::to_string(second);

  refused("/version", 1, "version 1 and " + std::to_string(all.size()) + " gradients");
  refused("/gradients", json::array(), "version 2 and 0 gradients");
  refused("/gradients", json::object(), "'gradients' is no list");
  refused("/position/pending", "soon", "'pending' is 'soon'");
  refused("/position/pending", true, "'pending' is no text");
  refused("/position/pending_lr", "1e-3", "'pending_lr' is no number");
  refused("/position/pending_lr", 1e39, "'pending_lr' is 1e+39");
  {
    json changed = whole;
    changed["position"].erase("pending");
    expect_refused(changed, "no update is pending");
    changed = whole;
    changed["position"].erase("pending_lr");
    expect_refused(changed, "no 'pending_lr'");
    changed = whole;
    changed.erase("gradients");
    expect_refused(changed, "version 2 and 0 gradients");
    changed["version"] = 1;
    changed["files"] = json::array();
    for (const json& file : whole["files"]) {
      if (file.get<std::string>().starts_with("state")) changed["files"].push_back(file);
    }
    expect_refused(changed, "pending, without a gradient");
    changed = whole;
    changed["gradients"].erase(all.size() - 1);
    expect_refused(changed, "no gradient of segment 'final.norm' from element 0 on");
    changed = whole;
    changed["gradients"].push_back(all.back());
    expect_refused(changed, "belongs to no segment");
    changed = whole;
    changed["gradients"][0].erase("factor");
    expect_refused(changed, "no 'factor'");
  }
  refused(of_second + "/first", 0, "no gradient of segment 'layer.0' from element 4096 on");
  refused(of_second + "/segment", 77, "no gradient of segment");
  refused(of_second + "/elems", 4095, "has 4095 elements");
  refused(of_second + "/dtype", "F64", "the dtype 'F64'");
  refused(of_second + "/dtype", "fp16", "the dtype 'fp16'");
  refused(of_second + "/dtype", 2, "'dtype' is no text");
  refused(of_second + "/dtype", "BF16", "'layer.0' is F16 and BF16");
  refused(of_second + "/factor", 2.5, "'layer.0' has the factors -0 and 2.5");
  refused(of_second + "/factor", nullptr, "'factor' is no number");
  refused(of_second + "/factor", "1", "'factor' is no number");
  refused(of_second + "/factor", 3.5e38, "'factor' is 3.5e+38");
  refused(of_second + "/factor", -1e300, "'factor' is -1e+300");
  refused(of_second + "/xxh3", 5, "'xxh3' is no text");
  refused("/gradients/0/file", 0, "gradient 0 is in file 0");
  refused("/gradients/0/file", 3, "gradient 0 is in file 3");  // the last one of the state
  refused("/gradients/0/file", std::uint64_t{1} << 40, "is in file");
  refused("/gradients/0/offset", 0, "do not lie");
  // Of the same width: only the files know.
  refused("/gradients/1/dtype", "F16", "another header");
}

/// What passes is whole; everything else is an Error.
TEST_P(DamagedFolder, NoChangeOfAManifestIsWorseThanAnError) {
  const std::string whole = read("manifest.json");
  int refused = 0;
  for (std::size_t i = 0; i < whole.size(); i += 7) {
    for (const char other : {'0', '9', '"', '{', '\0'}) {
      std::string changed = whole;
      changed[i] = other;
      try {
        (void)parse_manifest(changed, "manifest.json");
      } catch (const Error& e) {
        EXPECT_EQ(e.code, Errc::kCheckpoint) << e.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, static_cast<int>(whole.size()) / 7);
}

}  // namespace
}  // namespace sluice::checkpoint
