"""The shape of a base of Llama's form, and what follows from it alone: parameters, adapters, optimizer states."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popu.artifacts import read_json
from popu.config import Lora
from popu.errors import ArtifactError, ConfigError

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
FEED_FORWARD = ("gate_proj", "up_proj", "down_proj")
FLOAT32 = 4  # bytes
MOMENTS = 2  # float32 values that AdamW keeps a parameter, beside one number of steps a tensor


@dataclass(frozen=True)
class Shape:
    """A decoder of gated feed-forward layers and grouped attention (Llama, Mistral, Qwen2); widths in units.

    `tied`: input and output embedding are one matrix. `biased`: the linear modules that have a bias.
    `positions`: the longest text that it takes, in tokens.
    """

    hidden: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    biased: tuple[str, ...] = ()
    positions: int = 32_768

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """(d_out, d_in) of the seven linear modules of a layer."""
        queries, keys = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        return {
            "q_proj": (queries, self.hidden),
            "k_proj": (keys, self.hidden),
            "v_proj": (keys, self.hidden),
            "o_proj": (self.hidden, queries),
            "gate_proj": (self.intermediate, self.hidden),
            "up_proj": (self.intermediate, self.hidden),
            "down_proj": (self.hidden, self.intermediate),
        }


_QKV = ("q_proj", "k_proj", "v_proj")
# Public shapes, for plans without weights: hidden, layers, heads, kv heads, head, intermediate, vocabulary, tied.
KNOWN = {
    "qwen2.5-coder-0.5b": Shape(896, 24, 14, 2, 64, 4864, 151_936, True, _QKV),
    "qwen2.5-coder-1.5b": Shape(1536, 28, 12, 2, 128, 8960, 151_936, True, _QKV),
    "qwen2.5-coder-3b": Shape(2048, 36, 16, 2, 128, 11_008, 151_936, True, _QKV),
    "qwen2.5-coder-7b": Shape(3584, 28, 28, 4, 128, 18_944, 152_064, False, _QKV),
    # SmolLM2-135M, where this workflow puts it
    "smollm2": Shape(576, 30, 9, 3, 64, 1536, 49_152, True, positions=8192),
}


def shape_of(path: Path) -> Shape:
    """The shape of the base in a directory: of its config.json, else of `KNOWN` by the directory's name.

    Raises ConfigError for a base of another form, or where neither says anything; ArtifactError for a broken file.
    """
    file = path / "config.json"
    if file.is_file():
        return shape_of_config(read_json(file), file)
    name = path.name.lower().removesuffix("-instruct")
    if name not in KNOWN:
        known = ", ".join(KNOWN)
        raise ConfigError(f"base.path: expected a directory with config.json, or one named {known}, found {path}")
    return KNOWN[name]


def shape_of_config(config: Mapping[str, Any], file: Path) -> Shape:
    """The shape that a Hugging Face config states. Raises ConfigError, ArtifactError."""
    kind = config.get("model_type")
    if kind not in ("llama", "mistral", "qwen2"):
        raise ConfigError(f"base.path: expected a base of type llama, mistral or qwen2 in {file}, found {kind!r}")
    try:
        heads = int(config["num_attention_heads"])
        return Shape(
            hidden=int(config["hidden_size"]),
            n_layers=int(config["num_hidden_layers"]),
            n_heads=heads,
            n_kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or config["hidden_size"] // heads),
            intermediate=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            biased=_biased(kind, config),
            positions=int(config["max_position_embeddings"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{file}: expected the widths of a model, found: {error!r}") from error


def _biased(kind: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    if kind == "qwen2":
        return _QKV
    attention = ATTENTION if config.get("attention_bias") else ()
    return attention + (FEED_FORWARD if config.get("mlp_bias") else ())


def parameters(shape: Shape) -> int:
    """Parameters of the base.

    vocab * hidden, twice where the embeddings are not tied; a layer's seven matrices d_out * d_in with d_out more for
    each that has a bias, and its two norms of `hidden`; a last norm.
    """
    embeddings = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    matrices = sum(d_out * d_in for d_out, d_in in shape.linears.values())
    biases = sum(shape.linears[name][0] for name in shape.biased)
    return embeddings + shape.n_layers * (matrices + biases + 2 * shape.hidden) + shape.hidden


def adapter_parameters(shape: Shape, lora: Lora) -> int:
    """Parameters of one adapter: rank * (d_in + d_out) for every targeted matrix. Raises ConfigError."""
    return lora.rank * sum(sum(shape.linears[name]) for name in _targets(lora)) * shape.n_layers


def adapter_bytes(shape: Shape, lora: Lora) -> int:
    """An adapter's file: float32, its header not counted."""
    return FLOAT32 * adapter_parameters(shape, lora)


def optimizer_bytes(shape: Shape, lora: Lora) -> int:
    """An optimizer state's file: two float32 moments a parameter, and a count of steps for each of A and B."""
    tensors = 2 * len(_targets(lora)) * shape.n_layers
    return FLOAT32 * (MOMENTS * adapter_parameters(shape, lora) + tensors)


def fused_parameters(shape: Shape, lora: Lora) -> int:
    """Numbers that an adapter takes in a forward pass, where modules that read one input are one product.

    k such modules of rank r: A stacked (k r, d_in), B on a block diagonal (k r, sum of d_out), zeros included.
    """
    total = 0
    for group in (_QKV, ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",)):
        n_adapted = sum(name in lora.targets for name in group)
        d_in, d_out = shape.linears[group[0]][1], sum(shape.linears[name][0] for name in group)
        total += n_adapted * lora.rank * (d_in + d_out)
    return total * shape.n_layers


def _targets(lora: Lora) -> frozenset[str]:
    for name in lora.targets:
        if name not in ATTENTION + FEED_FORWARD:
            known = ", ".join(ATTENTION + FEED_FORWARD)
            raise ConfigError(f"training.lora.targets: expected names among {known}, found {name!r}")
    return frozenset(lora.targets)
