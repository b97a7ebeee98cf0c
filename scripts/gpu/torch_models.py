"""A Llama and a GPT-2 as one writes them in PyTorch, by the keys of a Hugging Face config.json."""
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def rotated(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


class LlamaLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        kv = hidden // self.heads * self.kv_heads
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(hidden, eps=1e-6) for _ in range(2))
        self.q, self.o = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(hidden, kv, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x, cos, sin):
        normed = self.attention_norm(x)
        q, k, v = (linear(normed).unflatten(-1, (heads, -1)).transpose(1, 2)
                   for linear, heads in ((self.q, self.heads), (self.k, self.kv_heads),
                                         (self.v, self.kv_heads)))
        context = functional.scaled_dot_product_attention(
            rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.o(context.transpose(1, 2).flatten(2))
        normed = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))


class Gpt2Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.heads = config["n_embd"], config["n_head"]
        self.attention_norm, self.mlp_norm = (nn.LayerNorm(hidden, eps=1e-5) for _ in range(2))
        self.qkv, self.o = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.attention_norm(x)).chunk(3, dim=-1))
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(context.transpose(1, 2).flatten(2))
        inner = functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh")
        return x + self.down(inner)


class Decoder(nn.Module):
    """What both have: layers between an embedding and a loss. `recompute`: layers run their forward
    again in backward."""

    def __init__(self, config, recompute, hidden, layers, norm):
        super().__init__()
        self.embed = nn.Embedding(config["vocab_size"], hidden)
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.head = nn.Linear(hidden, config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.head.weight = self.embed.weight
        self.recompute = recompute

    def draw(self):
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def loss(self, x, rest, targets):
        for layer in self.layers:
            if self.recompute:
                x = checkpoint(layer, x, *rest, use_reentrant=False)
            else:
                x = layer(x, *rest)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Llama(Decoder):
    def __init__(self, config, recompute):
        hidden = config["hidden_size"]
        layers = (LlamaLayer(config) for _ in range(config["num_hidden_layers"]))
        super().__init__(config, recompute, hidden, layers, nn.RMSNorm(hidden, eps=1e-6))
        self.draw()
        width = hidden // config["num_attention_heads"]
        rates = config["rope_theta"] ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(config["max_position_embeddings"]), rates)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos())
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin())

    def forward(self, tokens, targets):
        length = tokens.shape[1]
        return self.loss(self.embed(tokens), (self.cos[:length], self.sin[:length]), targets)


class Gpt2(Decoder):
    def __init__(self, config, recompute):
        hidden = config["n_embd"]
        layers = (Gpt2Layer(config) for _ in range(config["n_layer"]))
        super().__init__(config, recompute, hidden, layers, nn.LayerNorm(hidden, eps=1e-5))
        self.positions = nn.Embedding(config["n_positions"], hidden)
        self.draw()

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.loss(self.embed(tokens) + self.positions(places), (), targets)


def model_of(config, recompute=False):
    return {"llama": Llama, "gpt2": Gpt2}[config["model_type"]](config, recompute)
