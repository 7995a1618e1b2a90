"""The forward pass of Llama-shaped bases, written out: `flat.HookedForward` in a fraction of the operations.

Projections that read the same input are one product, and so are their adapters: the A of all stacked, the B on a block
diagonal. Adapters lie side by side, so that many cost two batched products a projection, as one does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from popu.engine.flat import Attend
from popu.engine.multilora import Segment
from popu.engine.rectangle import Rectangle

MODEL_TYPES = ("llama", "mistral", "qwen2")
STATIC_ROPE = ("default", "linear", "llama3")  # whose angles depend on the position alone


@dataclass(frozen=True)
class Projection:
    """Linear layers that read one input, fused: `weight` (sum of d_out, d_in), `parts` their names and d_out."""

    weight: Tensor
    bias: Tensor | None
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Layer:
    """A decoder layer: attention and gated feed-forward, each behind an RMS norm (weight, eps)."""

    attention_norm: tuple[Tensor, float]
    qkv: Projection
    out: Projection
    feed_norm: tuple[Tensor, float]
    gate_up: Projection
    down: Projection


def is_llama_shaped(model: PreTrainedModel) -> bool:
    """Whether `LlamaForward` is the model's forward pass."""
    config = model.config
    rope = (config.rope_parameters or {}).get("rope_type", "default") if hasattr(config, "rope_parameters") else None
    return (
        config.model_type in MODEL_TYPES
        and rope in STATIC_ROPE
        and config.hidden_act == "silu"
        and getattr(config, "sliding_window", None) is None
    )


