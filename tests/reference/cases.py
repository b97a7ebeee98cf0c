"""The runs that are compared, each as fields that PyTorch's side reads and as sluice's run file."""
import dataclasses
import typing

SEQ, VOCAB, SAMPLES = 48, 307, 47  # an epoch ends inside a run, and inside a step
RARE = VOCAB  # the token of One overflow

GPT2 = dict(model_type="gpt2", vocab_size=VOCAB, n_embd=60, n_layer=3, n_head=4, n_inner=200,
            n_positions=64)
LLAMA = dict(model_type="llama", vocab_size=VOCAB, hidden_size=60, num_hidden_layers=3,
             num_attention_heads=6, num_key_value_heads=2, intermediate_size=136,
             max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=10000.0)

IN_HOST_MEMORY = dict(offload_param="none", offload_gradient="none", offload_optimizer="cpu")
MOVED = dict(offload_param="cpu", offload_optimizer="nvme", offload_activation="cpu")
ALL_ON_NVME = dict(offload_param="nvme", offload_optimizer="nvme", offload_activation="nvme")

# [Note: One overflow] One step of fp32 whose gradient is not finite, for certain, beside others
# that do not notice. RARE begins a single sample, and its row of the embedding is zero in the first
# weights. It attends to itself alone and no projection adds a bias, so it is zero in all layers and
# its loss is finite. On the way back each norm multiplies its gradient by 1 / sqrt(rms_norm_eps),
# 1e18, and three of them are more than fp32 holds. To all other tokens this eps is nothing. The row
# has no gradient in any other step, and weight decay leaves zero where it is.
OVERFLOWING = dict(LLAMA, vocab_size=VOCAB + 1, rms_norm_eps=1e-36)

BY_SEGMENT = dict(clip_scope="segment", update="arriving", on_nonfinite="stop")

EVERY, SOME, NONE = {"every step"}, {"some steps"}, {"no step"}


@dataclasses.dataclass
class Case:
    model: dict
    placement: dict
    optimizer: dict
    schedule: dict
    clipping: typing.Optional[float]
    clipped: set            # which steps the limit is meant to reach, of one segment or another
    clip_scope: str = "global"
    on_nonfinite: str = "skip"
    update: str = "auto"
    delayed_update_start: int = 0           # the first step that leaves its gradient behind
    drain: typing.Optional[bool] = None     # what is pending is applied before each evaluation
    accumulation: int = 1
    batch: int = 3
    seed: int = 11
    shuffle: bool = True
    compute: str = "fp32"
    scale_power: int = 16   # of the first loss scale of fp16
    window: int = 1000      # steps until it is doubled
    sub_group: str = "96KiB"
    loss_chunk: typing.Union[str, int] = "auto"
    samples: int = SAMPLES
    overflow: typing.Optional[int] = None   # the step, from 0, that meets RARE
    steps: int = 20
    evaluate_every: int = 7
    evaluation_batches: int = 3

    @property
    def layers(self):
        return self.model.get("n_layer") or self.model["num_hidden_layers"]


