#include "engine/config/deepspeed_keys.h"

namespace sluice::config {
namespace {

using enum Conversion;

/// zero_optimization.NAME, dropped.
DeepSpeedKey zero_dropped(const std::string& name, const std::string& why) {
  return {"zero_optimization." + name, kDropped, "", {}, why};
}

DeepSpeedKey zero_refused(const std::string& name, const std::string& why) {
  return {"zero_optimization." + name, kWords, "", {}, why};
}

/// All other values are refused.
DeepSpeedKey zero_only(const std::string& name, const std::string& value, const std::string& why) {
  return {"zero_optimization." + name, kWords, "", {{value, ""}}, why};
}

}  // namespace

std::vector<DeepSpeedKey> deepspeed_zero_keys() {
  const std::string one_rank = "one rank: nothing is cut up and exchanged between ranks";
  const std::string ahead = "what is read ahead is decided by the memory of the tiers alone";
  const std::string overlap = "computation, copies and drives always overlap";
  const std::string pinned = "host memory is pinned where there is a GPU";
  const std::string buffers = "the plan counts the buffers, under the limits of tiers";
  const std::string whole = "final/ always has all weights";
  const std::string not_here = "there are no modules and hooks here";
  const std::string old = R"(an old spelling; write {"device": "cpu"} in )";
  return {
      zero_dropped("stage",
                   "on one rank nothing is cut up; the offload_ keys say where bytes live"),
      {"zero_optimization.sub_group_size", kElements, "zero_optimization.sub_group_size"},
      {"zero_optimization.offload_param.device",
       kWords,
       "zero_optimization.offload_param.device",
       {{"none", "none"}, {"cpu", "cpu"}, {"nvme", "nvme"}},
       "",
       {{"", {}, "none", "none"}}},
      {"zero_optimization.offload_param.nvme_path", kFolder, "tiers.nvme.paths"},
      zero_dropped("offload_param.pin_memory", pinned),
      zero_dropped("offload_param.buffer_count", buffers),
      zero_dropped("offload_param.buffer_size", buffers),
      zero_dropped("offload_param.max_in_cpu", buffers),
      {"zero_optimization.offload_optimizer.device",
       kWords,
       "zero_optimization.offload_optimizer.device",
       {{"none", "none"}, {"cpu", "cpu"}, {"nvme", "nvme"}},
       "",
       {{"", {}, "none", "none"}}},
      {"zero_optimization.offload_optimizer.nvme_path", kFolder, "tiers.nvme.paths"},
      zero_dropped("offload_optimizer.pin_memory", pinned),
      zero_dropped("offload_optimizer.buffer_count", buffers),
      zero_dropped("offload_optimizer.buffer_size", buffers),
      zero_dropped("offload_optimizer.fast_init",
                   "the first state is always written as it is made"),
      zero_dropped("offload_optimizer.pipeline", overlap),
      zero_dropped("offload_optimizer.pipeline_read", overlap),
      zero_dropped("offload_optimizer.pipeline_write", overlap),
      zero_dropped("offload_optimizer.ratio",
                   "not built: the CPU updates all of it; the same numbers"),
      zero_dropped("offload_optimizer.super_offload", overlap),
      zero_dropped("offload_optimizer.cpuadam_cores_perc",
                   "cpu_adam.threads is the number of threads"),
      zero_only("cpu_offload", "false", old + "offload_optimizer"),
      zero_only("cpu_offload_params", "false", old + "offload_param"),
      zero_only("cpu_offload_param", "false", old + "offload_param"),
      zero_dropped("cpu_offload_use_pin_memory", pinned),
      zero_dropped("overlap_comm", overlap),
      zero_dropped("contiguous_gradients", "gradients are always one flat buffer per segment"),
      zero_dropped("reduce_scatter", one_rank),
      zero_dropped("reduce_bucket_size", one_rank),
      zero_dropped("use_multi_rank_bucket_allreduce", one_rank),
      zero_dropped("allgather_partitions", one_rank),
      zero_dropped("allgather_bucket_size", one_rank),
      zero_dropped("round_robin_gradients", one_rank),
      zero_dropped("mics_shard_size", one_rank),
      zero_dropped("mics_hierarchical_params_gather", one_rank),
      zero_dropped("zero_hpz_partition_size", one_rank),
      zero_only("zero_quantized_weights", "false", "quantised weights are not built"),
      zero_only("zero_quantized_nontrainable_weights", "false", "quantised weights are not built"),
      zero_only("zero_quantized_gradients", "false", "quantised gradients are not built"),
      zero_refused("zeropp_loco_param.*", "quantised gradients are not built"),
      zero_refused(
          "zenflow.*",
          "late updates of a part of the gradients are not built; all of them one step late: "
          "optimizer.update: delayed"),
      zero_dropped("stage3_prefetch_bucket_size", ahead),
      zero_dropped("stage3_max_live_parameters", ahead),
      zero_dropped("stage3_max_reuse_distance", ahead),
      zero_dropped("stage3_param_persistence_threshold", ahead),
      zero_dropped("stage3_model_persistence_threshold", ahead),
      zero_dropped("stage3_gather_16bit_weights_on_model_save", whole),
      zero_dropped("stage3_gather_fp16_weights_on_model_save", whole),
      zero_dropped("stage3_module_granularity_threshold", not_here),
      zero_dropped("stage3_use_all_reduce_for_fetch_params", one_rank),
      zero_dropped("stage3_allgather_sequential", one_rank),
      zero_dropped("leaf_module.*", not_here),
      zero_dropped("memory_efficient_linear", "every product is written out, forward and backward"),
      zero_dropped("override_module_apply", not_here),
      zero_dropped("log_trace_cache_warnings", not_here),
      zero_dropped("enable_sanity_checks", "programs are checked before every run"),
      zero_dropped("ignore_unused_parameters", "every weight has a gradient"),
      zero_dropped("pipeline_loading_checkpoint",
                   "weights are read piece by piece as state is made"),
      zero_dropped("save_muon_momentum_buffer_in_memory", "of Muon, which is not built"),
      zero_dropped("load_from_fp32_weights", "a run begins with the weights of model.path"),
      zero_dropped("elastic_checkpoint",
                   "checkpoints of a run have a form of their own (docs/checkpoints.md)"),
      zero_dropped("legacy_stage1", one_rank),
  };
}

}  // namespace sluice::config
