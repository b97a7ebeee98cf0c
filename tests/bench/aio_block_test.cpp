#include "engine/bench/aio_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/file_calls.h"
#include "tests/support/temp_folder.h"

namespace sluice::bench {
namespace {

using ::testing::HasSubstr;

const AioChoice kChoice{{nvme::Engine::kIoUring, 8_MiB, 16, Traffic::kMixed},
                        "2026-11-22, /dev/nvme0n1 (MODEL), mixed 1.52 GB/s"};
const std::string kComment =
    "# sluice bench nvme, 2026-11-22, /dev/nvme0n1 (MODEL), mixed 1.52 GB/s\n";
const std::string kBlock = "aio:\n  engine: io_uring\n  block_size: 8MiB\n  queue_depth: 16\n";

std::string with_crlf(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\n' ? std::string("\r\n") : std::string(1, c);
  return out;
}

std::string with_indent(std::string_view text) {
  std::string out;
  bool begin = true;
  for (const char c : text) {
    if (begin && c != '\n') out += "  ";
    out += c;
    begin = c == '\n';
  }
  return out;
}

struct Shape {
  std::string name, before, after;
};

std::vector<Shape> shapes() {
  return {
      {"nothing", "", kComment + kBlock},
      {"comments only", "# mine\n", "# mine\n\n" + kComment + kBlock},
      {"no aio", "version: 1\ntrain: {steps: 3}\n",
       "version: 1\ntrain: {steps: 3}\n\n" + kComment + kBlock},
      {"no aio, no final newline", "version: 1  # mine",
       "version: 1  # mine\n\n" + kComment + kBlock},
      {"no aio, a blank line at the end", "version: 1\n\n", "version: 1\n\n" + kComment + kBlock},
      {"no aio at the root", "a:\n  aio: {engine: auto}\n  b: aio\n# aio:\n",
       "a:\n  aio: {engine: auto}\n  b: aio\n# aio:\n\n" + kComment + kBlock},
      {"block, in the middle",
       "version: 1\n\n# about aio\naio:   # fast\n  # which\n  queue_depth:  4   # deep\n"
       "  direct: true\n\n  engine: 'auto' # why\n  block_size: \"1MiB\"\n# after\ntrain:\n  x: "
       "3\n",
       "version: 1\n\n# about aio\n" + kComment +
           "aio:   # fast\n  # which\n  queue_depth:  16   # deep\n"
           "  direct: true\n\n  engine: io_uring # why\n  block_size: 8MiB\n# after\ntrain:\n  x: "
           "3\n"},
      {"block, first, some missing", "aio:\n    engine: auto  # a\n    timeout: 2m\nversion: 1\n",
       kComment + "aio:\n    engine: io_uring  # a\n    block_size: 8MiB\n    queue_depth: 16\n"
                  "    timeout: 2m\nversion: 1\n"},
      {"block, last, no final newline", "version: 1\naio:\n  block_size: 4KiB",
       "version: 1\n" + kComment +
           "aio:\n  block_size: 8MiB\n  engine: io_uring\n  queue_depth: 16"},
      {"block, none of the three", "aio:\n  # keep\n  direct: true\n  threads: 4\n",
       kComment + "aio:\n  engine: io_uring\n  block_size: 8MiB\n  queue_depth: 16\n  # keep\n"
                  "  direct: true\n  threads: 4\n"},
      {"block, a value left out", "aio:\n  engine:   # later\n  direct: true\n",
       kComment + "aio:\n  engine: io_uring   # later\n  block_size: 8MiB\n  queue_depth: 16\n"
                  "  direct: true\n"},
      {"aio with nothing in it", "aio:  # later\nversion: 1\n",
       kComment + "aio:  # later\n  engine: io_uring\n  block_size: 8MiB\n  queue_depth: 16\n"
                  "version: 1\n"},
      {"braces", "a: 1\naio: {engine: auto}  # c\nb: 2\n",
       "a: 1\n" + kComment +
           "aio: {engine: io_uring, block_size: 8MiB, queue_depth: 16}  # c\nb: 2\n"},
      {"braces, other keys first", "aio: { direct: true, timeout: 2m }\n",
       kComment + "aio: { engine: io_uring, block_size: 8MiB, queue_depth: 16, direct: true, "
                  "timeout: 2m }\n"},
      {"empty braces", "aio: {}",
       kComment + "aio: {engine: io_uring, block_size: 8MiB, "
                  "queue_depth: 16}"},
      {"braces over lines, as JSON",
       "\"aio\" :\n  {\"queue_depth\":4, # deep\n   \"engine\":\"auto\",\n   direct: true}\n",
       kComment + "\"aio\" :\n  {\"queue_depth\":16, # deep\n   \"engine\":io_uring, block_size: "
                  "8MiB,\n   direct: true}\n"},
      {"after a block of text", "note: |\n  aio: {engine: auto}\n  # x\naio:\n  engine: auto\n",
       "note: |\n  aio: {engine: auto}\n  # x\n" + kComment + kBlock},
      {"after a text that keeps its blank lines", "a: |+\n  text\n\n\n",
       "a: |+\n  text\n\n\n" + kComment + kBlock},
      {"anchors elsewhere", "a: &t 2m\naio:\n  timeout: *t\n  engine: auto\nb: [*t, \"é\"]\n",
       "a: &t 2m\n" + kComment +
           "aio:\n  timeout: *t\n  engine: io_uring\n  block_size: 8MiB\n  queue_depth: 16\nb: "
           "[*t, \"é\"]\n"},
      {"letters of several bytes before it", "näme: \"ÜÖ→\" # …\naio: {engine: auto}\n",
       "näme: \"ÜÖ→\" # …\n" + kComment +
           "aio: {engine: io_uring, block_size: 8MiB, queue_depth: 16}\n"},
      {"a document's begin", "---\naio: {engine: auto}\n",
       "---\n" + kComment + "aio: {engine: io_uring, block_size: 8MiB, queue_depth: 16}\n"},
      {"an earlier choice, with words between",
       "a: 1\n# sluice bench nvme, 2020-01-01, /dev/sda (OLD), mixed 0.10 GB/s\n# mine\n\naio:\n"
       "  engine: threads\n  block_size: 1MiB\n  queue_depth: 1\n",
       "a: 1\n" + kComment + "# mine\n\n" + kBlock},
  };
}

TEST(AioBlock, IsMergedIntoEveryShapeAndNothingElseChanges) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    EXPECT_EQ(with_aio(shape.before, kChoice), shape.after);
  }
}

