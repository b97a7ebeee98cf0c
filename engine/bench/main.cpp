#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <string>

#include "engine/base/error.h"
#include "engine/base/report.h"
#include "engine/bench/nvme_command.h"

namespace {

void add_options(CLI::App& nvme, sluice::bench::NvmeArguments& arguments) {
  nvme.add_option("PATH", arguments.paths, "folders, on the drives to measure")->required();
  nvme.add_flag("--quick", arguments.quick, "about a minute for each drive (else five)");
  nvme.add_flag("--full", arguments.full, "about 20 minutes for each drive");
  nvme.add_flag("--steady", arguments.steady, "then write until the rate no longer falls");
  nvme.add_flag("--read-only", arguments.read_only,
                "write only what there must be to read: for a worn drive");
  nvme.add_option("--seconds", arguments.seconds, "for each drive, about")
      ->check(CLI::PositiveNumber);
  nvme.add_option("--file-size", arguments.file_size, "of the file that is used, as 1GiB");
  nvme.add_option("--max-write", arguments.max_write, "to each drive, as 64GiB");
  nvme.add_flag("--allow-ram", arguments.allow_ram, "take folders in memory, as tmpfs");
  nvme.add_flag("--all", arguments.all, "print every point, not only the best");
  nvme.add_flag("--quiet", arguments.quiet, "print the results alone");
  nvme.add_option("--json", arguments.json, "also write all runs to this file");
  sluice::bench::Uses& uses = arguments.uses;
  nvme.add_option("--html", uses.html, "also write a page to this file: rates by block and depth");
  nvme.add_flag("--compare-fio", uses.compare_fio,
                "then the best point beside fio, in turn (scripts/install.sh fio)");
  nvme.add_option("--write-config", uses.write_config,
                  "put the best values into this run file, and leave the rest of it as it is");
  nvme.add_option("--model", uses.model,
                  "what a step of a model of so many parameters takes, as 8B");
  nvme.add_option("--endurance", uses.endurance,
                  "of the drive, as 600TB: how long --model lets it last");
  nvme.add_option("--tflops", uses.tflops,
                  "that the machine computes: how many tokens --model needs to hide the drive")
      ->check(CLI::PositiveNumber);
}

int run(int argc, char** argv) {
  CLI::App app{"sluice bench measures what a run depends on", "sluice bench"};
  app.require_subcommand(1);
  sluice::bench::NvmeArguments arguments;
  CLI::App* nvme = app.add_subcommand("nvme", "how fast drives are, and the best values of aio:");
  add_options(*nvme, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    throw sluice::Error(sluice::Errc::kConfig,
                        fmt::format("{} (sluice bench {}--help)", e.what(),
                                    app.get_subcommands().empty() ? "" : "nvme "));
  }
  const int code = sluice::bench::nvme(arguments);
  sluice::require_printed();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // Files that grow beyond `ulimit -f` and readers that go away become errors.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    return sluice::report(e, "end something else first");
  }
}