class LlamaForward:
    """See `flat.Forward`. The model's own projections become views of the fused ones: nothing is stored twice."""

    def __init__(self, model: PreTrainedModel) -> None:
        names = {module: name for name, module in model.named_modules()}
        decoder: Any = model.get_decoder()
        self.head_dim = decoder.layers[0].self_attn.head_dim
        self.embedding, self.head = decoder.embed_tokens, model.get_output_embeddings()
        self.layers = [_layer(layer, names) for layer in decoder.layers]
        self.norm = _norm(decoder.norm)
        self.device = self.embedding.weight.device
        n_positions = model.config.max_position_embeddings
        cos, sin = decoder.rotary_emb(
            self.embedding.weight[:1, None], torch.arange(n_positions, device=self.device)[None]
        )
        half = cos.shape[-1] // 2
        self.cos = cos[0, :, None]  # (n_positions, 1, d)
        self.sin = torch.cat([-sin[0, :, None, :half], sin[0, :, None, half:]], -1)  # of the halves exchanged
        self._adapters: Adapters | None = None

    def states(
        self, ids: Tensor, positions: Tensor, segments: Sequence[Segment], attend: Attend, recompute: bool = False
    ) -> Tensor:
        """See `flat.Forward`."""
        if sum(segment.n_tokens for segment in segments) != len(ids):
            raise ValueError(f"segments: expected {len(ids)} tokens, found {sum(s.n_tokens for s in segments)}")
        if int(positions.max()) >= len(self.cos):
            raise ValueError(f"base: expected positions below {len(self.cos)}, found {int(positions.max())}")
        adapters = self._side_by_side(segments)
        angles = self.cos[positions], self.sin[positions]
        hidden = self.embedding(ids)
        for i, layer in enumerate(self.layers):
            arguments = (i, layer, hidden, angles, adapters, attend)
            if recompute and torch.is_grad_enabled():
                hidden = checkpoint(self._layer, *arguments, use_reentrant=False, preserve_rng_state=False)
            else:
                hidden = self._layer(*arguments)
        return _normed(hidden, self.norm)

    def logits(self, states: Tensor) -> Tensor:
        """See `flat.Forward`."""
        logits: Tensor = self.head(states)
        return logits.float()

    def _layer(
        self,
        i: int,
        layer: Layer,
        hidden: Tensor,
        angles: tuple[Tensor, Tensor],
        adapters: "Adapters",
        attend: Attend,
    ) -> Tensor:
        hidden = hidden + self._attention(i, layer, _normed(hidden, layer.attention_norm), angles, adapters, attend)
        gate, up = adapters.apply(layer.gate_up, _normed(hidden, layer.feed_norm)).chunk(2, -1)
        return hidden + adapters.apply(layer.down, F.silu(gate) * up)

    def _attention(
        self, i: int, layer: Layer, x: Tensor, angles: tuple[Tensor, Tensor], adapters: "Adapters", attend: Attend
    ) -> Tensor:
        d = self.head_dim
        cos, sin = angles
        heads = adapters.apply(layer.qkv, x).view(len(x), -1, d)
        n_q, n_kv, _ = (width // d for _, width in layer.qkv.parts)
        turned, v = heads.split([n_q + n_kv, n_kv], 1)
        q, k = (turned * cos + turned.roll(d // 2, -1) * sin).split([n_q, n_kv], 1)
        return adapters.apply(layer.out, attend(i, q, k, v, d**-0.5).reshape(len(x), -1))

    def _side_by_side(self, segments: Sequence[Segment]) -> "Adapters":
        """The segments' adapters; those of the last call again where they are the same."""
        if torch.is_grad_enabled() or self._adapters is None or not self._adapters.serve(segments):
            adapters = Adapters(segments, self.layers)
            if torch.is_grad_enabled():
                return adapters
            self._adapters = adapters
        self._adapters.lay_out(segments)
        return self._adapters


class Adapters:
    """The adapters of several segments side by side, for every projection of the base."""

    def __init__(self, segments: Sequence[Segment], layers: Sequence[Layer]) -> None:
        self.members = [(segment.factors, segment.scale) for segment in segments]
        self.products: dict[str, tuple[Tensor, Tensor]] = {}
        for layer in layers:
            for projection in (layer.qkv, layer.out, layer.gate_up, layer.down):
                pairs = [_fused(segment, projection) for segment in segments]
                rank = max(a.shape[1] for a, _ in pairs)
                if rank:
                    self.products[projection.parts[0][0]] = (
                        torch.stack([F.pad(a, (0, rank - a.shape[1])) for a, _ in pairs]),
                        torch.stack([F.pad(b, (0, 0, 0, rank - b.shape[0])) for _, b in pairs]),
                    )
        self.lay_out(segments)

    def serve(self, segments: Sequence[Segment]) -> bool:
        """Whether these are the adapters, in their order."""
        return len(segments) == len(self.members) and all(
            segment.factors is factors and segment.scale == scale
            for segment, (factors, scale) in zip(segments, self.members, strict=True)
        )

    def lay_out(self, segments: Sequence[Segment]) -> None:
        """Sets how many tokens each adapter has."""
        lengths = [segment.n_tokens for segment in segments]
        self.rectangle = Rectangle(lengths, 0) if len(lengths) > 1 else None

    def apply(self, projection: Projection, x: Tensor) -> Tensor:
        """The projection of `x` (n, d_in) with every token's adapter: (n, d_out)."""
        output = F.linear(x, projection.weight, projection.bias)
        if projection.parts[0][0] not in self.products:
            return output
        a, b = self.products[projection.parts[0][0]]
        if output.dtype != a.dtype:
            return output + self._delta(x.to(a.dtype), a, b).to(output.dtype)
        if self.rectangle is None:
            return output.addmm_(x @ a[0], b[0])
        if self.rectangle.full:
            output.view(len(a), -1, output.shape[1]).baddbmm_(x.view(len(a), -1, x.shape[1]) @ a, b)
            return output
        return output.add_(self._delta(x, a, b))

    def _delta(self, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        if self.rectangle is None:
            return x @ a[0] @ b[0]
        return self.rectangle.gather(self.rectangle.spread(x) @ a @ b)


def _fused(segment: Segment, projection: Projection) -> tuple[Tensor, Tensor]:
    """A (d_in, ranks of the targeted parts) and B (the same, sum of d_out), scaled; of rank 0 without an adapter."""
    factors = [segment.factors.get(name) if segment.factors else None for name, _ in projection.parts]
    narrow = projection.weight.new_empty(0, projection.weight.shape[1])
    rows = [pair[0] if pair else narrow for pair in factors]
    columns = [
        segment.scale * pair[1].T if pair else projection.weight.new_empty(0, width)
        for pair, (_, width) in zip(factors, projection.parts, strict=True)
    ]
    return torch.cat(rows).T, torch.block_diag(*columns) if len(columns) > 1 else columns[0]


def _normed(x: Tensor, norm: tuple[Tensor, float]) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], *norm)


def _norm(module: Any) -> tuple[Tensor, float]:
    return module.weight, module.variance_epsilon


def _layer(layer: Any, names: dict[torch.nn.Module, str]) -> Layer:
    attention, feed = layer.self_attn, layer.mlp
    return Layer(
        _norm(layer.input_layernorm),
        _projection([attention.q_proj, attention.k_proj, attention.v_proj], names),
        _projection([attention.o_proj], names),
        _norm(layer.post_attention_layernorm),
        _projection([feed.gate_proj, feed.up_proj], names),
        _projection([feed.down_proj], names),
    )


def _projection(linears: Sequence[torch.nn.Linear], names: dict[torch.nn.Module, str]) -> Projection:
    """The layers fused; their own weights become views of the fused ones."""
    weight = (
        torch.cat([linear.weight.detach() for linear in linears]) if len(linears) > 1 else linears[0].weight.detach()
    )
    biases = [linear.bias for linear in linears if linear.bias is not None]
    bias = torch.cat([bias.detach() for bias in biases]) if biases else None
    for linear, part in zip(linears, weight.split([linear.out_features for linear in linears]), strict=True):
        linear.weight.data = part
    return Projection(weight, bias, tuple((names[linear], linear.out_features) for linear in linears))
