#include "engine/train/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/stacks.h"
#include "engine/base/threads.h"
#include "engine/train/op_bytes.h"

namespace sluice::train {

using executor::Running;

namespace {

constexpr Nanos nanos(std::chrono::nanoseconds n) {
  return n.count();
}

constexpr auto kBetweenLooks = std::chrono::seconds(1);
/// What a look that comes late counts as.
constexpr Nanos kMostBetweenLooks = nanos(std::chrono::seconds(3));

constexpr Nanos kSteps = 20;
constexpr double kLongestForecast = 1e8;
constexpr Nanos kLeast = nanos(std::chrono::minutes(10));

std::optional<Nanos> given_in(const WatchdogOptions& options) {
  if (!options.step) return std::nullopt;
  return nanos(*options.step);
}

/// "'read state segment 3 chunk 1' of the program 'step', step 12"
std::string name_of(const Running& op) {
  const Tag tag = Tag::unpack(op.tag);
  std::string text =
      fmt::format("'{}' of the program '{}'", describe(op.context().op), op.program->name());
  if (tag.kind == Tag::Kind::kStep) text += fmt::format(", step {}", tag.step + 1);
  return text;
}

std::string verdict(const Patience::Overdue& hung, Nanos limit, const memory::SlotMemory& memory) {
  const auto& [op, ran] = hung;
  const std::string place = drive_place(op.context(), memory);
  return fmt::format(
      "the op {} has run for {:.0f} s on the lane {}{}{}; watchdog.step allows {:.0f} s: see the "
      "stacks below and `dmesg`, or raise it where the machine is only slow",
      name_of(op), to_seconds(ran), op.lane, place.empty() ? "" : ", ", place, to_seconds(limit));
}

std::string list(const std::vector<Running>& running, Nanos now) {
  std::string text = "what runs:";
  for (const Running& op : running) {
    text += fmt::format("\n  {}: {}, {:.0f} s", op.lane, name_of(op), to_seconds(now - op.since));
  }
  return text;
}

}  // namespace

Patience::Patience(const WatchdogOptions& options, double forecast_s, Nanos now)
    : given_(given_in(options)),
      longest_step_(static_cast<Nanos>(std::min(forecast_s, kLongestForecast) * 1e9)),
      last_look_(now) {}

Nanos Patience::limit() const {
  return given_.value_or(std::max(kLeast, kSteps * longest_step_));
}

void Patience::pass(Nanos now) {
  awake_ += std::min(now - last_look_, kMostBetweenLooks);
  last_look_ = now;
}

std::optional<Patience::Overdue> Patience::look(Nanos now, const std::vector<Running>& running) {
  pass(now);
  std::map<prefetch::OpRef, Nanos> began;
  std::optional<Overdue> longest;
  for (const Running& op : running) {
    const auto known = began_.find(op.ref);
    const Nanos at = known != began_.end() ? known->second
                                           : awake_ - std::min(now - op.since, kMostBetweenLooks);
    began[op.ref] = at;
    const Nanos ran = awake_ - at;
    if (ran > limit() && (!longest || ran > longest->ran)) longest = {op, ran};
  }
  began_ = std::move(began);
  return longest;
}

void Patience::step_took(Nanos now, Nanos took) {
  pass(now);
  longest_step_ = std::max(longest_step_, std::min(took, awake_ - step_began_));
  step_began_ = awake_;
}

Watchdog::Watchdog(const WatchdogOptions& options, double forecast_s,
                   const executor::Driver& driver, const memory::SlotMemory& memory,
                   std::function<void(const Error&)> on_hang)
    : driver_(driver),
      memory_(memory),
      on_hang_(std::move(on_hang)),
      patience_(options, forecast_s, now_ns()) {
  try {
    thread_ = std::jthread([this] { watch(); });
  } catch (const std::system_error& e) {
    throw Error(Errc::kEnv,
                fmt::format("no thread for the watchdog: {}; raise `ulimit -u`", e.what()));
  }
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ends_.notify_one();
}

void Watchdog::step_took(Nanos took) {
  const std::lock_guard lock(mutex_);
  patience_.step_took(now_ns(), took);
}

void Watchdog::watch() {
  name_this_thread("watchdog");
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kBetweenLooks, [&] { return ending_; })) {
    if (const auto hang = look()) {
      lock.unlock();
      on_hang_(*hang);
      return;
    }
  }
}

std::optional<Error> Watchdog::look() {
  try {
    const std::vector<Running> running = driver_.running();
    const Nanos now = now_ns();
    const auto overdue = patience_.look(now, running);
    if (!overdue) return std::nullopt;
    Error hang(Errc::kWatchdog, verdict(*overdue, patience_.limit(), memory_));
    log::status("");
    log::error(hang.what());
    log::error(list(running, now) + "\nstacks:\n" + stacks_of_threads());
    return hang;
  } catch (const std::bad_alloc&) {
    return std::nullopt;  // no reason to end a run: at the next look there may be memory again
  }
}

}  // namespace sluice::train
