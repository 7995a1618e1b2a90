"""Several LoRA adapters in one forward pass of a frozen Hugging Face model, each on its own tokens.

Tokens of a batch are ordered by adapter; every targeted linear layer adds (alpha/r) B A x to those of each segment.
Works for any model whose targets are `torch.nn.Linear`; gradients flow into A and B.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from popu.engine.rectangle import Rectangle

Factors = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
"""Module path -> (A (r, d_in), B (d_out, r))"""


@dataclass(frozen=True)
class Segment:
    """`n_tokens` consecutive tokens of the batch (row after row) that run with one adapter.

    `factors` None is the bare base.
    """

    n_tokens: int
    factors: Factors | None
    scale: float = 1.0


class MultiLora:
    """Hooks on the targeted linear layers of `model`; without active segments the model is the bare base.

    `targets` are the last parts of module names. Raises ValueError where a target matches no linear layer.
    """

    def __init__(self, model: nn.Module, targets: Sequence[str]) -> None:
        self._active: _Segments | _Stack | None = None
        self._stack: _Stack | None = None
        self.shapes: dict[str, tuple[int, int]] = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear) and name.rsplit(".", 1)[-1] in targets:
                self.shapes[name] = (module.out_features, module.in_features)
                module.register_forward_hook(self._hook(name))
        missing = [target for target in targets if not any(name.endswith(target) for name in self.shapes)]
        if missing:
            raise ValueError(f"lora.targets: expected names of linear layers of the base, found {missing[0]!r}")

    @contextmanager
    def segments(self, segments: Sequence[Segment]) -> Iterator[None]:
        """Runs the forward passes inside the block with these segments, which must cover the batch."""
        self._active = self._side_by_side(segments) or _Segments(segments)
        try:
            yield
        finally:
            self._active = None

    def _side_by_side(self, segments: Sequence[Segment]) -> "_Stack | None":
        """Several adapters as one stack, where no gradient is wanted and ranks are equal; the last one is kept."""
        ranks = {a.shape[0] for s in segments if s.factors for a, _ in s.factors.values()}
        if torch.is_grad_enabled() or len(segments) < 2 or len(ranks) != 1:
            return None
        if self._stack is None or not self._stack.holds(segments):
            self._stack = _Stack(segments, self.shapes, *ranks)
        self._stack.lay_out(segments)
        return self._stack

    def _hook(self, name: str) -> Callable[..., torch.Tensor | None]:
        def add_lora(_module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor | None:
            if self._active is None:
                return None
            x, flat = args[0].flatten(0, -2), output.flatten(0, -2)
            if self._active.n_tokens != x.shape[0]:
                raise ValueError(f"segments: expected {x.shape[0]} tokens, found {self._active.n_tokens}")
            return self._active.add(name, x, flat).view(output.shape)

        return add_lora


class _Segments:
    """One segment after the other; gradients flow."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.parts = segments
        self.n_tokens = sum(segment.n_tokens for segment in segments)

    def add(self, name: str, x: Tensor, output: Tensor) -> Tensor:
        """`output` (n, d_out) plus each segment's product from `x` (n, d_in)."""
        parts = []
        start = 0
        for segment in self.parts:
            end = start + segment.n_tokens
            part = output[start:end]
            if segment.factors is not None:
                part = _adapted(x[start:end], part, *segment.factors[name], segment.scale)
            parts.append(part)
            start = end
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _adapted(x: Tensor, output: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    low = x.to(a.dtype) @ a.t()
    if output.dtype == a.dtype:
        return torch.addmm(output, low, b.t(), alpha=scale)
    return output + (scale * low @ b.t()).to(output.dtype)


class _Stack:
    """Adapters of one rank side by side: two batched products a layer, however many adapters there are."""

    def __init__(self, segments: Sequence[Segment], shapes: Mapping[str, tuple[int, int]], rank: int) -> None:
        self.members = [segment.factors for segment in segments]
        self.a: dict[str, Tensor] = {}  # (n_adapters, d_in, rank)
        self.b: dict[str, Tensor] = {}  # (n_adapters, rank, d_out), scaled
        for name, (d_out, d_in) in shapes.items():
            bare = torch.zeros(rank, d_in), torch.zeros(d_out, rank)
            factors = [segment.factors[name] if segment.factors else bare for segment in segments]
            self.a[name] = torch.stack([a.T for a, _ in factors])
            self.b[name] = torch.stack([s.scale * b.T for s, (_, b) in zip(segments, factors, strict=True)])

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether these are the stack's adapters, in its order."""
        return len(segments) == len(self.members) and all(
            segment.factors is member for segment, member in zip(segments, self.members, strict=True)
        )

    def lay_out(self, segments: Sequence[Segment]) -> None:
        lengths = [segment.n_tokens for segment in segments]
        self.rectangle = Rectangle(lengths, 0)
        self.n_tokens = sum(lengths)

    def add(self, name: str, x: Tensor, output: Tensor) -> Tensor:
        """`output` (n, d_out), changed in place, plus each adapter's product from `x` (n, d_in)."""
        a, b = self.a[name], self.b[name]
        low = self.rectangle.spread(x).to(a.dtype) @ a
        if self.rectangle.full and output.dtype == b.dtype:
            output.view(*low.shape[:2], -1).baddbmm_(low, b)
            return output
        return output.add_(self.rectangle.gather(low @ b).to(output.dtype))
