#include "engine/base/ticket.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace sluice {
namespace {

TEST(Ticket, AnEmptyOneIsDone) {
  const Ticket ticket;
  EXPECT_TRUE(ticket.done());
  ticket.wait();
}

TEST(Ticket, CarriesAnErrorToEveryWaiter) {
  TicketSource source;
  const Ticket first = source.ticket();
  const Ticket second = source.ticket();
  std::thread worker(
      [&] { source.fail(std::make_exception_ptr(Error(Errc::kIo, "disk on fire"))); });
  EXPECT_THROW(first.wait(), Error);
  EXPECT_THROW(second.wait(), Error);
  worker.join();
}

TEST(Ticket, KeepsWhatTheWorkNeedsUntilItIsDone) {
  auto bytes = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = bytes;
  TicketSource source(std::move(bytes));
  { const Ticket dropped = source.ticket(); }
  EXPECT_FALSE(watch.expired());
  source.finish();
  EXPECT_TRUE(watch.expired());
}

TEST(Ticket, OfSeveralIsDoneWhenAllAreWithTheFirstError) {
  EXPECT_TRUE(Ticket::all({}).done());
  TicketSource a, b, c;
  const Ticket all = Ticket::all({a.ticket(), b.ticket(), c.ticket()});
  b.fail(std::make_exception_ptr(Error(Errc::kIo, "second")));
  c.fail(std::make_exception_ptr(Error(Errc::kIo, "third")));
  EXPECT_FALSE(all.done());
  a.finish();
  EXPECT_TRUE(all.done());
  EXPECT_STREQ(test::error_of(all).what(), "second");
  TicketSource one;
  EXPECT_FALSE(Ticket::all({one.ticket(), Ticket()}).done());
  one.finish();
  EXPECT_EQ(Ticket::all({one.ticket(), Ticket()}).wait_error(), nullptr);
}

TEST(Ticket, ThenRunsOnceOnTheFirstThatWaits) {
  TicketSource source;
  auto kept = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = kept;
  int runs = 0;
  const Ticket both = source.ticket().then([&runs, kept] { ++runs; });
  kept.reset();
  source.finish();
  EXPECT_FALSE(both.done());  // nobody has waited
  const Ticket copy = both;
  both.wait();
  copy.wait();
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(copy.done());
  EXPECT_TRUE(watch.expired());  // what it needed is dropped
}

TEST(Ticket, ThenFailsWithItsOwnErrorOrTheFirstOne) {
  const Ticket own = Ticket().then([] { throw Error(Errc::kIo, "its own"); });
  EXPECT_STREQ(test::error_of(own).what(), "its own");
  EXPECT_STREQ(test::error_of(own).what(), "its own");
  TicketSource source;
  bool ran = false;
  const Ticket after = source.ticket().then([&] { ran = true; });
  source.fail(std::make_exception_ptr(Error(Errc::kIo, "before")));
  EXPECT_STREQ(test::error_of(after).what(), "before");
  EXPECT_FALSE(ran);
}

TEST(Ticket, SaysWhenTheWorkBeganOnceItIsDone) {
  TicketSource told;
  TicketSource untold;
  const Ticket began = told.ticket();
  const Ticket unknown = untold.ticket();
  const Nanos before = now_ns();
  told.begin();
  const Nanos after = now_ns();
  EXPECT_EQ(began.began(), 0);
  told.finish();
  untold.finish();
  EXPECT_GE(began.began(), before);
  EXPECT_LE(began.began(), after);
  EXPECT_EQ(unknown.began(), 0);
  EXPECT_EQ(Ticket().began(), 0);
}

TEST(Ticket, SaysWhenTheWorkEnded) {
  TicketSource first;
  TicketSource second;
  const Ticket a = first.ticket();
  const Ticket b = second.ticket();
  const Ticket both = Ticket::all({a, b});
  EXPECT_EQ(a.ended(), 0);
  first.finish(100);
  EXPECT_EQ(a.ended(), 100);
  EXPECT_EQ(both.ended(), 0);
  const Nanos before = now_ns();
  second.fail(std::make_exception_ptr(Error(Errc::kIo, "an end too")));
  EXPECT_GE(b.ended(), before);
  EXPECT_LE(b.ended(), now_ns());
  EXPECT_EQ(both.ended(), b.ended());
  const Ticket later = a.then([] {});
  EXPECT_EQ(later.ended(), 0);
  later.wait();
  EXPECT_GE(later.ended(), before);
  EXPECT_EQ(Ticket().ended(), 0);
}

TEST(Ticket, ADroppedSourceFailsInsteadOfHanging) {
  std::optional<TicketSource> source(std::in_place);
  const Ticket ticket = source->ticket();
  source.reset();
  EXPECT_THROW(ticket.wait(), Error);
}

}  // namespace
}  // namespace sluice
