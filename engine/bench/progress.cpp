#include "engine/bench/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "engine/base/log.h"
#include "engine/bench/table.h"

namespace sluice::bench {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr double kBetweenLines = 10;  // seconds

/// One less than the terminal has: in the last column some terminals go to the next line.
std::size_t columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (known ? size.ws_col : kUsualColumns) - 1U;
}

}  // namespace

Talk usual_talk() {
  const char* const terminal = std::getenv("TERM");
  const bool able =
      ::isatty(STDOUT_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
  return able ? Talk::kBar : Talk::kLines;
}

void Progress::begin(const std::string& what, double seconds) {
  what_ = what;
  seconds_ = seconds;
  begin_ = now_ns();
  last_ = begin_;
  if (talk_ == Talk::kLines) {
    log::info(fmt::format("{}, about {:.0f} s", what, seconds));
  } else {
    show("");
  }
}

void Progress::measured(const Measured& one) {
  now(fmt::format("{}: {}", text_of(one.point), rates_text(one.read_rate, one.write_rate)));
}

void Progress::now(const std::string& text) {
  if (talk_ == Talk::kBar) return show(text);
  if (to_seconds(now_ns() - last_) < kBetweenLines) return;
  last_ = now_ns();
  show(text);
}

void Progress::show(const std::string& text) {
  if (talk_ == Talk::kNone) return;
  const double over = to_seconds(now_ns() - begin_);
  const double left = std::max(0.0, seconds_ - over);
  const std::string line =
      fmt::format("{} {:3.0f}%, {:.0f} s left{}{}", what_,
                  seconds_ > 0 ? std::min(100.0, 100 * over / seconds_) : 100.0, left,
                  text.empty() ? "" : " | ", text);
  if (talk_ == Talk::kBar) {
    log::status(line.substr(0, columns()));
  } else {
    log::info(line);
  }
}

void Progress::clear() {
  if (talk_ == Talk::kBar) log::status("");
}

}  // namespace sluice::bench