TEST(AioBlock, NamesTheNumberOfThreadsWhereTheyAreTheEngine) {
  AioChoice choice = kChoice;
  choice.point.engine = nvme::Engine::kThreads;
  const auto line = [](const std::string& threads) {
    return kComment + "aio: {engine: threads, block_size: 8MiB, queue_depth: 16, " + threads +
           "}\n";
  };
  EXPECT_EQ(with_aio("aio: {engine: auto}\n", choice), line("threads: 16"));
  const std::string before = "aio: {engine: auto, block_size: 1MiB, queue_depth: 1, ";
  EXPECT_EQ(with_aio(before + "threads: 4}\n", choice), line("threads: 16"));
  // Under the name that a file from DeepSpeed has for it.
  EXPECT_EQ(with_aio(before + "thread_count: 4}\n", choice), line("thread_count: 16"));
  test::expect_error(Errc::kConfig, {"threads stands there as thread_count too"},
                     [&] { with_aio(before + "threads: 4, thread_count: 4}\n", choice); });
  EXPECT_THAT(aio_lines(choice), testing::HasSubstr("\n  threads: 16\n"));
}

TEST(AioBlock, MergedAgainIsTheSame) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    EXPECT_EQ(with_aio(shape.after, kChoice), shape.after);
  }
}

