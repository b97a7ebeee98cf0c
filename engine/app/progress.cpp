#include "engine/app/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "engine/base/log.h"
#include "engine/data/step_line.h"

namespace sluice::app {
namespace {

constexpr std::size_t kUsualColumns = 80;

bool wants_bar(const config::LoggingOptions& options) {
  if (options.level > log::Level::kInfo) return false;
  if (options.progress != config::Progress::kAuto) {
    return options.progress == config::Progress::kTrue;
  }
  const char* const terminal = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && terminal != nullptr &&
         std::string_view(terminal) != "dumb";
}

/// One less than the terminal has: in the last column some terminals go to the next line.
std::size_t columns() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return (known ? size.ws_col : kUsualColumns) - 1U;
}

}  // namespace

Progress::Progress(const config::LoggingOptions& options)
    : log_every_(options.log_every), bar_(wants_bar(options)) {}

Progress::~Progress() {
  if (bar_) log::status("");
}

void Progress::step(const data::StepRecord& record) const {
  const bool special = record.valid_loss || record.skipped || record.step == record.steps;
  if (special || record.step % log_every_ == 0) {
    const std::string line = data::step_line(record);
    if (bar_ && !special) {
      log::to_file_only(line);
    } else {
      log::info(line);
    }
  }
  if (!bar_) return;
  log::status(record.step == record.steps ? "" : data::progress_line(record, columns()));
}

}  // namespace sluice::app
