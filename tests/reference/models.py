"""GPT-2 and Llama in plain PyTorch: everything in one place, gradients by autograd.

In bf16 and fp16 the numbers are fp32 tensors that hold such values: a product of two is exact in
fp32 and sums are taken there, which is what their kernels do, and `round` of Bf16 and Fp16 says
where a result becomes one again. That is after every product, activation, norm, rotation and residual sum,
in the forward as in the backward pass (docs/design.md 4, engine/model); inside attention it is the
weights of the values, before they are divided by their sum.
"""
import math

import torch
import torch.nn.functional as F


class Round(torch.autograd.Function):
    @staticmethod
    def forward(context, x, dtype):
        context.dtype = dtype
        return x.to(dtype).float()

    @staticmethod
    def backward(context, gradient):
        return gradient.to(context.dtype).float(), None


class Fp32:
    round = staticmethod(lambda x: x)


class Bf16:
    round = staticmethod(lambda x: Round.apply(x, torch.bfloat16))


class Fp16:
    round = staticmethod(lambda x: Round.apply(x, torch.float16))


class Weights:
    """Master weights by name, rounded to the compute type at each use; so is a use's gradient."""

    def __init__(self, masters, precision):
        self.masters, self.precision = masters, precision

    def __getitem__(self, name):
        return self.precision.round(self.masters[name])

    def get(self, name):
        return self[name] if name in self.masters else None


def attention(q, k, v, r):
    """Causal; q, k, v: [batch, heads, tokens, head_dim]."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(later, -math.inf)
    weights = torch.exp(scores - scores.detach().amax(-1, keepdim=True))
    return r(r(weights) @ v / weights.sum(-1, keepdim=True))


def heads(x, count):
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def gpt2(w, c, tokens):
    r = w.precision.round
    eps = c.get("layer_norm_epsilon", 1e-5)

    def norm(x, name):
        return r(F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], eps))

    def conv1d(x, name):
        return r(x @ w[name + ".weight"] + w[name + ".bias"])

    x = r(w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]])
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        q, k, v = conv1d(norm(x, p + "ln_1"), p + "attn.c_attn").split(c["n_embd"], dim=-1)
        mixed = attention(*(heads(t, c["n_head"]) for t in (q, k, v)), r)
        x = r(x + conv1d(mixed.transpose(1, 2).reshape(x.shape), p + "attn.c_proj"))
        up = conv1d(norm(x, p + "ln_2"), p + "mlp.c_fc")
        gelu = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up ** 3)))
        x = r(x + conv1d(r(gelu), p + "mlp.c_proj"))
    tied = c.get("tie_word_embeddings", True)
    head = w["transformer.wte.weight" if tied else "lm_head.weight"]
    return r(norm(x, "transformer.ln_f") @ head.T)


def rotate(x, theta, r):
    """x: [batch, heads, tokens, head_dim]; the two halves of head_dim are the pairs."""
    half = x.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(x.shape[2], dtype=torch.float32)[:, None] * frequency
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return r(torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1))


def llama(w, c, tokens):
    r = w.precision.round

    def norm(x, name):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"])
        return r(x * scale * w[name + ".weight"])

    def linear(x, name):
        y = x @ w[name + ".weight"].T
        bias = w.get(name + ".bias")
        return r(y if bias is None else y + bias)

    group = c["num_attention_heads"] // c["num_key_value_heads"]
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        y = norm(x, p + "input_layernorm")
        q = heads(linear(y, p + "self_attn.q_proj"), c["num_attention_heads"])
        k = heads(linear(y, p + "self_attn.k_proj"), c["num_key_value_heads"])
        v = heads(linear(y, p + "self_attn.v_proj"), c["num_key_value_heads"])
        q, k = rotate(q, c["rope_theta"], r), rotate(k, c["rope_theta"], r)
        mixed = attention(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), r)
        x = r(x + linear(mixed.transpose(1, 2).reshape(x.shape), p + "self_attn.o_proj"))
        y = norm(x, p + "post_attention_layernorm")
        gate, up = linear(y, p + "mlp.gate_proj"), linear(y, p + "mlp.up_proj")
        x = r(x + linear(r(r(F.silu(gate)) * up), p + "mlp.down_proj"))
    tied = c.get("tie_word_embeddings", False)
    head = w["model.embed_tokens.weight" if tied else "lm_head.weight"]
    return r(norm(x, "model.norm") @ head.T)


FORWARD = {"gpt2": gpt2, "llama": llama}
