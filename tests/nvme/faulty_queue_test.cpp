#include "tests/support/faulty_queue.h"

#include "nvme/store.h"
#include "tests/nvme/io_queue_conformance.h"

namespace sluice::test {
namespace {

Options small_blocks() {
  Options made;
  made.block_size = 16_KiB;
  made.queue_depth = 8;
  return made;
}

/// A store on a faulty queue, and 40 extents that are written and read back.
struct Fixture {
  explicit Fixture(const Faults& faults) {
    const auto make_faulty = [&](std::unique_ptr<nvme::IoQueue>) {
      auto made = std::make_unique<FaultyQueue>(small_blocks(), faults);
      seam = made->seam();
      return made;
    };
    store.emplace(std::vector{folder.path()}, 40 * 64_KiB, small_blocks(), nvme::AllowRam::kYes,
                  std::vector<double>{}, make_faulty);
    for (unsigned i = 0; i < 40; ++i) extents.push_back(store->allocate(64_KiB));
  }

  /// Which of the 40 failed.
  template <class Transfer>
  std::vector<unsigned> failures(const Transfer& transfer) {
    std::vector<Ticket> tickets;
    for (unsigned i = 0; i < 40; ++i) tickets.push_back(transfer(i));
    std::vector<unsigned> failed;
    for (unsigned i = 0; i < 40; ++i) {
      if (tickets[i].wait_error()) failed.push_back(i);
    }
    return failed;
  }
  std::vector<unsigned> write_all() {
    return failures([&](unsigned i) {
      auto memory = std::make_shared<Buffer>(Buffer::random(64_KiB, i));
      const auto bytes = memory->span();
      return store->write(extents[i], 0, bytes, std::move(memory));
    });
  }
  std::vector<unsigned> read_all() {
    read.clear();
    for (unsigned i = 0; i < 40; ++i) read.emplace_back(64_KiB);
    return failures([&](unsigned i) { return store->read(extents[i], 0, read[i].span()); });
  }

  TempFolder folder;
  std::shared_ptr<const FaultySeam> seam;
  std::vector<Buffer> read;
  std::vector<nvme::Extent> extents;
  std::optional<nvme::Store> store;
};

using testing::ElementsAre;
using testing::IsEmpty;

TEST(FaultyQueue, ABadDayDoesNotShowInTheBytes) {
  Faults faults;
  faults.short_transfers = 0.5;
  faults.interrupts = 0.1;
  faults.reorder = 16;
  faults.delay = std::chrono::microseconds(300);
  Fixture day(faults);
  EXPECT_THAT(day.write_all(), IsEmpty());
  EXPECT_THAT(day.read_all(), IsEmpty());
  for (unsigned i = 0; i < 40; ++i) EXPECT_EQ(day.read[i], Buffer::random(64_KiB, i)) << i;
  EXPECT_EQ(day.seam->counts().requests, 80U);
  EXPECT_GT(day.seam->counts().shorts, 0U);
  EXPECT_GT(day.seam->counts().interrupts, 0U);
}

TEST(FaultyQueue, TheNamedRequestFailsAndNoOther) {
  Faults faults;
  faults.fail_request = 13;
  faults.reorder = 8;
  Fixture day(faults);
  EXPECT_THAT(day.write_all(), ElementsAre(13));
  EXPECT_THAT(day.read_all(), IsEmpty());
  EXPECT_GE(day.seam->counts().failures, 1U);
}

TEST(FaultyQueue, TheNamedReadMeetsTheEndOfTheFile) {
  Faults faults;
  faults.end_request = 40 + 5;
  Fixture day(faults);
  EXPECT_THAT(day.write_all(), IsEmpty());
  EXPECT_THAT(day.read_all(), ElementsAre(5));
}

TEST(FaultyQueue, RequestsReallyChangeTheirOrder) {
  struct Order final {
    std::mutex mutex;
    std::vector<int> seen;
  } order;
  struct Note {
    Order* order;
    int number;
    ~Note() {
      const std::lock_guard lock(order->mutex);
      order->seen.push_back(number);
    }
  };
  Faults faults;
  faults.reorder = 20;
  Fixture day(faults);
  const Buffer memory(64_KiB);
  std::vector<Ticket> tickets;
  for (int i = 0; i < 20; ++i) {
    tickets.push_back(day.store->write(day.extents[static_cast<std::size_t>(i)], 0, memory.span(),
                                       std::shared_ptr<Note>(new Note{&order, i})));
  }
  for (const Ticket& ticket : tickets) ticket.wait();
  ASSERT_EQ(order.seen.size(), 20U);
  EXPECT_FALSE(std::ranges::is_sorted(order.seen));
}

}  // namespace
}  // namespace sluice::test
