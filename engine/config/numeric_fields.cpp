#include "engine/config/keys.h"

namespace sluice::config {

std::vector<Field> numeric_fields() {
  using C = Config;
  using O = train::OptimizerOptions;
  using S = data::SchedulerOptions;
  using data::SchedulerType;
  using train::OptimizerType;
  using L = train::LossScaleOptions;
  const auto dtype =
      choice<DType>({{"bf16", DType::kBf16}, {"fp16", DType::kF16}, {"fp32", DType::kF32}});
  return {
      key("precision.compute", dtype,
          "The type in which forward and backward pass compute. The optimizer always keeps its own "
          "weights in fp32. fp16 needs a loss scale",
          &C::precision, &PrecisionOptions::compute),
      key("precision.grad_dtype", or_auto(dtype),
          "The type of a step's gradient. bf16 and fp16 need one micro-batch per step and the same "
          "type of compute. A tied embedding has two gradients, whose sum is always fp32",
          &C::precision, &PrecisionOptions::grad_dtype),
      key("precision.tf32", boolean(),
          "With fp32, on a CUDA device: products round their factors to TF32, whose fraction has "
          "10 "
          "bits as that of fp16",
          &C::precision, &PrecisionOptions::tf32),
      key("precision.loss_scale", or_auto(power_of_two(train::kMostLossScale)),
          "With fp16: what the loss is multiplied by on its way back. auto tries: half of it after "
          "a gradient that overflowed, the double after loss_scale_window steps that did not",
          &C::precision, &PrecisionOptions::loss_scale, &L::fixed),
      key("precision.initial_scale_power", integer<int>(0, 32),
          "The power of two that auto tries first", &C::precision, &PrecisionOptions::loss_scale,
          &L::initial_power),
      key("precision.loss_scale_window", count(1, kMostCount),
          "How many steps without an overflow come before auto tries the double", &C::precision,
          &PrecisionOptions::loss_scale, &L::window),
      key("precision.min_loss_scale", power_of_two(train::kMostLossScale),
          "auto goes no lower; a gradient that still overflows counts for train.max_skips",
          &C::precision, &PrecisionOptions::loss_scale, &L::least),
      key("optimizer.type",
          choice<OptimizerType>({{"adamw", OptimizerType::kAdamW}, {"adam", OptimizerType::kAdam}}),
          "adamw subtracts weight decay from the weights, adam adds it to the gradient",
          &C::optimizer, &O::type),
      key("optimizer.update",
          or_auto(named<schedule::Update>(
              {schedule::Update::kEnd, schedule::Update::kArriving, schedule::Update::kDelayed})),
          "When the optimizer works: at the end, once all gradients of the step are there, or on "
          "each segment as its gradient arrives, which needs memory for the gradients of a few "
          "segments only. The same bits. delayed applies each gradient one step late, beside the "
          "next step: other numbers. auto takes the shorter simulated step of the first two, where "
          "the run allows both: docs/update.md",
          &C::optimizer, &O::update),
      key("optimizer.delayed_update_start", count_or_fraction(kMostCount),
          "With update: delayed, how many steps, or what share of all steps, come before the first "
          "whose update is delayed",
          &C::optimizer, &O::delayed_update_start),
      key("optimizer.lr", number(0, 1000), "The highest learning rate of the run", &C::optimizer,
          &O::lr),
      key("optimizer.betas", pair_of(number(0, 1, Ends::kOpenHigh)),
          "How much of the first and of the second moment is kept in each step", &C::optimizer,
          &O::betas),
      key("optimizer.eps", number(1e-30, 1),
          "A small number that is added to the root of the second moment, so that nothing is "
          "divided by 0",
          &C::optimizer, &O::eps),
      key("optimizer.weight_decay", number(0, 1000),
          "How strongly weights are pulled towards 0. It applies to tensors of two or more "
          "dimensions, not to biases and norms",
          &C::optimizer, &O::weight_decay),
      key("scheduler.type",
          choice<SchedulerType>({{"cosine", SchedulerType::kCosine},
                                 {"constant", SchedulerType::kConstant},
                                 {"linear", SchedulerType::kLinear},
                                 {"wsd", SchedulerType::kWsd}}),
          "How the learning rate goes down after warm-up: along half a cosine, not at all, along a "
          "straight line, or (wsd) along a straight line over the last fifth of all steps",
          &C::scheduler, &S::type),
      key("scheduler.warmup_steps", count_or_fraction(kMostCount),
          "For how many steps, or what share of all steps, the learning rate goes up from 0 to "
          "optimizer.lr",
          &C::scheduler, &S::warmup_steps),
      key("scheduler.min_lr_ratio", fraction(),
          "The learning rate at the end, as a share of optimizer.lr", &C::scheduler,
          &S::min_lr_ratio),
      key("compute.threads", or_auto(integer<unsigned>(1, 4096)),
          "Threads of the forward and backward pass on a CPU; another number gives other bits. "
          "auto takes one per core of the affinity mask, or of the cgroup's quota",
          &C::compute, &ComputeOptions::threads),
      key("compute.loss_chunk", or_auto(whole(1, 1 << 30)),
          "How many columns of the vocabulary the output layer takes at a time; another number "
          "gives other bits",
          &C::compute, &ComputeOptions::loss_chunk),
      key("compute.mlp_chunk", or_auto(whole(1, 1 << 30)),
          "How many tokens the MLP of a layer takes at a time: fewer need less memory; another "
          "number gives other bits. auto takes all of a micro-batch but a long one's",
          &C::compute, &ComputeOptions::mlp_chunk),
  };
}

}  // namespace sluice::config
