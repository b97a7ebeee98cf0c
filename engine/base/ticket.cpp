#include "engine/base/ticket.h"

#include <utility>

#include "engine/base/error.h"

namespace sluice {

bool Ticket::done() const noexcept {
  return !state_ || state_->done.load(std::memory_order_acquire);
}

std::exception_ptr Ticket::wait_error() const noexcept {
  if (!state_) return nullptr;
  state_->done.wait(false, std::memory_order_acquire);
  return state_->error;
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

void TicketSource::finish() noexcept {
  fail(nullptr);
}

void TicketSource::fail(std::exception_ptr error) noexcept {
  const auto state = std::exchange(state_, nullptr);
  if (!state) return;
  state->error = std::move(error);
  state->keep.reset();
  state->done.store(true, std::memory_order_release);
  state->done.notify_all();
}

}  // namespace sluice
