#include "nvme/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "nvme/filesystem.h"
#include "tests/nvme/buffer.h"
#include "tests/support/errors.h"
#include "tests/support/faulty_queue.h"
#include "tests/support/temp_folder.h"

namespace sluice::nvme {
namespace {

using test::Buffer;
using test::error_of;
using test::TempFolder;
using testing::HasSubstr;

constexpr const char* kRam = "/dev/shm";

bool has_ram_folder() {
  return ::access(kRam, W_OK) == 0 && filesystem_of(kRam).medium == Medium::kRam;
}

TEST(Store, ExtentsOverTwoFoldersReadBackWhatWasWritten) {
  TempFolder folder;
  Store store({folder / "a", folder / "b/c"}, 6_MiB, {}, AllowRam::kYes);
  std::vector<Extent> extents;
  std::vector<Buffer> out;
  std::vector<Ticket> tickets;
  for (unsigned i = 0; i < 3; ++i) {
    extents.push_back(store.allocate(2_MiB));
    out.push_back(Buffer::random(2_MiB, i));
  }
  for (unsigned i = 0; i < 3; ++i) tickets.push_back(store.write(extents[i], 0, out[i].span()));
  for (const Ticket& ticket : tickets) ticket.wait();
  for (unsigned i = 0; i < 3; ++i) {
    const Buffer in(2_MiB);
    store.read(extents[i], 0, in.span()).wait();
    EXPECT_EQ(in, out[i]) << i;
    const Buffer part(512_KiB);
    store.read(extents[i], 768_KiB, part.span()).wait();
    EXPECT_TRUE(std::ranges::equal(part.span(), out[i].span().subspan(768_KiB, 512_KiB))) << i;
  }
}

/// The second transfer is the read; it arrives with one wrong bit.
TEST(Store, ABitThatComesBackWrongIsNoticedWhereItIsVerified) {
  TempFolder folder;
  for (const Verify verify : {Verify::kTrue, Verify::kFalse}) {
    Options options;
    options.verify = verify;
    options.block_size = 256_KiB;
    Store store({folder.path()}, 4_MiB, options, AllowRam::kYes, {}, [&](std::unique_ptr<IoQueue>) {
      return std::make_unique<test::FaultyQueue>(options, test::Faults{.flip_request = 1});
    });
    store.allocate(1_MiB);
    const Extent extent = store.allocate(768_KiB);
    const Buffer out = Buffer::random(512_KiB, 1);
    store.write(extent, 256_KiB, out.span()).wait();
    const Buffer in(512_KiB);
    const Ticket read = store.read(extent, 256_KiB, in.span());
    if (verify == Verify::kFalse) {
      read.wait();
      EXPECT_NE(in, out);
      continue;
    }
    const Error error = error_of(read);
    EXPECT_EQ(error.code, Errc::kIo);
    EXPECT_THAT(error.what(), HasSubstr(folder / "sluice-"));
    EXPECT_THAT(error.what(), HasSubstr(": 262144 bytes at offset 1310720"));
    EXPECT_THAT(error.what(), HasSubstr("not what was written"));
    store.read(extent, 256_KiB, in.span()).wait();
    EXPECT_EQ(in, out);
  }
}

TEST(Store, LeavesNoNamesBehind) {
  TempFolder folder;
  const Store store({folder.path()}, 1_MiB, {}, AllowRam::kYes);
  EXPECT_TRUE(folder.empty());
}

TEST(Store, TakesSpaceOnlyWhileItLives) {
  TempFolder folder;
  const auto files_open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = files_open();
  { const Store store({folder.path()}, 1_MiB, {}, AllowRam::kYes); }
  EXPECT_EQ(files_open(), before);
}

TEST(Store, WithoutSpaceNothingIsMade) {
  TempFolder folder;
  const Bytes need = 2 * free_bytes(folder.path());
  const Error error = error_of([&] { Store({folder / "new"}, need, {}, AllowRam::kYes); });
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), HasSubstr(format_bytes(need)));
  EXPECT_THAT(error.what(), HasSubstr("free"));
  EXPECT_TRUE(folder.empty());
}

TEST(Store, MemoryIsNoDriveUnlessAllowed) {
  if (!has_ram_folder()) GTEST_SKIP() << kRam << " is no writable tmpfs here";
  TempFolder ram(kRam);
  const Error error = error_of([&] { Store({ram / "x"}, 1_MiB, {}, AllowRam::kNo); });
  EXPECT_EQ(error.code, Errc::kConfig);
  EXPECT_THAT(error.what(), HasSubstr("tmpfs"));
  EXPECT_THAT(error.what(), HasSubstr("tiers.nvme.allow_ram_path"));
  EXPECT_TRUE(ram.empty());

  testing::internal::CaptureStderr();
  Store store({ram / "x"}, 1_MiB, {}, AllowRam::kYes);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("warning"));
  const Buffer out = Buffer::random(1_MiB, 1);
  const Buffer in(1_MiB);
  const Extent extent = store.allocate(1_MiB);
  store.write(extent, 0, out.span()).wait();
  store.read(extent, 0, in.span()).wait();
  EXPECT_EQ(in, out);
}

