/// Lines for people: to the terminal, and to `train.log` once a run has a folder.
///
/// Thread  any
#pragma once

#include <string>

namespace sluice::log {

enum class Level { kDebug, kInfo, kWarning, kError };

void set_level(Level level);
/// From now on lines also go to this file (appended).
void to_file(const std::string& path);
void write(Level level, const std::string& line);

inline void debug(const std::string& line) {
  write(Level::kDebug, line);
}
inline void info(const std::string& line) {
  write(Level::kInfo, line);
}
inline void warning(const std::string& line) {
  write(Level::kWarning, line);
}
inline void error(const std::string& line) {
  write(Level::kError, line);
}

}  // namespace sluice::log
