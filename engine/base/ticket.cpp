#include "engine/base/ticket.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"

namespace sluice {

bool Ticket::done() const noexcept {
  if (!state_) return true;
  if (state_->all.empty() || state_->has_work) return state_->done.load(std::memory_order_acquire);
  return std::ranges::all_of(state_->all, &Ticket::done);
}

/// Waits for all of them, also after an error: what is in flight still touches its memory.
std::exception_ptr Ticket::wait_error() const noexcept {
  if (!state_) return nullptr;
  std::exception_ptr first;
  for (const Ticket& ticket : state_->all) {
    std::exception_ptr error = ticket.wait_error();
    if (!first) first = std::move(error);
  }
  if (state_->has_work) return run_work(*state_, std::move(first));
  if (!state_->all.empty()) return first;
  state_->done.wait(false, std::memory_order_acquire);
  return state_->error;
}

std::exception_ptr Ticket::run_work(State& state, std::exception_ptr error) noexcept {
  std::call_once(state.run, [&] {
    try {
      if (!error) state.work();
    } catch (...) {
      error = std::current_exception();
    }
    state.work = nullptr;
    state.error = std::move(error);
    state.ended = now_ns();
    state.done.store(true, std::memory_order_release);
  });
  return state.error;
}

Nanos Ticket::began() const noexcept {
  if (!state_ || !done()) return 0;
  Nanos first = state_->began;
  for (const Ticket& ticket : state_->all) {
    const Nanos began = ticket.began();
    if (began != 0 && (first == 0 || began < first)) first = began;
  }
  return first;
}

Nanos Ticket::ended() const noexcept {
  if (!state_ || !done()) return 0;
  Nanos last = state_->ended;
  for (const Ticket& ticket : state_->all) last = std::max(last, ticket.ended());
  return last;
}

Ticket Ticket::then(std::function<void()> work) const {
  auto state = std::make_shared<State>();
  state->all = {*this};
  state->work = std::move(work);
  state->has_work = true;
  return Ticket(std::move(state));
}

Ticket Ticket::all(std::vector<Ticket> tickets) {
  if (tickets.empty()) return {};
  if (tickets.size() == 1) return tickets.front();
  auto state = std::make_shared<State>();
  state->all = std::move(tickets);
  return Ticket(std::move(state));
}

void Ticket::wait() const {
  if (auto error = wait_error()) std::rethrow_exception(error);
}

TicketSource::TicketSource(std::shared_ptr<void> keep) : state_(std::make_shared<Ticket::State>()) {
  state_->keep = std::move(keep);
}

TicketSource::~TicketSource() {
  if (state_) {
    fail(std::make_exception_ptr(Error(Errc::kLogic, "work was dropped before it was finished")));
  }
}

void TicketSource::finish(Nanos at) noexcept {
  fail(nullptr, at);
}

void TicketSource::fail(std::exception_ptr error, Nanos at) noexcept {
  const auto state = std::exchange(state_, nullptr);
  if (!state) return;
  state->error = std::move(error);
  state->ended = at;
  state->keep.reset();
  state->done.store(true, std::memory_order_release);
  state->done.notify_all();
}

}  // namespace sluice