TEST(Store, AFileIsNoFolder) {
  TempFolder folder;
  folder.write("file", "x");
  const Error error = error_of([&] { Store({folder / "file"}, 1_MiB, {}, AllowRam::kYes); });
  EXPECT_EQ(error.code, Errc::kConfig);
  EXPECT_THAT(error.what(), HasSubstr("not a folder"));
  EXPECT_EQ(error_of([&] { Store({folder / "file/under"}, 1_MiB, {}, AllowRam::kYes); }).code,
            Errc::kConfig);
  EXPECT_EQ(error_of([] { Store({}, 1_MiB, {}, AllowRam::kYes); }).code, Errc::kConfig);
}

/// What a dry run asks: the same refusals, and nothing is made.
TEST(Store, FoldersAreCheckedByLookingOnly) {
  TempFolder folder;
  EXPECT_NO_THROW(check_folders({folder / "a/b"}, 1_MiB, AllowRam::kYes));
  const Bytes much = 2 * free_bytes(folder.path());
  const Error full = error_of([&] { check_folders({folder / "a"}, much, AllowRam::kYes); });
  EXPECT_EQ(full.code, Errc::kBudget);
  EXPECT_THAT(full.what(), HasSubstr(format_bytes(much)));
  EXPECT_TRUE(folder.empty());
  folder.write("file", "x");
  for (const char* name : {"file", "file/under"}) {
    const Error error = error_of([&] { check_folders({folder / name}, 0, AllowRam::kYes); });
    EXPECT_EQ(error.code, Errc::kConfig);
    EXPECT_THAT(error.what(), HasSubstr(folder / "file is not a folder"));
  }
}

TEST(Store, AFolderWithoutPermissionIsFoundByLooking) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  TempFolder folder;
  std::filesystem::permissions(
      folder.path(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const Error error = error_of([&] { check_folders({folder / "new"}, 0, AllowRam::kYes); });
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
  EXPECT_EQ(error.code, Errc::kConfig);
  EXPECT_THAT(error.what(), HasSubstr("Permission denied"));
}

TEST(Store, AFileLargerThanUlimitAllowsIsFoundByLooking) {
  TempFolder folder;
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {1_MiB, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_NO_THROW(check_folders({folder.path()}, 1_MiB, AllowRam::kYes));
  const Error error = error_of([&] { check_folders({folder.path()}, 2_MiB, AllowRam::kYes); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(error.code, Errc::kBudget);
  EXPECT_THAT(error.what(), HasSubstr("ulimit -f"));
}

TEST(Store, SaysInWhichFilesARangeLies) {
  TempFolder folder;
  Store store({folder / "a", folder / "b"}, 32_MiB, {}, AllowRam::kYes);
  store.allocate(4_MiB);
  const Extent extent = store.allocate(12_MiB);  // turns of 2 MiB, from the second of each file
  EXPECT_THAT(store.where(extent),
              testing::MatchesRegex(".*/a/sluice-[-0-9]+.swap: 6291456 bytes at offset 2097152, "
                                    ".*/b/sluice-[-0-9]+.swap: 6291456 bytes at offset 2097152"));
  EXPECT_THAT(store.where({extent.begin + 2_MiB + 4_KiB, 8_KiB}),
              testing::MatchesRegex(".*/b/sluice-[-0-9]+.swap: 8192 bytes at offset 2101248"));
}

TEST(Store, FullIsABudgetError) {
  TempFolder folder;
  Store store({folder.path()}, 8_KiB, {}, AllowRam::kYes);
  store.allocate(8_KiB);
  EXPECT_EQ(error_of([&] { store.allocate(1); }).code, Errc::kBudget);
}

TEST(Store, MisuseIsRefusedBeforeAnyTransfer) {
  TempFolder folder;
  Store store({folder.path()}, 64_KiB, {}, AllowRam::kYes);
  const Extent extent = store.allocate(16_KiB);
  const Buffer memory(32_KiB);
  const auto refused = [&](const Extent& of, Bytes offset, std::span<std::byte> bytes) {
    EXPECT_EQ(error_of([&] { store.read(of, offset, bytes); }).code, Errc::kLogic);
    EXPECT_EQ(error_of([&] { store.write(of, offset, bytes); }).code, Errc::kLogic);
  };
  refused(extent, 0, memory.span());
  refused(extent, 12_KiB, memory.span().first(8_KiB));
  refused(extent, ~Bytes{0}, memory.span().first(4_KiB));
  refused(extent, 0, memory.span().subspan(8, 4_KiB));
  refused(Extent{16_KiB, 4_KiB}, 0, memory.span().first(4_KiB));
}

TEST(Store, SaysWhatItRunsOn) {
  TempFolder folder;
  Options options;
  options.engine = Engine::kThreads;
  options.direct = Direct::kFalse;
  const Store store({folder.path()}, 1_MiB, options, AllowRam::kYes);
  EXPECT_THAT(store.describe(), HasSubstr("threads"));
  EXPECT_THAT(store.describe(), HasSubstr(folder.path()));
  EXPECT_THAT(store.describe(), HasSubstr(filesystem_of(folder.path()).type));
  EXPECT_THAT(store.describe(), HasSubstr("page cache"));
}

TEST(Store, TicketsOutliveIt) {
  TempFolder folder;
  const Buffer out = Buffer::random(4_MiB, 2);
  Ticket ticket;
  {
    Store store({folder.path()}, 4_MiB, {}, AllowRam::kYes);
    ticket = store.write(store.allocate(4_MiB), 0, out.span());
  }
  EXPECT_TRUE(ticket.done());
  ticket.wait();
}

}  // namespace
}  // namespace sluice::nvme
