#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/tensor/process.h"

namespace {

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
  bool dry_run = false;
};

void add_file(CLI::App& verb, Arguments& arguments) {
  verb.add_option("FILE", arguments.file, "the run file (docs/config.md)")->required();
  verb.add_option("KEY=VALUE", arguments.overrides,
                  "values that replace the file's, as train.steps=50");
}

int run(int argc, char** argv) {
  CLI::App app{"sluice trains language models that are too big for the machine"};
  app.require_subcommand(1);
  app.set_version_flag("--version", SLUICE_VERSION);
  Arguments arguments;

  CLI::App* train = app.add_subcommand("train", "train the model that a run file describes");
  add_file(*train, arguments);
  train->add_flag("--dry-run", arguments.dry_run, "say whether and how it fits, and stop");

  CLI::App* config = app.add_subcommand("config", "look at run files");
  config->require_subcommand(1);
  CLI::App* show = config->add_subcommand("show", "every value of a run");
  add_file(*show, arguments);
  CLI::App* schema = config->add_subcommand("schema", "JSON Schema of the run file, for editors");
  CLI::App* reference = config->add_subcommand("reference", "every key, as docs/config.md");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : 2;
  }
  namespace cli = sluice::app;
  if (train->parsed()) {
    return cli::train(arguments.file, arguments.overrides,
                      arguments.dry_run ? cli::DryRun::kYes : cli::DryRun::kNo);
  }
  if (show->parsed()) return cli::show_config(arguments.file, arguments.overrides);
  if (schema->parsed()) return cli::print_schema();
  if (reference->parsed()) return cli::print_reference();
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  sluice::tensor::require_process_environment(argv);
  sluice::app::prepare_process();
  try {
    return run(argc, argv);
  } catch (const sluice::Error& e) {
    sluice::log::error(e.what());
    return sluice::exit_code(e.code);
  } catch (const std::bad_alloc&) {
    sluice::log::error(
        "this machine has no memory left for the run; lower tiers.cpu.limit, "
        "train.train_micro_batch_size_per_gpu or data.seq_len, or use a smaller model");
    return sluice::exit_code(sluice::Errc::kEnv);
  } catch (const std::exception& e) {
    sluice::log::error(e.what());
    return 1;
  }
}
