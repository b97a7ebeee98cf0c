/// The verbs of the command line. Each returns the process exit code, or throws sluice::Error.
#pragma once

#include <string>
#include <vector>

namespace sluice::app {

enum class DryRun { kNo, kYes };

/// `sluice train FILE [key=value...] [--dry-run]`
int train(const std::string& file, const std::vector<std::string>& overrides, DryRun dry_run);

/// `sluice config show FILE [key=value...]`: every value of the run, defaults included.
int show_config(const std::string& file, const std::vector<std::string>& overrides);
/// `sluice config schema`: JSON Schema of the run file.
int print_schema();
/// `sluice config reference`: docs/config.md.
int print_reference();

}  // namespace sluice::app
