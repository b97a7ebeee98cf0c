#include "engine/config/field.h"

#include <algorithm>
#include <utility>

#include "engine/config/kind.h"

namespace sluice::config {
namespace {

/// `members` lead from Config to the value: &Config::aio, &nvme::Options::queue_depth.
template <class T, class... Members>
Field key(std::string path, Kind<T> kind, std::string doc, Members... members) {
  return {std::move(path),
          kind.takes,
          std::move(doc),
          {},
          kind.schema,
          [read = kind.read, members...](Config& c, const Value& v, const Context& at) {
            (c.*....*members) = read(v, at);
          },
          [write = kind.write, members...](const Config& c) { return write((c.*....*members)); }};
}

Field also(Field field, std::vector<std::string> aliases) {
  field.aliases = std::move(aliases);
  return field;
}

void append(std::vector<Field>& all, std::vector<Field> more) {
  std::ranges::move(more, std::back_inserter(all));
}

constexpr std::int64_t kMostCount = 1'000'000'000'000'000;
constexpr std::int64_t kMostEpochs = 1'000'000;
constexpr Bytes kMostBytes = Bytes{1} << 50;
/// The spans of more would take memory that no tier counts.
constexpr std::int64_t kMostStepsProfiled = 100;
/// Master weight and two moments in fp32: the smallest chunk is one grain of them.
constexpr Bytes kGrainOfState = 12 * kGrainElems;

std::vector<Field> run_fields() {
  using C = Config;
  using M = ModelOptions;
  return {
      key("version", whole(1, 1), "of this format", &C::version),
      key("name", or_auto(folder_name()),
          "of the run's folder; auto picks one with a counter. A given name must be new", &C::name),
      key("output_dir", path(), "where the run is written", &C::output_dir),
      key("seed", integer<std::uint64_t>(0, INT64_MAX), "of initialisation and shuffling",
          &C::seed),
      key("execution",
          choice<Execution>(
              {{"overlapped", Execution::kOverlapped}, {"serial", Execution::kSerial}}),
          "serial runs op by op, for debugging; both give the same bits", &C::execution),
      key("model.config", or_null(free_map()),
          "the keys of a Hugging Face config.json, instead of a preset", &C::model, &M::config),
      key("model.preset", or_null(word()), "a model by name, instead of config", &C::model,
          &M::preset),
      key("model.init", choice<ModelInit>({{"random", ModelInit::kRandom}}),
          "where the first weights come from", &C::model, &M::init),
  };
}

std::vector<Field> data_fields() {
  using C = Config;
  using D = data::DataOptions;
  using data::DataFormat;
  using data::TokenDType;
  return {
      key("data.train", paths(), "files to train on; * and ? match names", &C::data, &D::train),
      key("data.valid", paths(), "files to evaluate on", &C::data, &D::valid),
      key("data.format",
          choice<DataFormat>({{"auto", DataFormat::kAuto},
                              {"tokens", DataFormat::kTokens},
                              {"text", DataFormat::kText}}),
          "auto: .bin files are tokens, all others text, read as bytes", &C::data, &D::format),
      key("data.token_dtype",
          choice<TokenDType>({{"auto", TokenDType::kAuto},
                              {"uint16", TokenDType::kUint16},
                              {"uint32", TokenDType::kUint32}}),
          "of token files; auto: uint16 when the vocabulary fits in it", &C::data, &D::token_dtype),
      key("data.seq_len", whole(1, 1 << 24), "tokens per sample", &C::data, &D::seq_len),
      key("data.shuffle", boolean(), "a new order of the samples in each epoch", &C::data,
          &D::shuffle),
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
          "length of the run; 0 only writes the initial weights. At most one of steps, epochs and "
          "tokens; none is one epoch",
          &C::train, &T::steps),
      key("train.epochs", or_null(count(1, kMostEpochs)), "length of the run", &C::train,
          &T::epochs),
      key("train.tokens", or_null(count(1, kMostCount)), "length of the run", &C::train,
          &T::tokens),
      key("train.train_micro_batch_size_per_gpu", batch,
          "samples per forward pass. Any two of the three batch sizes decide the third; auto is 1 "
          "where nothing decides",
          &C::train, &T::train_micro_batch_size_per_gpu),
      key("train.gradient_accumulation_steps", batch, "micro-batches per step", &C::train,
          &T::gradient_accumulation_steps),
      key("train.train_batch_size", batch, "samples per step", &C::train, &T::train_batch_size),
      key("train.gradient_clipping", or_null(number(0, 1e30, Ends::kOpenLow)),
          "largest global norm of the gradient; null is off", &C::train, &T::gradient_clipping),
      key("train.on_nonfinite",
          choice<OnNonFinite>({{"skip", OnNonFinite::kSkip}, {"stop", OnNonFinite::kStop}}),
          "what to do with a step whose gradient is inf or nan; the state stays as it was",
          &C::train, &T::on_nonfinite),
      key("train.max_skips", count(1, kMostCount), "this many skipped steps in a row end the run",
          &C::train, &T::max_skips),
      key("eval.every", count(0, kMostCount), "steps between evaluations; 0 is only at the end",
          &C::eval, &E::every),
      key("eval.batches", count(1, kMostCount), "micro-batches per evaluation", &C::eval,
          &E::batches),
  };
}

std::vector<Field> numeric_fields() {
  using C = Config;
  using O = train::OptimizerOptions;
  using S = data::SchedulerOptions;
  using data::SchedulerType;
  using train::OptimizerType;
  const auto dtype = choice<DType>({{"bf16", DType::kBf16}, {"fp32", DType::kF32}});
  return {
      key("precision.compute", dtype, "of forward and backward; master weights are fp32",
          &C::precision, &PrecisionOptions::compute),
      key("precision.grad_dtype", or_auto(dtype),
          "of a step's gradient; bf16 needs one micro-batch per step and bf16 compute. A tied "
          "embedding has two gradients, whose sum is always fp32",
          &C::precision, &PrecisionOptions::grad_dtype),
      key("optimizer.type",
          choice<OptimizerType>({{"adamw", OptimizerType::kAdamW}, {"adam", OptimizerType::kAdam}}),
          "adam adds weight decay to the gradient, adamw to the weight", &C::optimizer, &O::type),
      key("optimizer.lr", number(0, 1000), "peak learning rate", &C::optimizer, &O::lr),
      key("optimizer.betas", pair_of(number(0, 1, Ends::kOpenHigh)),
          "decay of the first and the second moment", &C::optimizer, &O::betas),
      key("optimizer.eps", number(1e-30, 1), "added to the root of the second moment",
          &C::optimizer, &O::eps),
      key("optimizer.weight_decay", number(0, 1000),
          "on tensors of two or more dimensions; biases and norms are not decayed", &C::optimizer,
          &O::weight_decay),
      key("scheduler.type",
          choice<SchedulerType>({{"cosine", SchedulerType::kCosine},
                                 {"constant", SchedulerType::kConstant},
                                 {"linear", SchedulerType::kLinear},
                                 {"wsd", SchedulerType::kWsd}}),
          "of the learning rate after warm-up", &C::scheduler, &S::type),
      key("scheduler.warmup_steps", count_or_fraction(kMostCount),
          "steps from 0 to the peak learning rate, or their share of all steps", &C::scheduler,
          &S::warmup_steps),
      key("scheduler.min_lr_ratio", fraction(), "last learning rate as a share of the peak",
          &C::scheduler, &S::min_lr_ratio),
      key("compute.threads", or_auto(integer<unsigned>(1, 4096)),
          "of the forward and backward pass on a CPU; part of a run's numbers. auto: the cores",
          &C::compute, &ComputeOptions::threads),
      key("compute.loss_chunk", or_auto(whole(1, 1 << 30)),
          "columns of the vocabulary that the head takes at a time; part of a run's numbers",
          &C::compute, &ComputeOptions::loss_chunk),
  };
}

std::vector<Field> placement_fields() {
  using C = Config;
  using Z = schedule::Options;
  using memory::Unified;
  using schedule::ActivationHome;
  using schedule::GradientHome;
  using schedule::OptimizerHome;
  using schedule::ParamHome;
  return {
      key("zero_optimization.offload_param.device",
          choice<ParamHome>({{"cpu", ParamHome::kCpu},
                             {"none", ParamHome::kNone},
                             {"nvme", ParamHome::kNvme},
                             {"auto", ParamHome::kCpu}}),
          "home of the weights; none is the device, auto is cpu", &C::zero_optimization,
          &Z::offload_param),
      key("zero_optimization.offload_gradient.device",
          choice<GradientHome>({{"cpu", GradientHome::kCpu},
                                {"none", GradientHome::kNone},
                                {"auto", GradientHome::kCpu}}),
          "home of the gradients; none is the device, auto is cpu", &C::zero_optimization,
          &Z::offload_gradient),
      key("zero_optimization.offload_optimizer.device",
          choice<OptimizerHome>({{"cpu", OptimizerHome::kCpu},
                                 {"nvme", OptimizerHome::kNvme},
                                 {"auto", OptimizerHome::kCpu}}),
          "home of master weights and moments; auto is cpu", &C::zero_optimization,
          &Z::offload_optimizer),
      key("zero_optimization.offload_activation.device",
          choice<ActivationHome>({{"none", ActivationHome::kNone},
                                  {"cpu", ActivationHome::kCpu},
                                  {"nvme", ActivationHome::kNvme},
                                  {"auto", ActivationHome::kNone}}),
          "where the inputs of the layers wait for backward; none is the device, auto is none",
          &C::zero_optimization, &Z::offload_activation),
      key("zero_optimization.sub_group_size", or_auto(size(kGrainOfState, kMostBytes, 1_B)),
          "bytes of state (12 per parameter) that the optimizer takes at a time; auto: 4 to 64 "
          "MiB, "
          "as makes the simulated step shortest. DeepSpeed counts elements here",
          &C::zero_optimization, &Z::sub_group_size),
      key("tiers.gpu.limit", size_or_fraction(),
          "how much of the device a run may use; a cap mimics a smaller card. Where the device "
          "computes in host memory both tiers come from it: a size counts first; two without one "
          "get what they need and share the rest",
          &C::tiers, &memory::Options::gpu, &memory::GpuTier::limit),
      key("tiers.gpu.unified",
          choice<Unified>({{"auto", Unified::kAuto}, {"false", Unified::kFalse}}),
          "false copies even where device and host share their memory", &C::tiers,
          &memory::Options::gpu, &memory::GpuTier::unified),
      key("tiers.cpu.limit", or_auto(size_or_fraction()),
          "how much of what is available of the host's memory, to the machine and to its cgroup; "
          "auto: all of it, less reserve",
          &C::tiers, &memory::Options::cpu, &memory::CpuTier::limit),
      key("tiers.cpu.reserve", size(0_B, kMostBytes, 1_B),
          "left to the rest of the machine when limit is auto", &C::tiers, &memory::Options::cpu,
          &memory::CpuTier::reserve),
      key("tiers.nvme.paths", paths(), "folders, one per drive; none is a folder of the run",
          &C::tiers, &memory::Options::nvme, &memory::NvmeTier::paths),
      key("tiers.nvme.limit", size_or_fraction(), "how much of the free space", &C::tiers,
          &memory::Options::nvme, &memory::NvmeTier::limit),
      key("tiers.nvme.allow_ram_path", boolean(),
          "accept a tmpfs: a test of the code, not of a drive", &C::tiers, &memory::Options::nvme,
          &memory::NvmeTier::allow_ram_path),
  };
}

std::vector<Field> machine_fields() {
  using C = Config;
  using A = nvme::Options;
  using P = cpu_adam::Options;
  using cpu_adam::Isa;
  using cpu_adam::Stores;
  using nvme::Direct;
  using nvme::Engine;
  return {
      key("aio.engine",
          choice<Engine>({{"auto", Engine::kAuto},
                          {"io_uring", Engine::kIoUring},
                          {"threads", Engine::kThreads}}),
          "how requests reach the drives; auto: io_uring where the kernel allows it", &C::aio,
          &A::engine),
      key("aio.direct",
          choice<Direct>(
              {{"auto", Direct::kAuto}, {"true", Direct::kTrue}, {"false", Direct::kFalse}}),
          "past the page cache; auto: where a real write, read and compare works", &C::aio,
          &A::direct),
      key("aio.block_size", auto_is(A{}.block_size, size(4_KiB, 1_GiB, 4_KiB)), "of a request",
          &C::aio, &A::block_size),
      key("aio.queue_depth", auto_is(A{}.queue_depth, integer<unsigned>(1, 4096)),
          "requests in flight", &C::aio, &A::queue_depth),
      also(key("aio.threads", or_auto(integer<unsigned>(1, 1024)), "of the engine threads", &C::aio,
               &A::threads),
           {"aio.intra_op_parallelism", "aio.thread_count"}),
      key("activation_checkpointing.policy",
          choice<schedule::Recompute>({{"none", schedule::Recompute::kNone},
                                       {"auto", schedule::Recompute::kAuto},
                                       {"every_layer", schedule::Recompute::kEveryLayer}}),
          "which layers run their forward again in backward. auto: all where weights are fetched "
          "for each use, else those that the device has no room to keep; none is only for weights "
          "that stay there",
          &C::zero_optimization, &schedule::Options::recompute),
      key("cpu_adam.threads", or_auto(integer<unsigned>(1, 4096)),
          "of the optimizer; auto: every core", &C::cpu_adam, &P::threads),
      key("cpu_adam.isa",
          choice<Isa>({{"auto", Isa::kAuto},
                       {"avx512", Isa::kAvx512},
                       {"avx2", Isa::kAvx2},
                       {"sse2", Isa::kSse2},
                       {"neon", Isa::kNeon},
                       {"scalar", Isa::kScalar}}),
          "instructions of the optimizer; all give the same bits", &C::cpu_adam, &P::isa),
      key("cpu_adam.stores",
          choice<Stores>({{"auto", Stores::kAuto},
                          {"streaming", Stores::kStreaming},
                          {"cached", Stores::kCached}}),
          "streaming goes past the caches; auto: a short probe at start decides", &C::cpu_adam,
          &P::stores),
      key("checkpoint.final_dtype", choice<DType>({{"bf16", DType::kBf16}, {"fp32", DType::kF32}}),
          "of the weights in final/", &C::checkpoint, &CheckpointOptions::final_dtype),
      key("logging.log_every", count(1, kMostCount), "steps between two lines", &C::logging,
          &LoggingOptions::log_every),
      key("logging.level",
          choice<log::Level>({{"debug", log::Level::kDebug},
                              {"info", log::Level::kInfo},
                              {"warning", log::Level::kWarning},
                              {"error", log::Level::kError}}),
          "least weight of a line in the log", &C::logging, &LoggingOptions::level),
      key("logging.progress",
          choice<Progress>(
              {{"auto", Progress::kAuto}, {"true", Progress::kTrue}, {"false", Progress::kFalse}}),
          "one line that is rewritten at every step, instead of a line each; auto: on a terminal. "
          "train.log has all lines",
          &C::logging, &LoggingOptions::progress),
      key("profile.steps", or_null(step_range(kMostStepsProfiled)),
          "steps, counted from 1, of which the run's folder gets a Chrome trace, trace.json; null "
          "is none",
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
    append(all, machine_fields());
    return all;
  }();
  return kAll;
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
