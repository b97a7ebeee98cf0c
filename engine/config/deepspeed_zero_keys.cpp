#include "engine/config/deepspeed_keys.h"

namespace sluice::config {

std::vector<DeepSpeedKey> deepspeed_zero_keys() {
  using enum Conversion;
  const std::string one_rank = "one rank: nothing is cut up and exchanged between ranks";
  const std::string ahead = "what is read ahead is decided by the memory of the tiers alone";
  const std::string overlap = "computation, copies and drives always overlap";
  const std::string pinned = "host memory is pinned where there is a GPU";
  const std::string buffers = "the plan counts the buffers, under the limits of tiers";
  const std::string whole = "final/ always has all weights";
  const std::string not_here = "there are no modules and hooks here";
  const std::string old = R"(an old spelling; write {"device": "cpu"} in )";
  std::vector<DeepSpeedKey> keys = {
      dropped("stage", "on one rank nothing is cut up; the offload_ keys say where bytes live"),
      {"sub_group_size", kElements, "zero_optimization.sub_group_size"},
      {"offload_param.device",
       kWords,
       "zero_optimization.offload_param.device",
       {{"none", "none"}, {"cpu", "cpu"}, {"nvme", "nvme"}},
       "",
       {{"", {}, "none", "none"}}},
      {"offload_param.nvme_path", kFolder, "tiers.nvme.paths"},
      dropped("offload_param.pin_memory", pinned),
      dropped("offload_param.buffer_count", buffers),
      dropped("offload_param.buffer_size", buffers),
      dropped("offload_param.max_in_cpu", buffers),
      {"offload_optimizer.device",
       kWords,
       "zero_optimization.offload_optimizer.device",
       {{"none", "none"}, {"cpu", "cpu"}, {"nvme", "nvme"}},
       "",
       {{"", {}, "none", "none"}}},
      {"offload_optimizer.nvme_path", kFolder, "tiers.nvme.paths"},
      dropped("offload_optimizer.pin_memory", pinned),
      dropped("offload_optimizer.buffer_count", buffers),
      dropped("offload_optimizer.buffer_size", buffers),
      dropped("offload_optimizer.fast_init", "the first state is always written as it is made"),
      dropped("offload_optimizer.pipeline", overlap),
      dropped("offload_optimizer.pipeline_read", overlap),
      dropped("offload_optimizer.pipeline_write", overlap),
      dropped("offload_optimizer.ratio", "not built: the CPU updates all of it; the same numbers"),
      dropped("offload_optimizer.super_offload", overlap),
      dropped("offload_optimizer.cpuadam_cores_perc", "cpu_adam.threads is the number of threads"),
      only("cpu_offload", "false", old + "offload_optimizer"),
      only("cpu_offload_params", "false", old + "offload_param"),
      only("cpu_offload_param", "false", old + "offload_param"),
      dropped("cpu_offload_use_pin_memory", pinned),
      dropped("overlap_comm", overlap),
      dropped("contiguous_gradients", "gradients are always one flat buffer per segment"),
      dropped("reduce_scatter", one_rank),
      dropped("reduce_bucket_size", one_rank),
      dropped("use_multi_rank_bucket_allreduce", one_rank),
      dropped("allgather_partitions", one_rank),
      dropped("allgather_bucket_size", one_rank),
      dropped("round_robin_gradients", one_rank),
      dropped("mics_shard_size", one_rank),
      dropped("mics_hierarchical_params_gather", one_rank),
      dropped("zero_hpz_partition_size", one_rank),
      only("zero_quantized_weights", "false", "quantised weights are not built"),
      only("zero_quantized_nontrainable_weights", "false", "quantised weights are not built"),
      only("zero_quantized_gradients", "false", "quantised gradients are not built"),
      refused("zeropp_loco_param.*", "quantised gradients are not built"),
      refused("zenflow.*",
              "late updates of a part of the gradients are not built; all of them one step late: "
              "optimizer.update: delayed"),
      dropped("stage3_prefetch_bucket_size", ahead),
      dropped("stage3_max_live_parameters", ahead),
      dropped("stage3_max_reuse_distance", ahead),
      dropped("stage3_param_persistence_threshold", ahead),
      dropped("stage3_model_persistence_threshold", ahead),
      dropped("stage3_gather_16bit_weights_on_model_save", whole),
      dropped("stage3_gather_fp16_weights_on_model_save", whole),
      dropped("stage3_module_granularity_threshold", not_here),
      dropped("stage3_use_all_reduce_for_fetch_params", one_rank),
      dropped("stage3_allgather_sequential", one_rank),
      dropped("leaf_module.*", not_here),
      dropped("memory_efficient_linear", "every product is written out, forward and backward"),
      dropped("override_module_apply", not_here),
      dropped("log_trace_cache_warnings", not_here),
      dropped("enable_sanity_checks", "programs are checked before every run"),
      dropped("ignore_unused_parameters", "every weight has a gradient"),
      dropped("pipeline_loading_checkpoint", "weights are read piece by piece as state is made"),
      dropped("save_muon_momentum_buffer_in_memory", "of Muon, which is not built"),
      dropped("load_from_fp32_weights", "a run begins with the weights of model.path"),
      dropped("elastic_checkpoint",
              "checkpoints of a run have a form of their own (docs/checkpoints.md)"),
      dropped("legacy_stage1", one_rank),
  };
  for (DeepSpeedKey& key : keys) key.from = "zero_optimization." + key.from;
  return keys;
}

}  // namespace sluice::config