def optimizer(kind, lr=3e-3, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1):
    return dict(type=kind, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


def schedule(kind, warmup, ratio):
    return dict(type=kind, warmup_steps=warmup, min_lr_ratio=ratio)


CASES = {
    "gpt2, every step clipped": Case(
        model=GPT2, placement=MOVED, optimizer=optimizer("adamw", eps=1e-8),
        schedule=schedule("cosine", 4, 0.1), clipping=0.5, clipped=EVERY, accumulation=2,
        shuffle=False),
    "llama, never clipped": Case(
        model=LLAMA, placement=IN_HOST_MEMORY, optimizer=optimizer("adam", weight_decay=0.01),
        schedule=schedule("linear", 0.1, 0.0), clipping=None, clipped=NONE, seed=2**40 + 3),
    "llama, tied, biases, some steps clipped": Case(
        model=dict(LLAMA, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                   rms_norm_eps=1e-3, rope_theta=50.0, initializer_range=0.1),
        placement=ALL_ON_NVME, optimizer=optimizer("adamw", betas=(0.8, 0.99)),
        schedule=schedule("wsd", 2, 0.2), clipping=1.6, clipped=SOME, accumulation=3,
        loss_chunk=100),
    "gpt2, untied": Case(
        model=dict(GPT2, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
        placement=ALL_ON_NVME, optimizer=optimizer("adamw", weight_decay=0.5),
        schedule=schedule("constant", 0.2, 0.3), clipping=None, clipped=NONE, sub_group="48KiB"),
    "gpt2, bf16": Case(
        model=GPT2, placement=MOVED, optimizer=optimizer("adamw"),
        schedule=schedule("cosine", 4, 0.1), clipping=None, clipped=NONE, accumulation=2,
        compute="bf16"),
    "llama, bf16": Case(
        model=LLAMA, placement=ALL_ON_NVME, optimizer=optimizer("adamw"),
        schedule=schedule("cosine", 4, 0.1), clipping=2.0, clipped=SOME, compute="bf16"),
    # Its first scales overflow, and it finds its way down and up again. Few steps: with roundings this
    # small most of the distance is how far the weights have come apart, and that grows.
    "llama, fp16": Case(
        model=LLAMA, placement=ALL_ON_NVME, optimizer=optimizer("adamw"),
        schedule=schedule("cosine", 4, 0.1), clipping=1.45, clipped=SOME, compute="fp16",
        steps=12, scale_power=23, window=3),
    "gpt2, fp16": Case(
        model=GPT2, placement=MOVED, optimizer=optimizer("adamw"),
        schedule=schedule("cosine", 4, 0.1), clipping=None, clipped=NONE, compute="fp16"),
    # [Note: By segment] The eps is of the size of a gradient's elements (norms near 0.5, of 2e4 of
    # them). With a small one Adam hardly sees a factor that stays: a limit that is wrong by 1e-4
    # moves a loss by 4e-7 of itself, here by 1e-5. And elements that are rounding alone move less:
    # the losses of the two sides are 1.3e-7 of themselves apart after 20 steps and 2e-7 after 100,
    # as they fall to half. With a learning rate of 3e-3 and an eps of 1e-6 it is 3.4e-7.
    "llama, untied, clipped by segment": Case(
        model=LLAMA, placement=MOVED, optimizer=optimizer("adamw", lr=2e-3, eps=1e-3),
        schedule=schedule("cosine", 4, 0.1), clipping=0.56, clipped=SOME | NONE, accumulation=2,
        steps=100, **BY_SEGMENT),
    "gpt2, tied, clipped by segment": Case(
        model=GPT2, placement=ALL_ON_NVME, optimizer=optimizer("adamw", lr=2e-3, eps=1e-3),
        schedule=schedule("cosine", 4, 0.1), clipping=0.65, clipped=SOME | NONE, accumulation=2,
        steps=100, **BY_SEGMENT),
    # [Note: Delayed] By how much of itself a mistake moves a loss in the next two cases, where
    # 1e-6 is allowed and the rounding of the first weights moves it by 2.3e-7. A gradient that is
    # applied at once or two steps late: 2e-2. One that is applied with what the later step has:
    # learning rate 5e-3, factor 9e-4, count of updates 1e-3. A skipped step that counts as an
    # update: 7e-4; that takes the gradient before it along: 9e-3. A delay that begins a step too
    # late: 1e-3; that does not begin again behind an evaluation that drained: 1e-2. A learning rate
    # that is wrong by 1e-4: 4e-5; such a limit: 4e-6. If nothing is drained at the end, the last
    # evaluation is 8e-5 off. In bf16, where 5e-3 nats are allowed: at once or two steps late 0.14,
    # learning rate 4e-2, factor 1e-2, count 1e-2.
    "llama, untied, delayed, one step skipped": Case(
        model=OVERFLOWING, placement=MOVED, optimizer=optimizer("adamw", lr=2e-3, eps=1e-3),
        schedule=schedule("cosine", 12, 0.1), clipping=0.9, clipped=SOME, accumulation=2,
        update="delayed", delayed_update_start=7, overflow=10, samples=500, steps=100),
    "gpt2, tied, delayed, drained, clipped by segment": Case(
        model=GPT2, placement=ALL_ON_NVME, optimizer=optimizer("adamw", lr=2e-3, eps=1e-3),
        schedule=schedule("cosine", 8, 0.1), clipping=0.8, clipped=SOME | NONE,
        clip_scope="segment", update="delayed", drain=True, steps=100),
    "llama, bf16, delayed": Case(
        model=LLAMA, placement=IN_HOST_MEMORY, optimizer=optimizer("adamw"),
        schedule=schedule("cosine", 4, 0.1), clipping=1.1, clipped=SOME, accumulation=2,
        compute="bf16", update="delayed", delayed_update_start=2),
    # [Note: Skipped by segment] In the step that is skipped the gradients of the last norm and of
    # the head are finite; were they applied, a loss would move by 9e-3. What its other micro-batch
    # leaves: 1e-2. A skipped step that counts as an update: 3e-4. Limits by one norm of all: 5e-2,
    # of all layers: 4e-3; limits that are wrong by 1e-4: 2.5e-6. The delayed run skips a step that
    # is evaluated, behind which nothing waits to be drained: if what the step before left is
    # applied once more, or not at all, 1e-2.
    "llama, untied, clipped by segment at the end, one step skipped": Case(
        model=OVERFLOWING, placement=ALL_ON_NVME, optimizer=optimizer("adamw", lr=2e-3, eps=1e-3),
        schedule=schedule("cosine", 4, 0.1), clipping=0.56, clipped=SOME | NONE,
        clip_scope="segment", accumulation=2, update="end", overflow=10, samples=500, steps=100),
    "llama, untied, delayed, drained, clipped by segment, one step skipped": Case(
        model=OVERFLOWING, placement=IN_HOST_MEMORY,
        optimizer=optimizer("adamw", lr=2e-3, eps=1e-3), schedule=schedule("cosine", 12, 0.1),
        clipping=0.56, clipped=SOME | NONE, clip_scope="segment", accumulation=2,
        update="delayed", delayed_update_start=5, drain=True, overflow=13, samples=500, steps=100),
}

# train.steps 0 writes the first weights: two seeds, two sizes of chunk, two placements each.
INITIAL = {
    f"first weights of {model['model_type']}, seed {seed}, {sub_group}": Case(
        model=model, placement=placement, seed=seed, sub_group=sub_group, steps=0,
        optimizer=optimizer("adamw"), schedule=schedule("constant", 0, 0.0), clipping=None,
        clipped=NONE)
    for model in (GPT2, dict(LLAMA, attention_bias=True, initializer_range=0.1))
    for seed, sub_group, placement in ((11, "48KiB", MOVED), (2**40 + 3, "192KiB", IN_HOST_MEMORY))
}


def run_file(case, folder, name):
    zero = {key: dict(device=device) for key, device in case.placement.items()}
    model = dict(config=case.model) if case.overflow is None else dict(path=str(folder / "model"))
    update = dict(update=case.update)
    if case.update == "delayed":
        update["delayed_update_start"] = case.delayed_update_start
    drain = {} if case.drain is None else dict(drain=case.drain)
    return dict(
        version=1, name=name, output_dir=str(folder / "${name}"), seed=case.seed,
        model=model,
        data=dict(train=[str(folder / "train-*.bin")], valid=[str(folder / "valid.bin")],
                  seq_len=SEQ, shuffle=case.shuffle),
        train=dict(steps=case.steps, train_micro_batch_size_per_gpu=case.batch,
                   gradient_accumulation_steps=case.accumulation,
                   gradient_clipping=case.clipping, clip_scope=case.clip_scope,
                   on_nonfinite=case.on_nonfinite),
        eval=dict(every=case.evaluate_every, batches=case.evaluation_batches, **drain),
        precision=dict(compute=case.compute, initial_scale_power=case.scale_power,
                       loss_scale_window=case.window),
        compute=dict(loss_chunk=case.loss_chunk, threads=1),
        optimizer=dict(case.optimizer, betas=list(case.optimizer["betas"]), **update),
        scheduler=case.schedule,
        zero_optimization=dict(zero, sub_group_size=case.sub_group),
        tiers=dict(gpu=dict(unified=False, limit="256MiB"), cpu=dict(limit="256MiB"),
                   nvme=dict(allow_ram_path=True)),
        cpu_adam=dict(stores="cached"),
        checkpoint=dict(final_dtype="fp32"))
