#include "engine/data/glob.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "tests/data/folder.h"
#include "tests/support/errors.h"

namespace sluice::data {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class Glob : public Folder {
 protected:
  Glob() {
    for (const char* name : {"a.cpp", "b/a.cpp", "b/c/a.cpp", "b/c/b.h", "b/.git/a.cpp", "B.cpp",
                             "b/[x].cpp", ".hidden.cpp"}) {
      write(name, "x");
    }
  }

  /// What the patterns match, as names inside the folder.
  std::vector<std::string> names(std::vector<std::string> globs) const {
    for (std::string& glob : globs) glob = path(glob);
    std::vector<std::string> found;
    for (const std::string& file : expand_globs(globs)) {
      found.push_back(fs::path(file).lexically_relative(path("")).string());
    }
    return found;
  }
  using Names = std::vector<std::string>;
};

TEST_F(Glob, AnyDepthMeansNoFolderToo) {
  EXPECT_EQ(names({"**/a.cpp"}), (Names{"a.cpp", "b/a.cpp", "b/c/a.cpp"}));
  EXPECT_EQ(names({"b/**/a.cpp"}), (Names{"b/a.cpp", "b/c/a.cpp"}));
  EXPECT_EQ(names({"**/c/**/*.h"}), (Names{"b/c/b.h"}));
  EXPECT_EQ(names({"**/**/c/*"}), (Names{"b/c/a.cpp", "b/c/b.h"}));
}

TEST_F(Glob, AnyDepthAtTheEndIsEveryFileBelow) {
  EXPECT_EQ(names({"b/**"}), (Names{"b/[x].cpp", "b/a.cpp", "b/c/a.cpp", "b/c/b.h"}));
}

TEST_F(Glob, StarStaysInsideOneFolderAndSkipsFolders) {
  EXPECT_EQ(names({"*"}), (Names{"B.cpp", "a.cpp"}));
  EXPECT_EQ(names({"b/*/?.h"}), (Names{"b/c/b.h"}));
}

TEST_F(Glob, FilesAreSortedByBytesAndNamedOnce) {
  EXPECT_EQ(names({"b/a.cpp", "*.cpp", "./b/../a.cpp", "b/./*.cpp"}),
            (Names{"B.cpp", "a.cpp", "b/[x].cpp", "b/a.cpp"}));
}

TEST_F(Glob, HiddenNamesMustBeWrittenOut) {
  EXPECT_EQ(names({".*.cpp", "b/.git/*"}), (Names{".hidden.cpp", "b/.git/a.cpp"}));
}

TEST_F(Glob, LetterRangesSplitFilesInTwo) {
  EXPECT_EQ(names({"**/[a]*.*"}), (Names{"a.cpp", "b/a.cpp", "b/c/a.cpp"}));
  EXPECT_EQ(names({"**/[!a]*.*"}), (Names{"B.cpp", "b/[x].cpp", "b/c/b.h"}));
}

TEST_F(Glob, FileIsFoundByItsOwnNameWhateverIsInIt) {
  EXPECT_EQ(names({"b/[x].cpp"}), (Names{"b/[x].cpp"}));
}

TEST_F(Glob, RelativePatternsStartAtTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(path("b"));
  const auto found = expand_globs({"**/*.h", "*.cpp"});
  fs::current_path(before);
  EXPECT_EQ(found, (Names{"[x].cpp", "a.cpp", "c/b.h"}));
}

TEST_F(Glob, LinksToFoldersAreNotFollowedByAnyDepth) {
  fs::create_directory_symlink(path("b"), path("b/c/loop"));
  EXPECT_EQ(names({"**/b.h"}), (Names{"b/c/b.h"}));
  EXPECT_EQ(names({"b/c/loop/c/b.h"}), (Names{"b/c/loop/c/b.h"}));
}

TEST_F(Glob, LinkToNothingIsAnError) {
  fs::create_symlink(path("gone"), path("b/link.cpp"));
  expect_error(Errc::kIo, {"b/link.cpp", "not there"}, [&] { names({"**/*.cpp"}); });
  expect_error(Errc::kIo, {"b/link.cpp", "not there"}, [&] { names({"b/link.cpp"}); });
}

TEST_F(Glob, PatternThatMatchesNothingIsNamed) {
  expect_error(Errc::kConfig, {"*.rs", "no file"}, [&] { names({"*.cpp", "*.rs"}); });
  expect_error(Errc::kConfig, {"a.cpp/x", "no file"}, [&] { names({"a.cpp/x"}); });
  expect_error(Errc::kConfig, {"no file"}, [&] { expand_globs({""}); });
  expect_error(Errc::kConfig, {"data.train"}, [&] { expand_globs({}); });
}

TEST_F(Glob, FolderIsRefusedWithTheRightSpelling) {
  expect_error(Errc::kConfig, {"b is a folder", "/**"}, [&] { names({"b"}); });
}

TEST_F(Glob, WhatIsNoFileIsSkippedByAPatternAndNamedWhereNothingElseMatches) {
  ASSERT_EQ(::mkfifo(path("b/fifo.cpp").c_str(), 0600), 0);
  EXPECT_EQ(names({"b/*.cpp"}), (Names{"b/[x].cpp", "b/a.cpp"}));
  expect_error(Errc::kConfig, {"b/fifo.cpp is a FIFO"}, [&] { names({"b/fifo.cpp"}); });
  expect_error(Errc::kConfig, {"b/fifo.cpp is a FIFO"}, [&] { names({"b/fifo.*"}); });
  expect_error(Errc::kConfig, {"/dev/zero is a device"}, [&] { expand_globs({"/dev/zero"}); });

  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path("socket").copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(listener);
  expect_error(Errc::kConfig, {"socket is a socket"}, [&] { names({"socket"}); });
}

}  // namespace
}  // namespace sluice::data
