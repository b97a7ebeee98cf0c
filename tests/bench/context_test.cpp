#include "engine/bench/context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::bench {
namespace {

using nvme::AllowRam;
using test::expect_error;
using testing::Contains;
using testing::HasSubstr;

TEST(Place, ThatIsNotThereIsRefused) {
  const test::TempFolder folder;
  expect_error(Errc::kConfig, {"not/yet does not exist", "make it"},
               [&] { place_of(folder / "not/yet", AllowRam::kYes); });
  EXPECT_TRUE(folder.empty());
}

TEST(Place, CannotBeAFileAndSaysWhatToDo) {
  const test::TempFolder folder;
  const std::string file = folder.write("file", "x");
  for (const std::string& path : {file, file + "/below"}) {
    expect_error(Errc::kConfig, {file, "is a file", "name a folder"},
                 [&] { place_of(path, AllowRam::kYes); });
  }
}

TEST(Place, ThatCannotBeWrittenIsRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const test::TempFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_read);
  expect_error(Errc::kConfig, {"cannot be written", "name a folder"},
               [&] { place_of(folder.path(), AllowRam::kYes); });
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

TEST(Place, InMemoryIsRefusedUnlessAllowed) {
  if (nvme::filesystem_of("/dev/shm").medium != nvme::Medium::kRam) GTEST_SKIP() << "no tmpfs";
  expect_error(Errc::kConfig, {"/dev/shm", "is memory", "--allow-ram"},
               [] { place_of("/dev/shm", AllowRam::kNo); });
  EXPECT_THAT(place_of("/dev/shm", AllowRam::kYes).notes, Contains(HasSubstr("not the speed")));
}

TEST(Place, WithoutRoomSaysNeedAndFree) {
  const Place place = place_of(testing::TempDir(), AllowRam::kYes);
  expect_error(Errc::kBudget, {"needs", "free", "--file-size"},
               [&] { require_room(place, place.on.free + 1_GiB); });
  require_room(place, 0);
}

TEST(Place, TwoOfOneFilesystemAreOneDrive) {
  const test::TempFolder a, b;
  const Place first = place_of(a.path(), AllowRam::kYes);
  EXPECT_TRUE(one_drive(first, place_of(b.path(), AllowRam::kYes)));
  Place unknown = first;
  unknown.device.drives.clear();
  EXPECT_TRUE(one_drive(first, unknown));
  Place other = first;
  other.on.device += 1;
  other.device.drives = {"another"};
  EXPECT_FALSE(one_drive(first, other));
  Place partition = other;
  partition.on.device += 1;
  EXPECT_TRUE(one_drive(other, partition));
}

TEST(Device, UnknownDrivesAreNotTheSame) {
  EXPECT_FALSE(share_a_drive({}, {}));
  EXPECT_TRUE(share_a_drive({"", "", {"a", "b"}}, {"", "", {"b"}}));
}

TEST(Device, NetworkFilesystemsAndThoseOfProgramsAreRemote) {
  EXPECT_TRUE(is_remote("nfs4"));
  EXPECT_TRUE(is_remote("fuse.sshfs"));
  EXPECT_FALSE(is_remote("ext4"));
  EXPECT_FALSE(is_remote(""));
}

TEST(Means, SayWhatThereIsAndLeaveNothing) {
  const test::TempFolder folder;
  Place place = place_of(folder.path(), AllowRam::kYes);
  const Means means = means_of(place, nvme::Direct::kAuto);
  EXPECT_THAT(means.engines, Contains(nvme::Engine::kThreads));
  EXPECT_THAT(means.context.engines, HasSubstr("threads"));
  EXPECT_THAT(means.context.date, testing::MatchesRegex("....-..-..T..:..:..Z"));
  EXPECT_EQ(means.context.path, place.folder);
  EXPECT_GT(means.context.cores, 0U);
  EXPECT_FALSE(means.context.memlock.empty());
  EXPECT_TRUE(folder.empty());
}

TEST(Means, ThroughThePageCacheLibaioIsLeftOutWithTheReason) {
  const test::TempFolder folder;
  Place place = place_of(folder.path(), AllowRam::kYes);
  const Means means = means_of(place, nvme::Direct::kFalse);
  EXPECT_EQ(means.caching, nvme::Caching::kPageCache);
  EXPECT_THAT(means.engines, testing::Not(Contains(nvme::Engine::kLibaio)));
  EXPECT_THAT(means.context.engines, HasSubstr("not libaio: it waits"));
}

}  // namespace
}  // namespace sluice::bench
