#include "engine/config/deepspeed_keys.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace sluice::config {
namespace {

using enum Conversion;

DeepSpeedKey of_fp16(DeepSpeedKey key) {
  key.only_with = "fp16.enabled";
  return key;
}

const std::vector<std::string> kWarmUps = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};

/// They overwrite the optimizer's rate.
const std::vector<std::string> kRateSetters = {"WarmupLR", "WarmupDecayLR"};

std::vector<DeepSpeedKey> batch_keys() {
  const std::string one_rank = "one rank: nothing is exchanged between ranks";
  return {
      {"train_batch_size",
       kSame,
       "train.train_batch_size",
       {},
       "on one rank: micro-batch size x micro-batches; DeepSpeed also multiplies by the ranks"},
      {"train_micro_batch_size_per_gpu", kSame, "train.train_micro_batch_size_per_gpu"},
      {"gradient_accumulation_steps", kSame, "train.gradient_accumulation_steps"},
      {"gradient_clipping",
       kSame,
       "train.gradient_clipping",
       {{"0", "null"}},
       "",
       {{"",
         {},
         "0 until mid-2026, then 1.0",
         "null",
         "gradient_clipping is not set, so nothing is clipped: DeepSpeed's default until mid-2026. "
         "Since then it is 1.0 (pull request 8068): if yours is newer, write "
         "train.gradient_clipping: 1.0"}}},
      {"steps_per_print", kCount, "logging.log_every"},
      dropped("prescale_gradients", one_rank),
      dropped("gradient_predivide_factor", one_rank),
      only("gradient_allreduce_op", "mean", "the gradient is the mean over the tokens of a step"),
      dropped("communication_data_type", one_rank),
      dropped("seq_parallel_communication_data_type", one_rank),
      dropped("sparse_gradients", one_rank),
      dropped("disable_allgather", one_rank),
      dropped("dataloader_drop_last", "a step always has whole batches"),
      dropped("wall_clock_breakdown", "metrics.jsonl always has the time of each lane"),
      dropped("memory_breakdown", "metrics.jsonl has the memory by class of bytes"),
      dropped("dump_state", "config.resolved.yaml has every value of a run"),
      dropped("zero_allow_untested_optimizer", "every optimizer here is tested"),
      dropped("zero_force_ds_cpu_optimizer", "the optimizer is always sluice's own"),
  };
}

std::vector<DeepSpeedKey> optimizer_keys() {
  const std::string any_optimizer = "optimizer.type";
  return {
      {"optimizer.type",
       kWords,
       "optimizer.type",
       {{"AdamW", "adamw"}, {"Adam", ""}},
       "adam_w_mode says which of the two Adam is"},
      {"optimizer.params.adam_w_mode",
       kWords,
       "optimizer.type",
       {{"true", "adamw"}, {"false", "adam"}},
       "DeepSpeed's Adam is AdamW unless this is false",
       {{any_optimizer, {"Adam"}, "true", "adamw"}}},
      {"optimizer.params.lr",
       kSame,
       "optimizer.lr",
       {},
       "",
       {{"scheduler.type", kRateSetters, "", ""}, {any_optimizer, {}, "0.001", "0.001"}}},
      {"optimizer.params.betas",
       kSame,
       "optimizer.betas",
       {},
       "",
       {{any_optimizer, {}, "[0.9, 0.999]", "[0.9, 0.999]"}}},
      {"optimizer.params.eps", kSame, "optimizer.eps"},
      {"optimizer.params.weight_decay",
       kSame,
       "optimizer.weight_decay",
       {},
       "sluice decays tensors of two or more dimensions, DeepSpeed what the script's groups say",
       {{any_optimizer, {}, "0", "0"}}},
      only("optimizer.params.bias_correction", "true",
           "Adam without the correction of its moments is not built"),
      only("optimizer.params.amsgrad", "false", "amsgrad is not built"),
      dropped("optimizer.params.torch_adam", "the optimizer is always sluice's own"),
      dropped("optimizer.params.fused", "the update is always one pass"),
      dropped("optimizer.legacy_fusion", "the update is always one pass"),
  };
}