TEST(AioBlock, KeepsTheLineEndsOfWindowsAndAByteOrderMark) {
  for (const Shape& shape : shapes()) {
    if (shape.before.find('\n') == std::string::npos) continue;
    SCOPED_TRACE(shape.name);
    EXPECT_EQ(with_aio(with_crlf(shape.before), kChoice), with_crlf(shape.after));
    EXPECT_EQ(with_aio("\xEF\xBB\xBF" + shape.before, kChoice), "\xEF\xBB\xBF" + shape.after);
  }
}

TEST(AioBlock, FollowsAnIndentedDocument) {
  for (const Shape& shape : shapes()) {
    if (shape.before.find(':') == std::string::npos) continue;
    if (shape.name == "a document's begin") continue;
    SCOPED_TRACE(shape.name);
    EXPECT_EQ(with_aio(with_indent(shape.before), kChoice), with_indent(shape.after));
  }
}

TEST(AioBlock, AnotherChoiceReplacesTheFirst) {
  AioChoice other = kChoice;
  other.point = {nvme::Engine::kLibaio, 1536_KiB, 4, Traffic::kMixed};
  other.provenance = "2027-01-01, sda, mixed 2.00 GB/s";
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    const std::string first = with_aio(shape.after, kChoice);
    const std::string second = with_aio(first, other);
    EXPECT_THAT(second, HasSubstr("block_size: 1536KiB"));
    EXPECT_THAT(second, HasSubstr("# sluice bench nvme, 2027-01-01, sda, mixed 2.00 GB/s"));
    EXPECT_THAT(second, testing::Not(HasSubstr("2026-11-22")));
    EXPECT_EQ(with_aio(second, kChoice), first);
  }
}

TEST(AioBlock, IsMergedIntoTheRunFilesOfThisRepository) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SOURCE_DIR "/configs")) {
    SCOPED_TRACE(entry.path());
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string before{std::istreambuf_iterator<char>(in), {}};
    const std::string after = with_aio(before, kChoice);
    EXPECT_THAT(after, HasSubstr(kComment + "aio:"));
    EXPECT_EQ(with_aio(after, kChoice), after);
    ++files;
  }
  EXPECT_GT(files, 0U);
}

TEST(AioBlock, RefusesWhatItCannotMergeSafelyAndShowsTheLines) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"aio: &a {engine: auto}\nb: *a\n", "anchor"},
      {"a: &a {engine: auto}\naio: *a\n", "alias"},
      {"aio: !x {engine: auto}\n", "tag"},
      {"&k aio: {engine: auto}\nb: *k\n", "aio has an anchor"},
      {"aio:\n  &k engine: auto\n", "engine has an anchor"},
      {"aio: ~\n", "something stands behind"},
      {"aio:\n  engine: &e auto\nb: *e\n", "no plain value"},
      {"e: &e auto\naio: {engine: *e}\n", "no plain value"},
      {"aio:\n  engine: [auto]\n", "no plain value"},
      {"aio: {engine: , direct: true}\n", "no plain value"},
      {"aio:\n  engine: au\n    to\n", "more than one line"},
      {"aio:\n  engine: \"\\x61uto\"\n", "escapes"},
      {"aio:\n  engine: auto\naio:\n  engine: auto\n", "aio stands there twice"},
      {"aio:\n  engine: auto\n  engine: auto\n", "engine stands there twice"},
      {"a: &a {b: 1}\n<<: *a\n", "<<"},
      {"a: &a {b: 1}\naio:\n  <<: *a\n", "<<"},
      {"aio:\n\tengine: auto\n", "tabs"},
      {"a:\n \t- 1\n", "tabs"},
      {"aio: [engine\n", "no YAML"},
      {"aio: auto\n", "aio is no map"},
      {"aio: [engine]\n", "aio is no map"},
      {"{aio: {engine: auto}}\n", "no block of keys"},
      {"- aio\n", "no block of keys"},
      {"? aio\n: {engine: auto}\n", "begin its line"},
      {"a: 1\n---\nb: 2\n", "more than one document"},
      {"a: 1\n...\n", ""},
      {"a: |\n  text\n  # sluice bench nvme, mine\naio: {engine: auto}\n", "keys around aio"},
  };
  for (const auto& [text, why] : refused) {
    SCOPED_TRACE(text);
    test::expect_error(Errc::kConfig, {"my.yaml: ", why, kComment + kBlock.substr(0, 30)},
                       [&, text = text] { with_aio(text, kChoice, "my.yaml"); });
  }
}

