/// The one exception type. Callers branch on the code; people read the message.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace sluice {

enum class Errc {
  kConfig,      ///< the run file, or what it names, is wrong
  kBudget,      ///< does not fit a tier
  kEnv,         ///< the machine lacks something
  kIo,          ///< a device or file failed
  kCheckpoint,  ///< a checkpoint is damaged or does not match
  kNonFinite,   ///< the loss or the gradient is not a number
  kWatchdog,    ///< something took longer than allowed
  kDevice,      ///< the accelerator failed
  kComm,        ///< ranks could not talk
  kFormat,      ///< a file is not what it claims to be
  kLogic,       ///< sluice broke a promise of its own
};

/// The process exit code of an error: 2 config, 3 does not fit or environment, 4 I/O, 5 checkpoint,
/// 6 non-finite, 7 watchdog, 1 for what should never happen.
int exit_code(Errc code) noexcept;

/// Message: what was asked, what there was, what to change.
class Error : public std::runtime_error {
 public:
  Error(Errc c, const std::string& message,
        std::source_location at = std::source_location::current())
      : std::runtime_error(message), code(c), where(at) {}

  Errc code;
  std::source_location where;
};

/// What people read: the message, and of kLogic also the place in the source, relative to the
/// repository, so that they can report it.
std::string text_of(const Error& error);

}  // namespace sluice

/// Throws Error when `cond` is false; `msg` is built only then.
#define SLUICE_CHECK(cond, code, msg)                                \
  do {                                                               \
    if (!(cond)) throw ::sluice::Error(::sluice::Errc::code, (msg)); \
  } while (0)
