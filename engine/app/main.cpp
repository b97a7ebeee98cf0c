#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "engine/app/commands.h"
#include "engine/app/completion.h"
#include "engine/app/environment.h"
#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/base/report.h"
#include "engine/base/units.h"
#include "engine/config/nearest.h"
#include "engine/config/value.h"
#include "engine/tensor/process.h"

namespace {

namespace cli = sluice::app;

struct Arguments {
  std::string file;
  std::vector<std::string> overrides;
  cli::TrainFlags train_flags;
  std::int64_t first = 0;
  std::int64_t count = 4;
  std::string shell;
  std::string model;
  std::vector<std::string> train;
  std::vector<std::string> valid;
  std::string out;
  std::string dtype = "bf16";
  std::string shard_size = "5GiB";
  int code = 0;  // of the process, as the verb that ran has it
};

void add_file(CLI::App& verb, Arguments& arguments) {
  verb.add_option("FILE", arguments.file, "the run file (docs/config.md)")->required();
  verb.add_option("KEY=VALUE", arguments.overrides,
                  "values that replace the file's, as train.steps=50");
}

void examples(CLI::App& verb, const std::vector<std::string>& lines) {
  verb.footer(fmt::format("Examples:\n  {}", fmt::join(lines, "\n  ")));
}

void add_out(CLI::App& verb, Arguments& arguments) {
  verb.add_option("-o", arguments.out, "a file to write, which must not exist; else it is printed");
}

/// Each verb runs when it has been parsed.
void add_config(CLI::App& app, Arguments& arguments) {
  CLI::App* config = app.add_subcommand("config", "write, check and look at run files");
  config->require_subcommand(1);
  CLI::App* show = config->add_subcommand("show", "every value of a run");
  add_file(*show, arguments);
  examples(*show, {"sluice config show run.yaml", "sluice config show run.yaml train.steps=50"});
  show->callback([&] { cli::show_config(arguments.file, arguments.overrides); });
  CLI::App* validate = config->add_subcommand(
      "validate",
      "check a run file, its model and its data, without measuring the machine: whether it fits is "
      "said by train --dry-run");
  add_file(*validate, arguments);
  examples(*validate, {"sluice config validate run.yaml",
                       "sluice config validate run.yaml model.path=../llama data.train=more.bin"});
  validate->callback([&] { cli::validate_config(arguments.file, arguments.overrides); });
  CLI::App* init = config->add_subcommand("init", "a commented run file to begin with");
  init->add_option("--model", arguments.model, "a Hugging Face folder, or a config.json alone")
      ->required();
  init->add_option("--data", arguments.train, "files to train on")->required();
  init->add_option("--valid", arguments.valid, "files to evaluate on");
  add_out(*init, arguments);
  examples(*init,
           {"sluice config init --model llama --data notes.txt -o run.yaml",
            "sluice config init --model llama/config.json --data a.bin b.bin --valid c.bin"});
  init->callback(
      [&] { cli::init_config(arguments.model, arguments.train, arguments.valid, arguments.out); });
  CLI::App* deepspeed = config->add_subcommand(
      "import-deepspeed", "a run file from DeepSpeed's JSON (docs/deepspeed.md)");
  deepspeed->add_option("FILE", arguments.file, "the JSON file")->required();
  add_out(*deepspeed, arguments);
  examples(*deepspeed, {"sluice config import-deepspeed ds_config.json -o run.yaml",
                        "sluice train run.yaml model.path=llama data.train=notes.txt"});
  deepspeed->callback([&] { cli::import_deepspeed(arguments.file, arguments.out); });
  CLI::App* schema = config->add_subcommand("schema", "JSON Schema of the run file, for editors");
  examples(*schema, {"sluice config schema >run.schema.json"});
  schema->callback(cli::print_schema);
  CLI::App* reference = config->add_subcommand("reference", "every key, as docs/config.md");
  examples(*reference, {"sluice config reference | less"});
  reference->callback(cli::print_reference);
  examples(*config, {"sluice config init --model llama --data notes.txt -o run.yaml"});
}

/// Prints its script when it has been parsed.
void add_completion(CLI::App& app, std::string& shell) {
  CLI::App* verb = app.add_subcommand("completion", "a script that completes what you type");
  verb->add_option("SHELL", shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  examples(*verb, {"source <(sluice completion bash)", "source <(sluice completion zsh)"});
  verb->callback([&] {
    using sluice::app::Shell;
    fmt::print("{}", completion(app, shell == "zsh" ? Shell::kZsh : Shell::kBash));
  });
}

/// A verb that the script ./sluice keeps for itself: it stands here for --help and completion.
void add_of_script(CLI::App& app, const char* name, const char* what,
                   const std::vector<std::string>& shown) {
  CLI::App* verb = app.add_subcommand(name, what);
  verb->allow_extras();
  examples(*verb, shown);
  verb->callback([name] {
    throw sluice::Error(
        sluice::Errc::kConfig,
        fmt::format("'{}' belongs to the script ./sluice in the repository's folder", name));
  });
}

void add_eval(CLI::App& app, Arguments& arguments) {
  CLI::App* eval = app.add_subcommand(
      "eval", "the loss of a run's first weights on data.valid, without training");
  add_file(*eval, arguments);
  examples(*eval, {"sluice eval run.yaml eval.batches=1000",
                   "sluice eval run.yaml model.path=runs/chat/final"});
  eval->callback([&] { cli::evaluate(arguments.file, arguments.overrides); });
}

/// As checkpoint.shard_size.
sluice::Bytes shard_size_of(const std::string& text) {
  using sluice::operator""_MiB;
  const sluice::Bytes size = sluice::parse_bytes(text);
  SLUICE_CHECK(size >= 1_MiB, kConfig,
               fmt::format("--shard-size {}: files of at least 1MiB are made", text));
  return size;
}

void add_export(CLI::App& app, Arguments& arguments) {
  CLI::App* verb = app.add_subcommand(
      "export", "a model's folder, as final/ is one, of the weights of a checkpoint");
  verb->add_option("CHECKPOINT", arguments.file, "a checkpoint, or a run's folder: its newest one")
      ->required();
  verb->add_option("-o", arguments.out, "the folder to write, which must not exist")->required();
  verb->add_option("--dtype", arguments.dtype, "of the weights: bf16 (as it is left out) or fp32")
      ->check(CLI::IsMember({"bf16", "fp32"}));
  verb->add_option("--shard-size", arguments.shard_size,
                   "files of at most so much, 5GiB as it is left out; no tensor is cut");
  examples(*verb, {"sluice export runs/chat -o chat-now",
                   "sluice export runs/chat/checkpoints/step-500 --dtype fp32 -o chat-500"});
  verb->callback([&] {
    cli::export_weights(arguments.file, arguments.out,
                        {arguments.dtype == "fp32" ? sluice::DType::kF32 : sluice::DType::kBf16,
                         shard_size_of(arguments.shard_size)});
  });
}

void add_checkpoint(CLI::App& app, Arguments& arguments) {
  CLI::App* checkpoint =
      app.add_subcommand("checkpoint", "look at checkpoints of runs (docs/checkpoints.md)");
  checkpoint->require_subcommand(1);
  CLI::App* list = checkpoint->add_subcommand("list", "those of a run, the newest first");
  list->add_option("RUN", arguments.file, "a run's folder")->required();
  examples(*list, {"sluice checkpoint list runs/chat"});
  list->callback([&] { cli::list_checkpoints(arguments.file); });
  CLI::App* verify = checkpoint->add_subcommand(
      "verify", "read every byte and check it; exit code 5 where one is not as it was written");
  verify->add_option("CHECKPOINT", arguments.file, "a checkpoint, or a run's folder: all of it")
      ->required();
  examples(*verify, {"sluice checkpoint verify runs/chat",
                     "sluice checkpoint verify runs/chat/checkpoints/step-500"});
  verify->callback([&] { arguments.code = cli::verify_checkpoints(arguments.file); });
  CLI::App* show = checkpoint->add_subcommand(
      "show", "position, settings, tensors and records of one, and what it goes on with");
  show->add_option("CHECKPOINT", arguments.file, "a checkpoint, or a run's folder: its newest one")
      ->required();
  examples(*show, {"sluice checkpoint show runs/chat | less"});
  show->callback([&] { cli::show_checkpoint(arguments.file); });
  examples(*checkpoint, {"sluice checkpoint list runs/chat", "sluice checkpoint verify runs/chat"});
}

void add_doctor(CLI::App& app, Arguments& arguments) {
  CLI::App* doctor = app.add_subcommand(
      "doctor", "what this machine gives a run, what it withholds, and what to change");
  doctor->add_option("FILE", arguments.file, "the run file, whose folders are looked at too");
  doctor->add_option("KEY=VALUE", arguments.overrides, "values that replace the file's");
  examples(*doctor, {"sluice doctor", "sluice doctor run.yaml"});
  doctor->callback([&] { arguments.code = cli::doctor(arguments.file, arguments.overrides); });
}

void add_data(CLI::App& app, Arguments& arguments) {
  CLI::App* data = app.add_subcommand("data", "look at what a run trains on");
  data->require_subcommand(1);
  add_of_script(*data, "tokenize", "make a token set of text, chats, ... (docs/data.md)",
                {"./sluice data tokenize chat.jsonl --model llama -o chat"});
  add_of_script(*data, "inspect", "show samples as text, what counts marked",
                {"./sluice data inspect run.yaml --samples 3"});
  CLI::App* samples = data->add_subcommand(
      "samples", "samples as lines of JSON; `./sluice data inspect` shows them as text");
  add_file(*samples, arguments);
  samples->add_option("--from", arguments.first, "the first one, from 0");
  samples->add_option("--samples", arguments.count, "how many");
  examples(*samples, {"sluice data samples run.yaml --samples 2"});
  examples(*data, {"sluice data samples run.yaml",
                   "./sluice data tokenize chat.jsonl --model llama -o chat",
                   "./sluice data inspect run.yaml"});
  samples->callback([&] {
    cli::print_samples(arguments.file, arguments.overrides, arguments.first, arguments.count);
  });
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// `app` is the last verb that was understood.
std::string complaint(const CLI::App& app, const CLI::ParseError& e) {
  const std::vector<std::string> verbs = verbs_of(app);
  const std::vector<std::string> surplus = app.remaining();
  if (surplus.empty()) {
    return verbs.empty() ? e.what() : fmt::format("no verb; there are {}", fmt::join(verbs, ", "));
  }
  const std::string& word = surplus.front();
  const bool option = word.starts_with('-');
  const std::vector<std::string> known = option ? options_of(app) : verbs;
  const auto close = sluice::config::nearest(word, known);
  return fmt::format("no {} '{}'{}",
                     option          ? "option"
                     : verbs.empty() ? "argument"
                                     : "verb",
                     sluice::config::shown(word),
                     close           ? fmt::format("; did you mean '{}'?", *close)
                     : known.empty() ? " is taken"
                                     : fmt::format("; there are {}", fmt::join(known, ", ")));
}

[[noreturn]] void refuse(const CLI::App& app, const CLI::ParseError& e) {
  const CLI::App* verb = &app;
  std::string path = "sluice";
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().front();
    path += " " + verb->get_name();
  }
  throw sluice::Error(sluice::Errc::kConfig,
                      fmt::format("{} ({} --help)", complaint(*verb, e), path));
}

int run(int argc, char** argv) {
  CLI::App app{"sluice trains language models that are too big for the machine"};
  app.require_subcommand(1);
  app.set_version_flag("--version", SLUICE_VERSION);
  Arguments arguments;

  CLI::App* train = app.add_subcommand("train", "train the model that a run file describes");
  add_file(*train, arguments);
  train->add_flag("--dry-run", arguments.train_flags.dry_run,
                  "say whether and how it fits, and stop");
  train->add_flag("--change", arguments.train_flags.change,
                  "go on from a checkpoint although its steps rest on other numbers");
  examples(*train, {"sluice train run.yaml", "sluice train run.yaml --dry-run",
                    "sluice train run.yaml train.steps=50 'data.train=[a.txt, b.txt]'",
                    "sluice train run.yaml train.resume=must"});

  add_eval(app, arguments);
  add_export(app, arguments);
  add_checkpoint(app, arguments);
  add_doctor(app, arguments);
  add_config(app, arguments);
  add_data(app, arguments);
  add_completion(app, arguments.shell);

  add_of_script(app, "test", "run the tests, as ./sluice test [CTEST ARGUMENTS]",
                {"./sluice test", "./sluice test -R config"});
  add_of_script(app, "bench", "measure drives and memory, as ./sluice bench nvme PATH (README.md)",
                {"./sluice bench nvme /mnt/nvme0", "./sluice bench --help"});

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help, --version
    refuse(app, e);
  }
  if (train->parsed()) {
    arguments.code = cli::train(arguments.file, arguments.overrides, arguments.train_flags);
    // What a run prints is in its log too.
    if (!arguments.train_flags.dry_run) return arguments.code;
  }
  sluice::require_printed();
  return arguments.code;
}

}  // namespace

int main(int argc, char** argv) {
  sluice::tensor::require_process_environment();
  sluice::app::prepare_process();
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    const int code =
        sluice::report(e,
                       "lower tiers.cpu.limit, train.train_micro_batch_size_per_gpu or "
                       "data.seq_len, or use a smaller model");
    if (code == sluice::exit_code(sluice::Errc::kEnv)) {
      fmt::print(stderr, "`sluice doctor` says what this machine has, and what to change\n");
    }
    return code;
  }
}
