#include <fmt/core.h>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/config/load.h"
#include "engine/config/write.h"

namespace sluice::app {

int show_config(const std::string& file, const std::vector<std::string>& overrides) {
  fmt::print("{}", config::to_yaml(config::load(file, overrides, environment())));
  return 0;
}

int print_schema() {
  fmt::print("{}\n", config::schema());
  return 0;
}

int print_reference() {
  fmt::print("{}", config::reference_markdown());
  return 0;
}

}  // namespace sluice::app
