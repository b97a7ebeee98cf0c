/// Lines for people: to the terminal, and to `train.log` once a run has a folder. Warnings and
/// errors go to stderr, `wrapped`, the rest to stdout.
///
/// Thread  any
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::log {

enum class Level { kDebug, kInfo, kWarning, kError };

/// A line of a warning or an error on the terminal has at most this many characters.
inline constexpr std::size_t kColumns = 120;

/// `text` with its longer lines broken between words. A word that is too long stands alone, whole:
/// it is a path that somebody will want to copy.
std::string wrapped(std::string_view text);

void set_level(Level level);
/// From now on lines also go to this file (appended), first the warnings and errors that were said
/// before there was one. Throws kIo when it cannot be opened.
void to_file(const std::string& path);
void write(Level level, const std::string& line);
/// An info line for the file only.
void to_file_only(const std::string& line);
/// A line on the terminal that stays below all others until it is replaced; empty = none. No line
/// breaks, and no longer than the terminal is wide.
void status(const std::string& line);

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
