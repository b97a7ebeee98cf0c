#include "engine/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace sluice::log {
namespace {

// Lines kept for a file that may never come: enough for any start.
constexpr std::size_t kMostEarlyLines = 1000;

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger make_logger(spdlog::sink_ptr sink, const std::string& pattern) {
  spdlog::logger logger("sluice", std::move(sink));
  logger.set_pattern(pattern);
  logger.set_level(spdlog::level::debug);
  logger.flush_on(spdlog::level::info);
  return logger;
}

/// Of UTF-8; what is no UTF-8 counts as well, or a bit less.
std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

void append_wrapped(std::string& out, std::string_view line) {
  std::size_t used = columns(line);
  if (used <= kColumns) {
    out += line;
    return;
  }
  used = 0;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    const bool fits = used + 1 + columns(word) <= kColumns;
    if (used > 0) out += fits ? ' ' : '\n';
    out += word;
    used = columns(word) + (used > 0 && fits ? used + 1 : 0);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
}

class Log {
 public:
  void set_level(Level level) {
    const std::lock_guard lock(mutex_);
    lowest_ = level;
  }

  void to_file(const std::string& path) {
    const std::lock_guard lock(mutex_);
    try {
      file_ = std::make_unique<spdlog::logger>(make_logger(
          std::make_shared<spdlog::sinks::basic_file_sink_st>(path), "%Y-%m-%d %H:%M:%S %L %v"));
    } catch (const spdlog::spdlog_ex& e) {
      throw Error(Errc::kIo, fmt::format("cannot write {}: {}", path, e.what()));
    }
    for (const auto& [level, line] : early_) file_->log(to_spdlog(level), line);
    early_.clear();
  }

  void write(Level level, const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (level < lowest_) return;
    const bool loud = level >= Level::kWarning;
    hide_status();
    (loud ? stderr_ : stdout_).log(to_spdlog(level), loud ? wrapped(line) : line);
    show_status();
    if (file_) {
      file_->log(to_spdlog(level), line);
    } else if (loud && early_.size() < kMostEarlyLines) {
      early_.emplace_back(level, line);
    }
  }

  void to_file_only(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (file_ && lowest_ <= Level::kInfo) file_->info(line);
  }

  void status(const std::string& line) {
    const std::lock_guard lock(mutex_);
    hide_status();
    status_ = line;
    show_status();
  }

 private:
  void hide_status() const {
    if (status_.empty()) return;
    std::fputs("\r\x1b[K", stdout);  // to the first column; clear the line
    std::fflush(stdout);
  }
  void show_status() const {
    if (status_.empty()) return;
    std::fputs(status_.c_str(), stdout);
    std::fflush(stdout);
  }

  std::mutex mutex_;
  Level lowest_ = Level::kInfo;
  spdlog::logger stdout_ = make_logger(std::make_shared<spdlog::sinks::stdout_sink_st>(), "%v");
  spdlog::logger stderr_ = make_logger(std::make_shared<spdlog::sinks::stderr_sink_st>(), "%v");
  std::unique_ptr<spdlog::logger> file_;
  std::vector<std::pair<Level, std::string>> early_;  // said before there was a file
  std::string status_;
};

Log& the_log() {
  static Log log;
  return log;
}

}  // namespace

std::string wrapped(std::string_view text) {
  std::string out;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    append_wrapped(out, text.substr(from, end - from));
    if (end < text.size()) out += '\n';
    from = end + 1;
  }
  return out;
}

void set_level(Level level) {
  the_log().set_level(level);
}

void to_file(const std::string& path) {
  the_log().to_file(path);
}

void write(Level level, const std::string& line) {
  switch (level) {
    case Level::kWarning:
      return the_log().write(level, "warning: " + line);
    case Level::kError:
      return the_log().write(level, "error: " + line);
    default:
      return the_log().write(level, line);
  }
}

void to_file_only(const std::string& line) {
  the_log().to_file_only(line);
}

void status(const std::string& line) {
  the_log().status(line);
}

}  // namespace sluice::log