std::vector<DeepSpeedKey> scheduler_keys() {
  const std::string type = "scheduler.type";
  const std::string not_built =
      "not built; WarmupLR, WarmupDecayLR and WarmupCosineLR have a counterpart";
  return {
      {type,
       kWords,
       type,
       {{"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}},
       "",
       {{"optimizer.type", {}, "none: a constant rate", "constant"}}},
      {"scheduler.params.warmup_max_lr",
       kSame,
       "optimizer.lr",
       {},
       "the scheduler's rate is the one that DeepSpeed trains with, so optimizer.params.lr must be "
       "the same",
       {{type, kRateSetters, "0.001", "0.001"}}},
      only("scheduler.params.warmup_min_lr", "0", "warm-up begins at 0 here; write 0"),
      only("scheduler.params.warmup_min_ratio", "0", "warm-up begins at 0 here; write 0"),
      {"scheduler.params.warmup_num_steps",
       kCount,
       "scheduler.warmup_steps",
       {},
       "",
       {{type, kWarmUps, "1000", "1000"}, {"optimizer.type", {}, "none", "0"}}},
      {"scheduler.params.warmup_type",
       kWords,
       "",
       {{"linear", ""}},
       "a logarithmic warm-up is not built; write linear",
       {{type, kWarmUps, "log", "",
         "warmup is linear here, DeepSpeed's is logarithmic where warmup_type is not set: losses "
         "of the first steps differ"}}},
      {"scheduler.params.total_num_steps", kCount, "train.steps"},
      {"scheduler.params.cos_min_ratio",
       kSame,
       "scheduler.min_lr_ratio",
       {},
       "",
       {{type, {"WarmupCosineLR"}, "0.0001", "0.0001"}, {type, {"WarmupDecayLR"}, "0", "0.0"}}},
      only("scheduler.params.last_batch_iteration", "-1", "a run begins at its first step"),
      refused("scheduler.params.*", not_built),
  };
}

std::vector<DeepSpeedKey> precision_keys() {
  const std::string always_fp32 = "masters, moments and sums of gradients are fp32";
  return {
      {"bf16.enabled",
       kWords,
       "precision.compute",
       {{"true", "bf16"}, {"false", "fp32", "fp16.enabled"}},
       "",
       {{"fp16.enabled", {"true", "auto"}, "false", ""}, {"", {}, "false", "fp32"}}},
      dropped("bf16.check_grad_overflow",
              "a gradient that is not finite is always noticed (train.on_nonfinite)"),
      dropped("bf16.immediate_grad_update", "when a gradient is taken is the plan's"),
      only("bf16.bf16_master_weights_and_grads", "false", always_fp32),
      only("bf16.bf16_optimizer_states", "false", always_fp32),
      refused("bfloat16.enabled", "an old spelling; write bf16.enabled"),
      {"fp16.enabled",
       kWords,
       "precision.compute",
       {{"true", "fp16"}, {"false", ""}},
       "false leaves it to bf16.enabled",
       {{"", {}, "false", ""}}},
      dropped("fp16.auto_cast", "inputs are tokens, and all of the model is fp16"),
      of_fp16({"fp16.loss_scale",
               kCount,
               "precision.loss_scale",
               {{"0", "auto"}},
               "powers of two only"}),
      of_fp16({"fp16.initial_scale_power", kSame, "precision.initial_scale_power"}),
      of_fp16({"fp16.loss_scale_window", kCount, "precision.loss_scale_window"}),
      dropped("fp16.hysteresis", "every gradient that overflows halves the scale"),
      dropped("fp16.consecutive_hysteresis", "every gradient that overflows halves the scale"),
      of_fp16({"fp16.min_loss_scale", kCount, "precision.min_loss_scale", {{"0", "1"}}}),
      of_fp16(only("fp16.fp16_master_weights_and_grads", "false", always_fp32)),
      only("amp.enabled", "false", "apex amp is not built; write bf16.enabled"),
      dropped("amp.*", "of amp, which is off"),
      only("torch_autocast.enabled", "false", "autocast is not built; write bf16.enabled"),
      dropped("torch_autocast.dtype", "of torch_autocast, which is off"),
      dropped("torch_autocast.lower_precision_safe_modules", "of torch_autocast, which is off"),
      {"data_types.grad_accum_dtype",
       kWords,
       "precision.grad_dtype",
       {{"fp32", "fp32"}, {"bf16", "bf16"}},
       "gradients are fp32, or bf16 with one micro-batch per step"},
  };
}

std::vector<DeepSpeedKey> drive_keys() {
  const std::string always = "requests are always queued as they come, and reaped as they end";
  return {
      {"aio.block_size", kBytes, "aio.block_size"},
      {"aio.queue_depth", kSame, "aio.queue_depth"},
      {"aio.intra_op_parallelism", kSame, "aio.threads"},
      {"aio.thread_count", kSame, "aio.threads", {}, "DeepSpeed ignores it"},
      dropped("aio.single_submit", always),
      dropped("aio.overlap_events", always),
      dropped("aio.use_gds", "reads that pass the host by are not built; same bytes"),
  };
}

std::vector<DeepSpeedKey> other_keys() {
  const std::string metrics = "metrics.jsonl has every step; read it with the tool of your choice";
  const std::string profile = "profile.steps writes a trace of every operation";
  const std::string saving = "checkpoints of a run have a form of their own (docs/checkpoints.md)";
  const std::string layers =
      "layers are run again where that saves memory (activation_checkpointing.policy)";
  const std::string plan = "the plan decides, by simulating the step";
  return {
      {"activation_checkpointing.cpu_checkpointing",
       kWords,
       "zero_optimization.offload_activation.device",
       {{"true", "cpu"}, {"false", "none"}},
       "the inputs of the layers wait in host memory"},
      dropped("activation_checkpointing.partition_activations", "one rank: nothing is cut up"),
      dropped("activation_checkpointing.contiguous_memory_optimization", layers),
      dropped("activation_checkpointing.number_checkpoints", layers),
      dropped("activation_checkpointing.synchronize_checkpoint_boundary", layers),
      dropped("activation_checkpointing.profile", profile),
      only("checkpoint.load_universal", "false",
           "a universal checkpoint cannot be read; name its weights in model.path"),
      dropped("checkpoint.tag_validation", saving),
      dropped("checkpoint.use_node_local_storage", saving),
      dropped("checkpoint.parallel_write.*", saving),
      dropped("checkpoint.writer.*", saving),
      dropped("nebula.*", saving),
      dropped("flops_profiler.*", profile),
      dropped("comms_logger.*", profile),
      dropped("tensorboard.*", metrics),
      dropped("wandb.*", metrics),
      dropped("csv_monitor.*", metrics),
      dropped("comet.*", metrics),
      dropped("autotuning.*", plan),
      dropped("compile.*", plan),
      only("elasticity.enabled", "false", "ranks that come and go are not built"),
      dropped("elasticity.*", "of elasticity, which is off"),
      only("curriculum_learning.enabled", "false", "not built"),
      dropped("curriculum_learning.*", "of curriculum_learning, which is off"),
      only("data_efficiency.enabled", "false", "not built"),
      dropped("data_efficiency.*", "of data_efficiency, which is off"),
      only("progressive_layer_drop.enabled", "false", "not built"),
      dropped("progressive_layer_drop.*", "of progressive_layer_drop, which is off"),
      only("eigenvalue.enabled", "false", "not built"),
      dropped("eigenvalue.*", "of eigenvalue, which is off"),
      only("quantize_training.enabled", "false", "not built"),
      dropped("quantize_training.*", "of quantize_training, which is off"),
      refused("compression_training.*", "training with compressed weights is not built"),
      refused("sparse_attention.*", "sparse attention is not built"),
  };
}

void append(std::vector<DeepSpeedKey>& all, std::vector<DeepSpeedKey> more) {
  std::ranges::move(more, std::back_inserter(all));
}

}  // namespace

DeepSpeedKey dropped(std::string from, std::string why) {
  return {std::move(from), kDropped, "", {}, std::move(why)};
}

DeepSpeedKey refused(std::string from, std::string why) {
  return {std::move(from), kWords, "", {}, std::move(why)};
}

DeepSpeedKey only(std::string from, std::string value, std::string why) {
  return {std::move(from), kWords, "", {{std::move(value), ""}}, std::move(why)};
}

const std::vector<DeepSpeedKey>& deepspeed_keys() {
  static const std::vector<DeepSpeedKey> kAll = [] {
    std::vector<DeepSpeedKey> all;
    append(all, batch_keys());
    append(all, optimizer_keys());
    append(all, scheduler_keys());
    append(all, precision_keys());
    append(all, deepspeed_zero_keys());
    append(all, drive_keys());
    append(all, other_keys());
    return all;
  }();
  return kAll;
}

const DeepSpeedKey* find_deepspeed_key(std::string_view path) {
  const auto& all = deepspeed_keys();
  const auto exact = std::ranges::find(all, path, &DeepSpeedKey::from);
  if (exact != all.end()) return &*exact;
  for (std::size_t dot = path.rfind('.'); dot != std::string_view::npos && dot > 0;
       dot = path.rfind('.', dot - 1)) {
    const std::string section = std::string(path.substr(0, dot)) + ".*";
    const auto found = std::ranges::find(all, section, &DeepSpeedKey::from);
    if (found != all.end()) return &*found;
  }
  return nullptr;
}

bool is_deepspeed_section(std::string_view path) {
  const std::string prefix = std::string(path) + ".";
  return std::ranges::any_of(deepspeed_keys(),
                             [&](const DeepSpeedKey& key) { return key.from.starts_with(prefix); });
}

}  // namespace sluice::config
