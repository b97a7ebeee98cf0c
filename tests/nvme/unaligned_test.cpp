#include "nvme/unaligned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/nvme/buffer.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace sluice::nvme {
namespace {

using test::Buffer;
using test::expect_error;
using test::TempFolder;

struct Stretch {
  Bytes offset, bytes;
};

/// Blocks and parts of them at both ends, within one block, over one border, nothing; up to the end
/// of a file that does not end with a block.
constexpr Bytes kFileBytes = 3 * kAlignment + 100;
const std::vector<Stretch> kStretches = {{0, kAlignment},
                                         {0, kFileBytes},
                                         {1, kAlignment},
                                         {7, 100},
                                         {kAlignment - 1, 2},
                                         {kAlignment, 2 * kAlignment},
                                         {kAlignment + 5, kFileBytes - kAlignment - 5},
                                         {3 * kAlignment - 8, 8},
                                         {3 * kAlignment - 8, 108},
                                         {3 * kAlignment + 1, 99},
                                         {50, 0}};

std::string random_text(Bytes bytes, unsigned seed) {
  const Buffer random = Buffer::random(round_up(bytes, kAlignment), seed);
  return {reinterpret_cast<const char*>(random.span().data()), bytes};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class Unaligned : public testing::TestWithParam<Direct> {
 protected:
  Options options() const {
    Options options;
    options.direct = GetParam();
    return options;
  }
  TempFolder folder_;
};

TEST_P(Unaligned, ReadsAnyRangeOfAnyFile) {
  const std::vector<std::string> texts = {random_text(kFileBytes, 1), random_text(kFileBytes, 2)};
  folder_.write("a", texts[0]);
  folder_.write("b", texts[1]);
  const UnalignedFiles files({folder_ / "a", folder_ / "b"}, Access::kRead, options());
  for (const Stretch& s : kStretches) {
    std::vector<Buffer> rooms;
    std::vector<Range> ranges;
    for (std::size_t file = 0; file < texts.size(); ++file) {
      rooms.emplace_back(std::max(room_for(s.offset, s.bytes), kAlignment));
      ranges.push_back({file, s.offset, s.bytes, rooms.back().span().data()});
    }
    files.read(ranges).wait();
    for (const Range& range : ranges) {
      EXPECT_EQ(text_of(range.data()), texts[range.file].substr(s.offset, s.bytes))
          << s.bytes << " at " << s.offset;
    }
  }
}

TEST_P(Unaligned, WritesARangeAndNothingBesideIt) {
  for (const Stretch& s : kStretches) {
    std::string text = random_text(kFileBytes, 3);
    folder_.write("a", text);
    Buffer room = Buffer::random(std::max(room_for(s.offset, s.bytes), kAlignment), 4);
    const Range range{0, s.offset, s.bytes, room.span().data()};
    {
      const UnalignedFiles files({folder_ / "a"}, Access::kReadWrite, options());
      files.write(range).wait();
    }
    text.replace(s.offset, s.bytes, text_of(range.data()));
    EXPECT_EQ(folder_.read("a"), text) << s.bytes << " at " << s.offset;
  }
}

/// As the pieces of a tensor are: each ends in a block in which the next begins.
TEST_P(Unaligned, NeighboursThatShareABlockAreWrittenInAnyOrder) {
  constexpr Bytes kPiece = 2 * kAlignment + 300;
  const std::string text = random_text(5 * kPiece, 5);
  folder_.write("a", std::string(text.size(), '\0'));
  const UnalignedFiles files({folder_ / "a"}, Access::kReadWrite, options());
  std::vector<Buffer> rooms;
  std::vector<Ticket> tickets;
  for (const Bytes i : {3U, 0U, 4U, 2U, 1U}) {
    const Bytes at = i * kPiece;
    rooms.emplace_back(room_for(at, kPiece));
    const Range range{0, at, kPiece, rooms.back().span().data()};
    std::ranges::copy(std::as_bytes(std::span(text)).subspan(at, kPiece), range.data().begin());
    tickets.push_back(files.write(range));
  }
  for (const Ticket& ticket : tickets) ticket.wait();
  EXPECT_EQ(folder_.read("a"), text);
}

TEST_P(Unaligned, WhatIsNotThereIsNamed) {
  expect_error(Errc::kIo, {folder_ / "none"},
               [&] { UnalignedFiles({folder_ / "none"}, Access::kRead, options()); });
  folder_.write("a", random_text(kFileBytes, 6));
  const UnalignedFiles files({folder_ / "a"}, Access::kRead, options());
  Buffer room(4 * kAlignment);
  const Range beyond{0, kFileBytes - 10, 11, room.span().data()};
  expect_error(Errc::kFormat, {folder_ / "a", "ends at byte 12388, 1 bytes early"}, [&] {
    files.read({&beyond, 1}).wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Both, Unaligned, testing::Values(Direct::kAuto, Direct::kFalse),
                         [](const auto& info) {
                           return info.param == Direct::kAuto ? "Direct" : "Cached";
                         });

}  // namespace
}  // namespace sluice::nvme
