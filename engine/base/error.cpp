#include "engine/base/error.h"

#include <fmt/format.h>

#include <string_view>

namespace sluice {
namespace {

/// "engine/base/error.cpp:12": the compiler leaves the repository's folder out; a cache of its
/// objects that makes paths relative puts "../../" in front, of this file, too.
std::string place_of(const std::source_location& where) {
  constexpr std::string_view kThisFile = "engine/base/error.cpp";
  const std::string_view here = std::source_location::current().file_name();
  const std::string_view repository = here.substr(0, here.rfind(kThisFile));
  std::string_view file = where.file_name();
  if (file.starts_with(repository)) file.remove_prefix(repository.size());
  return fmt::format("{}:{}", file, where.line());
}

}  // namespace

int exit_code(Errc code) noexcept {
  switch (code) {
    case Errc::kConfig:
      return 2;
    case Errc::kBudget:
    case Errc::kEnv:
    case Errc::kDevice:
      return 3;
    case Errc::kIo:
    case Errc::kFormat:
      return 4;
    case Errc::kCheckpoint:
      return 5;
    case Errc::kNonFinite:
      return 6;
    case Errc::kWatchdog:
      return 7;
    case Errc::kComm:
    case Errc::kLogic:
      return 1;
  }
  return 1;
}

std::string text_of(const Error& error) {
  if (error.code != Errc::kLogic) return error.what();
  return fmt::format("{} (internal error at {}; please report it)", error.what(),
                     place_of(error.where));
}

}  // namespace sluice
