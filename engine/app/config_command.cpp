#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <system_error>

#include "engine/app/commands.h"
#include "engine/app/environment.h"
#include "engine/app/job_of.h"
#include "engine/app/resume.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/config/deepspeed.h"
#include "engine/config/document.h"
#include "engine/config/first_run.h"
#include "engine/config/load.h"
#include "engine/config/write.h"
#include "engine/train/session.h"

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

constexpr std::int64_t kUsualMicroBatches = 8;  // per step, of one sample each

std::string samples_of(const data::Dataset& data) {
  return fmt::format("{} samples of {} tokens", data.samples(), data.seq_len());
}

}  // namespace

void validate_config(const std::string& file, const std::vector<std::string>& overrides) {
  const config::Config read = config::load(file, overrides, environment());
  // As `train` would have it, which may go on in a folder that is there.
  const config::Config config = choose_start(read, file, {}, Take::kNo).config;
  log::set_level(config.logging.level);
  for (const std::string& warning : config.warnings) log::warning(warning);
  const train::Job job = job_of(config, config.output_dir);
  const train::Inputs inputs = train::read_inputs(job);
  fmt::print("ok\nmodel: {} parameters, {}\ndata: {} to train on, {} to evaluate\n",
             inputs.setup.model->parameters(),
             job.weights.empty() ? fmt::format("drawn from seed {}", job.seed) : job.weights,
             samples_of(inputs.train), inputs.valid ? samples_of(*inputs.valid) : "none");
  fmt::print("steps: {} of {} samples\n", inputs.steps,
             inputs.setup.micro_batches * inputs.setup.micro_batch_size);
}

void init_config(const std::string& model, const std::vector<std::string>& train,
                 const std::vector<std::string>& valid, const std::string& out) {
  config::Config named;
  named.model.path = model;
  const train::Job job = job_of(named, "");
  config::FirstRun run{.model = model,
                       .pretrained = !job.weights.empty(),
                       .max_positions = job.decoder.max_positions,
                       .train = train,
                       .valid = valid};
  const config::Config smallest = config::from_text(config::first_run_file(run));
  const train::Inputs inputs = train::read_inputs(job_of(smallest, smallest.output_dir));
  run.micro_batches = std::min(kUsualMicroBatches, inputs.train.samples());
  write_new(out, config::first_run_file(run));
}

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
  const config::DeepSpeedImport import =
      config::import_deepspeed(config::read_document(file), file);
  for (const std::string& note : import.notes) log::warning(note);
  write_new(out, import.yaml);
}

}  // namespace sluice::app
