#include "engine/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace sluice::log {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> kLogger = [] {
    auto sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
    auto made = std::make_shared<spdlog::logger>("sluice", sink);
    made->set_pattern("%v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *kLogger;
}

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

}  // namespace

void set_level(Level level) {
  logger().set_level(to_spdlog(level));
}

void to_file(const std::string& path) {
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
  sink->set_pattern("%Y-%m-%d %H:%M:%S %L %v");
  logger().sinks().push_back(std::move(sink));
}

void write(Level level, const std::string& line) {
  switch (level) {
    case Level::kWarning:
      logger().warn("warning: {}", line);
      return;
    case Level::kError:
      logger().error("error: {}", line);
      return;
    default:
      logger().log(to_spdlog(level), line);
  }
}

}  // namespace sluice::log
