/// What is said while a bench runs: a line that is rewritten in place on a terminal, else a line
/// now and then.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/clock.h"
#include "engine/bench/point.h"

namespace sluice::bench {

enum class Talk : std::uint8_t {
  kBar,    ///< for a terminal
  kLines,  ///< for a file
  kNone
};

/// kBar where stdout is a terminal that can rewrite a line.
Talk usual_talk();

/// Thread  one
class Progress {
 public:
  explicit Progress(Talk talk) : talk_(talk) {}
  /// Takes the bar away.
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// What is going on, for about `seconds`.
  void begin(const std::string& what, double seconds);
  void measured(const Measured& one);
  /// Of anything else, as "2.1 GB/s".
  void now(const std::string& text);
  /// Before something else is printed.
  void clear();

 private:
  void show(const std::string& text);

  const Talk talk_;
  std::string what_;
  double seconds_ = 0;
  Nanos begin_ = 0;
  Nanos last_ = 0;  // line
};

}  // namespace sluice::bench
