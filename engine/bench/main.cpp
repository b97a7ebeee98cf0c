#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>
#include <string>

#include "engine/base/error.h"
#include "engine/base/report.h"
#include "engine/bench/memory_command.h"
#include "engine/bench/nvme_command.h"

namespace {

/// CLI11's own would take what is no number, and name the largest double.
CLI::Validator between(double least, double most) {
  return {[=](const std::string& text) {
            double value = 0;
            const bool number = CLI::detail::lexical_cast(text, value);
            if (number && value >= least && value <= most) return std::string();
            return fmt::format("{} is no number from {} to {}", text.substr(0, 40), least, most);
          },
          "NUMBER"};
}

void add_options(CLI::App& nvme, sluice::bench::NvmeArguments& arguments) {
  nvme.add_option("PATH", arguments.paths, "folders, on the drives to measure")->required();
  nvme.add_flag("--quick", arguments.quick, "about a minute for each drive (else five)");
  nvme.add_flag("--full", arguments.full, "about 20 minutes for each drive");
  nvme.add_flag("--steady", arguments.steady, "then write until the rate no longer falls");
  nvme.add_flag("--read-only", arguments.read_only,
                "write only what there must be to read: for a worn drive");
  nvme.add_option("--seconds", arguments.seconds, "for each drive, about")
      ->check(between(1, 86400));
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
  nvme.add_option(
      "--endurance", uses.endurance,
      "of the drive, as 600TB (else what it says of itself): how long --model lets it last");
  nvme.add_option("--tflops", uses.tflops,
                  "that the machine computes: how many tokens --model needs to hide the drive")
      ->check(between(1e-3, 1e9));
}

void add_options(CLI::App& verb, sluice::bench::MemoryArguments& arguments) {
  verb.add_flag("--quick", arguments.quick,
                "fewer and shorter rounds; of adam the best instructions alone");
  verb.add_flag("--quiet", arguments.quiet, "print the results alone");
  verb.add_option("--json", arguments.json, "also write all runs to this file");
}

int run(int argc, char** argv) {
  CLI::App app{"sluice bench measures what a run depends on", "sluice bench"};
  app.require_subcommand(1);
  sluice::bench::NvmeArguments arguments;
  CLI::App* nvme = app.add_subcommand("nvme", "how fast drives are, and the best values of aio:");
  add_options(*nvme, arguments);
  sluice::bench::MemoryArguments memory;
  CLI::App* adam = app.add_subcommand(
      "adam", "how fast the optimizer updates a model in memory, beside the roof of its bytes");
  add_options(*adam, memory);
  adam->add_option("--parameters", memory.most,
                   "of the largest model, as 100M (else 1B, or what half of the memory holds)");
  adam->add_option("--dtype", memory.dtype, "of gradients and weights for compute: bf16 or fp32");
  CLI::App* copy = app.add_subcommand("copy", "how fast a run's copies to and from the device are");
  add_options(*copy, memory);
  copy->add_option("--size", memory.most, "of the largest buffer, as 64MiB (else 512MiB)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    throw sluice::Error(
        sluice::Errc::kConfig,
        fmt::format(
            "{} (sluice bench {}--help)", e.what(),
            app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " "));
  }
  const int code = adam->parsed()   ? sluice::bench::adam(memory)
                   : copy->parsed() ? sluice::bench::copy(memory)
                                    : sluice::bench::nvme(arguments);
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
