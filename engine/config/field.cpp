#include "engine/config/field.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/config/keys.h"
#include "engine/zero/options.h"

namespace sluice::config {
namespace {

void append(std::vector<Field>& all, std::vector<Field> more) {
  std::ranges::move(more, std::back_inserter(all));
}

constexpr std::int64_t kMostEpochs = 1'000'000;
/// The spans of more would take memory that no tier counts.
constexpr std::int64_t kMostStepsProfiled = 100;

std::vector<Field> run_fields() {
  using C = Config;
  using M = ModelOptions;
  using train::Execution;
  return {
      key("version", whole(1, 1), "The version of this format, which has only one so far",
          &C::version),
      key("name", or_auto(folder_name()),
          "The name of the run and of its folder, which must not exist yet. auto takes the run "
          "file's name, with a number behind it where that is taken",
          &C::name),
      key("output_dir", path(), "The folder that the run writes to", &C::output_dir),
      key("seed", integer<std::uint64_t>(0, INT64_MAX),
          "The seed from which the first weights and the order of the samples are drawn", &C::seed),
      key("execution",
          choice<Execution>(
              {{"overlapped", Execution::kOverlapped}, {"serial", Execution::kSerial}}),
          "overlapped runs computation, copies and drives at the same time; serial runs one "
          "operation after another, which helps debugging. Both give the same bits",
          &C::execution),
      key("model.path", or_null(path()),
          "A folder as Hugging Face's save_pretrained writes it, or a config.json alone. A run "
          "names one of model.path, model.config and model.preset",
          &C::model, &M::path),
      key("model.config", or_null(free_map()),
          "The model as the keys of a Hugging Face config.json", &C::model, &M::config),
      key("model.preset", or_null(word()), "A model that sluice knows by name", &C::model,
          &M::preset),
      key("model.init",
          or_auto(choice<ModelInit>(
              {{"pretrained", ModelInit::kPretrained}, {"random", ModelInit::kRandom}})),
          "Where the first weights come from. pretrained takes the safetensors of model.path, "
          "random draws them from the seed; auto is pretrained where model.path is a folder",
          &C::model, &M::init),
  };
}

std::vector<Field> data_fields() {
  using C = Config;
  using D = data::DataOptions;
  using data::DataFormat;
  using data::TokenDType;
  return {
      key("data.train", paths(),
          "The files to train on. * and ? match any letters of a name, ** any folders", &C::data,
          &D::train),
      key("data.valid", paths(), "The files to evaluate on. Without any there is no evaluation",
          &C::data, &D::valid),
      key("data.format",
          choice<DataFormat>({{"auto", DataFormat::kAuto},
                              {"tokens", DataFormat::kTokens},
                              {"text", DataFormat::kText}}),
          "What the files hold: token ids, or text, of which each byte is a token. auto takes "
          "files that end in .bin or .npy for token ids and all others for text",
          &C::data, &D::format),
      key("data.token_dtype",
          choice<TokenDType>({{"auto", TokenDType::kAuto},
                              {"uint16", TokenDType::kUint16},
                              {"uint32", TokenDType::kUint32}}),
          "The type of a token id in files that do not say it. auto takes uint16 when the "
          "vocabulary fits in it, else uint32",
          &C::data, &D::token_dtype),
      key("data.seq_len", whole(1, 1 << 24), "Tokens per sample", &C::data, &D::seq_len),
      key("data.packing", boolean(),
          "Where files hold documents (docs/data.md): true lets several share a sample, without "
          "sight of each other; false gives each a sample of its own, filled up with padding",
          &C::data, &D::packing),
      key("data.mask_prompt", boolean(),
          "Where files say which tokens count: true trains on these alone, false on all", &C::data,
          &D::mask_prompt),
      key("data.shuffle", boolean(),
          "true visits the samples in a new random order in each epoch, false in the order of the "
          "files",
          &C::data, &D::shuffle),
  };
}

std::vector<Field> train_fields() {
  using C = Config;
  using T = train::TrainOptions;
  using E = train::EvalOptions;
  using train::OnNonFinite;
  const auto batch = or_auto(whole(1, kMostBatch));
  return {
      key("train.steps", or_null(count(0, kMostCount)),
          "The length of the run in steps; 0 only writes the initial weights. At most one of "
          "steps, epochs and tokens may be set; without any the run takes one epoch",
          &C::train, &T::steps),
      key("train.epochs", or_null(count(1, kMostEpochs)),
          "The length of the run in passes over the training data", &C::train, &T::epochs),
      key("train.tokens", or_null(count(1, kMostCount)), "The length of the run in tokens",
          &C::train, &T::tokens),
      key("train.train_micro_batch_size_per_gpu", batch,
          "Samples per forward pass. Any two of the three batch sizes decide the third; auto is 1 "
          "where nothing decides",
          &C::train, &T::train_micro_batch_size_per_gpu),
      key("train.gradient_accumulation_steps", batch,
          "Forward passes per step: how many micro-batches are summed into one gradient", &C::train,
          &T::gradient_accumulation_steps),
      key("train.train_batch_size", batch,
          "Samples per step: the micro-batch size times the micro-batches per step", &C::train,
          &T::train_batch_size),
      key("train.gradient_clipping", or_null(number(0, 1e30, Ends::kOpenLow)),
          "A gradient whose norm (train.clip_scope says of what) is larger than this is scaled "
          "down "
          "to it; null never scales it",
          &C::train, &T::gradient_clipping),
      key("train.clip_scope",
          choice<train::ClipScope>(
              {{"global", train::ClipScope::kGlobal}, {"segment", train::ClipScope::kSegment}}),
          "Whose norm gradient_clipping is about: all gradients together, or those of each segment "
          "(the embedding, a layer, the last norm, the head) by themselves, which then may be "
          "updated as they arrive",
          &C::train, &T::clip_scope),
      key("train.on_nonfinite",
          choice<OnNonFinite>({{"skip", OnNonFinite::kSkip}, {"stop", OnNonFinite::kStop}}),
          "What to do when the gradient of a step is inf or nan: skip the step, leaving weights "
          "and optimizer state as they were, or stop the run. An overflow that lowers the loss "
          "scale "
          "of fp16 only skips its step",
          &C::train, &T::on_nonfinite),
      key("train.max_skips", count(1, kMostCount),
          "The run stops after this many skipped steps in a row, without those that lowered the "
          "loss "
          "scale",
          &C::train, &T::max_skips),
      key("train.resume", path(),
          "auto goes on with an unfinished run of this name from its newest whole checkpoint, and "
          "begins a new one where there is none; never always begins anew; must refuses where "
          "there "
          "is none. A folder (a checkpoint, or a run) begins a new run that goes on from there",
          &C::resume),
      key("eval.every", count(0, kMostCount),
          "Evaluate after every so many steps; 0 evaluates only at the end", &C::eval, &E::every),
      key("eval.batches", count(1, kMostCount), "How many micro-batches one evaluation takes",
          &C::eval, &E::batches),
      key("eval.drain", boolean(),
          "With optimizer.update: delayed, apply the gradient that waits before each evaluation; "
          "the "
          "last one is always of the final weights",
          &C::eval, &E::drain),
  };
}

std::vector<Field> placement_fields() {
  using C = Config;
  using Z = schedule::Options;
  using schedule::ActivationHome;
  using schedule::GradientHome;
  using schedule::OptimizerHome;
  using schedule::ParamHome;
  return {
      key("zero_optimization.offload_param.device",
          named({ParamHome::kCpu, ParamHome::kNone, ParamHome::kNvme}, ParamHome::kCpu),
          "Where the weights live between uses: none is the device, auto is cpu",
          &C::zero_optimization, &Z::offload_param),
      key("zero_optimization.offload_gradient.device",
          or_auto(named({GradientHome::kCpu, GradientHome::kNone})),
          "Where the gradients live until the optimizer takes them: none is the device, auto is "
          "where the optimizer works. Of updates that arrive it says where the few slots of their "
          "gradients are",
          &C::zero_optimization, &Z::offload_gradient),
      key("zero_optimization.offload_optimizer.device",
          named({OptimizerHome::kCpu, OptimizerHome::kNone, OptimizerHome::kNvme},
                OptimizerHome::kCpu),
          "Where the optimizer's weights and moments live between steps: none is the device, which "
          "then updates them, auto is cpu",
          &C::zero_optimization, &Z::offload_optimizer),
      key("zero_optimization.offload_activation.device",
          named({ActivationHome::kNone, ActivationHome::kCpu, ActivationHome::kNvme},
                ActivationHome::kNone),
          "Where the inputs of the layers wait for the backward pass: none and auto are the device",
          &C::zero_optimization, &Z::offload_activation),
      key("zero_optimization.sub_group_size", or_auto(size(zero::kMinChunkState, kMostBytes, 1_B)),
          fmt::format(
              "How many bytes of state ({} per parameter) the optimizer takes at a time. auto "
              "takes what makes the simulated step shortest, from 4 to 64 MiB. DeepSpeed counts "
              "elements here, not bytes",
              zero::kStateBytesPerElem),
          &C::zero_optimization, &Z::sub_group_size),
  };
}

std::vector<Field> machine_fields() {
  using C = Config;
  using P = cpu_adam::Options;
  using S = train::SaveOptions;
  using cpu_adam::Isa;
  using cpu_adam::Stores;
  return {
      key("activation_checkpointing.policy",
          choice<schedule::Recompute>({{"none", schedule::Recompute::kNone},
                                       {"auto", schedule::Recompute::kAuto},
                                       {"every_layer", schedule::Recompute::kEveryLayer}}),
          "Which layers run their forward pass again in the backward pass instead of keeping it. "
          "auto is all of them where weights are fetched for each use, else those that the device "
          "has no room to keep; none is only for weights that stay on the device. The head keeps "
          "its logits where there is room, with every_layer it makes them twice",
          &C::zero_optimization, &schedule::Options::recompute),
      key("cpu_adam.threads", or_auto(integer<unsigned>(1, cpu_adam::kMaxThreads)),
          "Threads of the optimizer, and of what the host does before the first step and after "
          "the last: first values, the pools' pages, final weights. auto takes one per core of "
          "the affinity mask, or of the cgroup's quota",
          &C::cpu_adam, &P::threads),
      key("cpu_adam.isa",
          choice<Isa>({{"auto", Isa::kAuto},
                       {"avx512", Isa::kAvx512},
                       {"avx2", Isa::kAvx2},
                       {"sse2", Isa::kSse2},
                       {"neon", Isa::kNeon},
                       {"scalar", Isa::kScalar}}),
          "Which instructions the optimizer uses; all give the same bits. auto takes the best that "
          "the machine has",
          &C::cpu_adam, &P::isa),
      key("cpu_adam.stores",
          choice<Stores>({{"auto", Stores::kAuto},
                          {"streaming", Stores::kStreaming},
                          {"cached", Stores::kCached}}),
          "Whether the optimizer writes past the caches (streaming) or through them (cached). auto "
          "measures both at the start",
          &C::cpu_adam, &P::stores),
      key("checkpoint.every", or_null(steps_or_duration(kMostCount)),
          "Save a checkpoint after every so many steps, or so much time; null saves none but those "
          "asked for",
          &C::checkpoint, &CheckpointOptions::saves, &S::every),
      key("checkpoint.keep", count(1, kMostCount),
          "How many checkpoints stay, the newest; older ones go once a new one is whole",
          &C::checkpoint, &CheckpointOptions::saves, &S::keep),
      key("checkpoint.keep_every", or_null(count(1, kMostCount)),
          "Checkpoints at whole multiples of so many steps stay too", &C::checkpoint,
          &CheckpointOptions::saves, &S::keep_every),
      key("checkpoint.save_on_signal", boolean(),
          "Whether SIGINT, SIGTERM and SIGHUP save a checkpoint before the run ends (exit code "
          "75). "
          "SIGUSR1 saves one and the run goes on",
          &C::checkpoint, &CheckpointOptions::saves, &S::save_on_signal),
      key("checkpoint.verify", boolean(),
          "Whether the state is checked against its sums (XXH3) when a run goes on from it",
          &C::checkpoint, &CheckpointOptions::saves, &S::verify),
      key("checkpoint.trigger_file", folder_name(),
          "A file of this name in the run's folder asks for a checkpoint, and is removed",
          &C::checkpoint, &CheckpointOptions::saves, &S::trigger_file),
      key("checkpoint.final_dtype", choice<DType>({{"bf16", DType::kBf16}, {"fp32", DType::kF32}}),
          "The type of the weights in final/", &C::checkpoint, &CheckpointOptions::final_dtype),
      key("checkpoint.shard_size", size(1_MiB, kMostBytes, 1_B),
          "final/ has several files and an index where its weights take more than this; no tensor "
          "is cut",
          &C::checkpoint, &CheckpointOptions::shard_size),
      key("logging.log_every", count(1, kMostCount), "Print one line per so many steps",
          &C::logging, &LoggingOptions::log_every),
      key("logging.level",
          choice<log::Level>({{"debug", log::Level::kDebug},
                              {"info", log::Level::kInfo},
                              {"warning", log::Level::kWarning},
                              {"error", log::Level::kError}}),
          "What is printed and logged: this and everything more serious, in the order debug, info, "
          "warning, error",
          &C::logging, &LoggingOptions::level),
      key("logging.progress",
          choice<Progress>(
              {{"auto", Progress::kAuto}, {"true", Progress::kTrue}, {"false", Progress::kFalse}}),
          "true rewrites one line at every step, false prints a line each. auto is true on a "
          "terminal. train.log always has all lines",
          &C::logging, &LoggingOptions::progress),
      key("profile.steps", or_null(step_range(kMostStepsProfiled)),
          "The steps, counted from 1, of which a Chrome trace is written to trace.json in the "
          "run's folder; null writes none",
          &C::profile, &train::ProfileOptions::steps),
  };
}

}  // namespace

const std::vector<Field>& fields() {
  static const std::vector<Field> kAll = [] {
    std::vector<Field> all;
    append(all, run_fields());
    append(all, data_fields());
    append(all, train_fields());
    append(all, numeric_fields());
    append(all, placement_fields());
    append(all, storage_fields());
    append(all, machine_fields());
    return all;
  }();
  return kAll;
}

std::vector<std::string> known_paths() {
  std::vector<std::string> paths;
  for (const Field& f : fields()) paths.push_back(f.path);
  return paths;
}

const Field* find_field(std::string_view path) {
  const auto found = std::ranges::find_if(fields(), [&](const Field& f) {
    return f.path == path || std::ranges::find(f.aliases, path) != f.aliases.end();
  });
  return found == fields().end() ? nullptr : &*found;
}

bool is_section(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  return std::ranges::any_of(fields(), [&](const Field& f) { return f.path.starts_with(prefix); });
}

}  // namespace sluice::config
