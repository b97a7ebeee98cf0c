"""The weights that a run begins with, from engine/shape/init.h and the paper it names.

Philox4x32-10 is written from Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2,
3 (SC 2011): ten rounds of two 32 x 32 bit products, the keys bumped by a Weyl sequence.
"""
import math

import numpy as np

WORD = np.uint64(0xFFFFFFFF)


def philox(counter, key):
    """Four words of 32 random bits; each word of `counter` may be an array."""
    c = [np.asarray(word, dtype=np.uint64) for word in counter]
    for bump in range(10):
        k = [np.uint64((word + bump * weyl) % 2**32)
             for word, weyl in zip(key, (0x9E3779B9, 0xBB67AE85))]
        even, odd = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(odd >> np.uint64(32)) ^ c[1] ^ k[0], odd & WORD,
             (even >> np.uint64(32)) ^ c[3] ^ k[1], even & WORD]
    return c


# The known answers that the authors publish with Random123: (counter, key, result).
KNOWN_ANSWERS = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]


def check_philox():
    for counter, key, want in KNOWN_ANSWERS:
        assert tuple(int(word) for word in philox(counter, key)) == want, (counter, key)


def fnv1a(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def normal(seed, name, shape, std):
    """The sum of eight uniform 16-bit numbers per element, centred and scaled to `std`."""
    element = np.arange(math.prod(shape), dtype=np.uint64)
    tensor = fnv1a(name)
    words = philox((element & WORD, element >> np.uint64(32), tensor % 2**32, tensor >> 32),
                   (seed % 2**32, seed >> 32))
    total = sum((word & np.uint64(0xFFFF)) + (word >> np.uint64(16)) for word in words)
    centred = total.astype(np.float64) - 8 * 65535 / 2
    # Integers and one product in double, rounded to fp32: nothing in it depends on a machine.
    return (centred * (std / math.sqrt(8 * (2**32 - 1) / 12))).astype(np.float32).reshape(shape)


def gpt2_shapes(c):
    """Name -> (shape, standard deviation, or None for a bias and 1 for a norm's gain)."""
    hidden, inner, std = c["n_embd"], c["n_inner"], c.get("initializer_range", 0.02)
    into_residual = std / math.sqrt(2 * c["n_layer"])
    shapes = {"transformer.wte.weight": ((c["vocab_size"], hidden), std),
              "transformer.wpe.weight": ((c["n_positions"], hidden), std)}

    def linear(name, inputs, outputs, deviation):
        shapes[name + ".weight"] = ((inputs, outputs), deviation)
        shapes[name + ".bias"] = ((outputs,), 0.0)

    def norm(name):
        shapes[name + ".weight"] = ((hidden,), None)
        shapes[name + ".bias"] = ((hidden,), 0.0)

    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        norm(p + "ln_1")
        linear(p + "attn.c_attn", hidden, 3 * hidden, std)
        linear(p + "attn.c_proj", hidden, hidden, into_residual)
        norm(p + "ln_2")
        linear(p + "mlp.c_fc", hidden, inner, std)
        linear(p + "mlp.c_proj", inner, hidden, into_residual)
    norm("transformer.ln_f")
    if not c.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = ((c["vocab_size"], hidden), std)
    return shapes


def llama_shapes(c):
    hidden, inner, std = c["hidden_size"], c["intermediate_size"], c.get("initializer_range", 0.02)
    kv = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": ((c["vocab_size"], hidden), std),
              "model.norm.weight": ((hidden,), None)}
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{p}{name}.weight"] = ((hidden,), None)
        for name, inputs, outputs, bias in (
                ("self_attn.q_proj", hidden, hidden, "attention_bias"),
                ("self_attn.k_proj", hidden, kv, "attention_bias"),
                ("self_attn.v_proj", hidden, kv, "attention_bias"),
                ("self_attn.o_proj", hidden, hidden, "attention_bias"),
                ("mlp.gate_proj", hidden, inner, "mlp_bias"),
                ("mlp.up_proj", hidden, inner, "mlp_bias"),
                ("mlp.down_proj", inner, hidden, "mlp_bias")):
            shapes[f"{p}{name}.weight"] = ((outputs, inputs), std)
            if c.get(bias, False):
                shapes[f"{p}{name}.bias"] = ((outputs,), 0.0)
    if not c.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = ((c["vocab_size"], hidden), std)
    return shapes


def initial_weights(config, seed):
    """All tensors of a model, by their names in Hugging Face's checkpoints."""
    shapes = {"gpt2": gpt2_shapes, "llama": llama_shapes}[config["model_type"]](config)
    weights = {}
    for name, (shape, std) in shapes.items():
        if std is None:
            weights[name] = np.ones(shape, dtype=np.float32)
        elif std == 0.0:
            weights[name] = np.zeros(shape, dtype=np.float32)
        else:
            weights[name] = normal(seed, name, shape, std)
    return weights
