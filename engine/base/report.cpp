#include "engine/base/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/log.h"

namespace sluice {

int report(const std::exception& error, std::string_view no_memory) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    log::error(text_of(*known));
    return exit_code(known->code);
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    log::error(fmt::format("this machine has no memory left; {}", no_memory));
    return exit_code(Errc::kEnv);
  }
  log::error(fmt::format("{} (internal error; please report it)", error.what()));
  return exit_code(Errc::kLogic);
}

void end_process(const Error& error) noexcept {
  std::_Exit(exit_code(error.code));
}

void require_printed() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  // What was printed before may have failed already: then nobody knows why any more.
  const std::string why = errno == 0 ? "" : ": " + std::generic_category().message(errno);
  throw Error(Errc::kIo, "the standard output cannot be written" + why);
}

}  // namespace sluice
