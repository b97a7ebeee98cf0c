#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/base/error.h"
#include "engine/config/deepspeed.h"
#include "engine/config/document.h"
#include "engine/config/load.h"
#include "engine/config/write.h"

namespace sluice::app {
namespace {

/// To the standard output where no file is named. What is there stays as it is.
void write_new(const std::string& file, const std::string& text) {
  if (file.empty()) {
    fmt::print("{}", text);
    return;
  }
  const auto why = [] { return std::generic_category().message(errno); };
  std::FILE* out = std::fopen(file.c_str(), "wx");
  SLUICE_CHECK(out != nullptr || errno != EEXIST, kConfig,
               fmt::format("{} exists, and no file is overwritten: choose another -o", file));
  SLUICE_CHECK(out != nullptr, kConfig, fmt::format("cannot create {}: {}", file, why()));
  const bool written = std::fwrite(text.data(), 1, text.size(), out) == text.size();
  SLUICE_CHECK(std::fclose(out) == 0 && written, kIo,
               fmt::format("cannot write {}: {}", file, why()));
}

}  // namespace

void show_config(const std::string& file, const std::vector<std::string>& overrides) {
  fmt::print("{}", config::to_yaml(config::load(file, overrides, environment())));
}

void print_schema() {
  fmt::print("{}\n", config::schema());
}

void print_reference() {
  fmt::print("{}", config::reference_markdown());
}

void import_deepspeed(const std::string& file, const std::string& out) {
  write_new(out, config::import_deepspeed(config::read_document(file), file).yaml);
}

}  // namespace sluice::app
