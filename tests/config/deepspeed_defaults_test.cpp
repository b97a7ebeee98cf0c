// What a file that leaves a key out means in DeepSpeed and here: the same, or there is a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "engine/config/deepspeed.h"
#include "engine/config/deepspeed_keys.h"
#include "engine/config/field.h"
#include "engine/config/load.h"

namespace sluice::config {
namespace {

using nlohmann::json;

/// Why a default that is another than DeepSpeed's changes no numbers.
struct Reason {
  std::string text;
};

/// By key: DeepSpeed's default (0.19), or a reason. A default of null is that of a section or a key
/// that DeepSpeed does without.
const std::map<std::string, std::variant<json, Reason>>& defaults() {
  const Reason batch{"DeepSpeed asks for it or derives it from the others, as is done here"};
  const Reason drives{"how bytes travel, not which"};
  static const std::map<std::string, std::variant<json, Reason>> kDefaults = {
      {"train_batch_size", batch},
      {"train_micro_batch_size_per_gpu", batch},
      {"gradient_accumulation_steps", batch},
      {"steps_per_print", Reason{"how often a line is printed"}},
      {"gradient_allreduce_op", json("mean")},
      {"optimizer.type", Reason{"without it the script makes the optimizer"}},
      {"optimizer.params.eps", json(1e-8)},
      {"optimizer.params.bias_correction", json(true)},
      {"optimizer.params.amsgrad", json(false)},
      {"scheduler.params.warmup_min_lr", json(0.0)},
      {"scheduler.params.warmup_min_ratio", json(0.0)},
      {"scheduler.params.total_num_steps", Reason{"has no default: the script's run has a length"}},
      {"scheduler.params.last_batch_iteration", json(-1)},
      {"bf16.bf16_master_weights_and_grads", json(false)},
      {"bf16.bf16_optimizer_states", json(false)},
      {"fp16.loss_scale", json(0)},
      {"fp16.initial_scale_power", json(16)},
      {"fp16.loss_scale_window", json(1000)},
      {"fp16.min_loss_scale", json(1)},
      {"fp16.fp16_master_weights_and_grads", json(false)},
      {"amp.enabled", json(false)},
      {"torch_autocast.enabled", json(false)},
      {"data_types.grad_accum_dtype",
       Reason{
           "the model's type, as auto is for one micro-batch; sums of several are exacter here"}},
      {"zero_optimization.sub_group_size", Reason{"how much is updated at a time"}},
      {"zero_optimization.offload_param.nvme_path", drives},
      {"zero_optimization.offload_optimizer.nvme_path", drives},
      {"zero_optimization.cpu_offload", json(nullptr)},
      {"zero_optimization.cpu_offload_params", json(nullptr)},
      {"zero_optimization.cpu_offload_param", json(nullptr)},
      {"zero_optimization.zero_quantized_weights", json(false)},
      {"zero_optimization.zero_quantized_nontrainable_weights", json(false)},
      {"zero_optimization.zero_quantized_gradients", json(false)},
      {"zero_optimization.zeropp_loco_param.*", json(nullptr)},
      {"zero_optimization.zenflow.*", json(nullptr)},
      {"aio.block_size", json(1048576)},
      {"aio.queue_depth", drives},
      {"aio.intra_op_parallelism", drives},
      {"aio.thread_count", drives},
      {"activation_checkpointing.cpu_checkpointing", json(false)},
      {"checkpoint.load_universal", json(false)},
      {"elasticity.enabled", json(false)},
      {"curriculum_learning.enabled", json(false)},
      {"data_efficiency.enabled", json(false)},
      {"progressive_layer_drop.enabled", json(false)},
      {"eigenvalue.enabled", json(false)},
      {"quantize_training.enabled", json(false)},
      {"bfloat16.enabled", json(nullptr)},
      {"scheduler.params.*", json(nullptr)},
      {"compression_training.*", json(nullptr)},
      {"sparse_attention.*", json(nullptr)},
  };
  return kDefaults;
}

/// A row that decides about numbers and leaves the default to sluice.
bool leaves_the_default(const DeepSpeedKey& row) {
  return row.conversion != Conversion::kDropped && row.unset.empty();
}

/// A file that says `value` where DeepSpeed would take it anyway.
DeepSpeedImport with(const DeepSpeedKey& row, const json& value) {
  std::string pointer = "/" + row.from.substr(0, row.from.find(".*"));
  std::ranges::replace(pointer, '.', '/');
  json file = json::object();
  file[json::json_pointer(pointer)] = value;
  return import_deepspeed(file.dump(), "ds.json");
}

TEST(DeepSpeedDefaults, AKeyThatIsLeftOutMeansWhatItMeansThere) {
  const std::vector<std::string> model = {"model.preset=tiny"};
  for (const DeepSpeedKey& row : deepspeed_keys()) {
    if (!leaves_the_default(row)) continue;
    SCOPED_TRACE(row.from);
    const auto found = defaults().find(row.from);
    ASSERT_NE(found, defaults().end()) << "say what DeepSpeed's default is";
    const json* theirs = std::get_if<json>(&found->second);
    if (theirs == nullptr) continue;
    const DeepSpeedImport import = with(row, *theirs);  // anything else would be refused
    if (row.to.empty()) continue;
    const Field* field = find_field(row.to);
    EXPECT_EQ(field->write(from_text(import.yaml, model)), field->write(Config{}));
  }
}

TEST(DeepSpeedDefaults, TheTableHasNoOtherKeys) {
  for (const auto& [key, unused] : defaults()) {
    const DeepSpeedKey* row = find_deepspeed_key(key);
    ASSERT_NE(row, nullptr) << key;
    EXPECT_TRUE(row->from == key && leaves_the_default(*row)) << key;
  }
}

}  // namespace
}  // namespace sluice::config