TEST(AioBlock, OfADeviceWithAStrangeNameStaysOneComment) {
  AioChoice odd = kChoice;
  odd.provenance = "x\ny: 1\r\tz";
  EXPECT_EQ(with_aio("", odd), "# sluice bench nvme, x y: 1  z\n" + kBlock);
}

TEST(AioBlock, SaysWhereItIsFrom) {
  Context context;
  context.date = "2026-11-22T10:11:12Z";
  context.device = "/dev/nvme0n1 (MODEL)";
  Summary chosen;
  chosen.point = kChoice.point;
  chosen.read_rate = 0.8e9;
  chosen.write_rate = 0.72e9;
  EXPECT_EQ(aio_lines(aio_choice(context, chosen)), kComment + kBlock);
}

TEST(AioFile, IsReplacedWithItsModeAndThroughALinkAndLeavesNothingElse) {
  const test::TempFolder folder;
  const std::string file = folder.write("run.yaml", "version: 1\n");
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  std::filesystem::create_symlink("run.yaml", folder / "link.yaml");
  const AioMerge merge = write_aio(folder / "link.yaml", kChoice);
  EXPECT_TRUE(merge.changed());
  EXPECT_EQ(merge.before, "version: 1\n");
  EXPECT_EQ(folder.read("run.yaml"), merge.after);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.yaml"));
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640U);
  const ino_t first = info.st_ino;
  EXPECT_FALSE(write_aio(file, kChoice).changed());
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_ino, first);  // the same text is not written again
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ++files;
  }
  EXPECT_EQ(files, 2U);
}

TEST(AioFile, IsSyncedBeforeItTakesTheNameAndTheNameAfterwards) {
  const test::TempFolder folder;
  const std::string file = folder.write("run.yaml", "version: 1\n");
  const test::FileCalls seen;
  write_aio(file, kChoice);
  const std::vector<test::FileCall> calls = seen.calls();
  using Call = test::FileCall::Kind;
  ASSERT_EQ(calls.size(), 4U);
  EXPECT_EQ(calls[0].kind, Call::kChange);
  EXPECT_EQ(calls[1].kind, Call::kSync);
  EXPECT_EQ(calls[2].kind, Call::kRename);
  EXPECT_EQ(calls[3].kind, Call::kSync);
  EXPECT_NE(calls[0].path, file);
  EXPECT_EQ(calls[1].path, calls[0].path);
  EXPECT_EQ(calls[2].path, calls[0].path);
  EXPECT_EQ(calls[2].renamed, file);
  EXPECT_EQ(calls[3].path, folder.path());
}

TEST(AioFile, ThatIsRefusedIsNotTouched) {
  const test::TempFolder folder;
  const std::string file = folder.write("run.yaml", "aio: auto\n");
  test::expect_error(Errc::kConfig, {file, "aio is no map"}, [&] { write_aio(file, kChoice); });
  EXPECT_EQ(folder.read("run.yaml"), "aio: auto\n");
  test::expect_error(Errc::kConfig, {"gone.yaml", "nothing"},
                     [&] { write_aio(folder / "gone.yaml", kChoice); });
  test::expect_error(Errc::kConfig, {"a folder"}, [&] { write_aio(folder.path(), kChoice); });
  folder.write("large.yaml", std::string(2_MiB, '#'));
  test::expect_error(Errc::kConfig, {"larger than 1MiB"},
                     [&] { write_aio(folder / "large.yaml", kChoice); });
}

}  // namespace
}  // namespace sluice::bench
