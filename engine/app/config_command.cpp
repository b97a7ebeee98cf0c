#include <fmt/core.h>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/config/load.h"
#include "engine/config/write.h"

namespace sluice::app {

void show_config(const std::string& file, const std::vector<std::string>& overrides) {
  fmt::print("{}", config::to_yaml(config::load(file, overrides, environment())));
}

void print_schema() {
  fmt::print("{}\n", config::schema());
}

void print_reference() {
  fmt::print("{}", config::reference_markdown());
}

}  // namespace sluice::app
