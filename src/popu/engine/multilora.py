"""Several LoRA adapters in one forward pass of a frozen Hugging Face model, each on its own rows.

Rows of a batch are ordered by adapter; every targeted linear layer adds (alpha/r) B A x to the rows of each segment.
Works for any model whose targets are `torch.nn.Linear`; gradients flow into A and B.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

Factors = Mapping[str, tuple[torch.Tensor, torch.Tensor]]
"""Module path -> (A (r, d_in), B (d_out, r))"""


@dataclass(frozen=True)
class Segment:
    """`n_rows` consecutive rows of the batch that run with one adapter; `factors` None is the bare base."""

    n_rows: int
    factors: Factors | None
    scale: float = 1.0


class MultiLora:
    """Hooks on the targeted linear layers of `model`; without active segments the model is the bare base.

    `targets` are the last parts of module names. Raises ValueError where a target matches no linear layer.
    """

    def __init__(self, model: nn.Module, targets: Sequence[str]) -> None:
        self._active: Sequence[Segment] = ()
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
        self._active = segments
        try:
            yield
        finally:
            self._active = ()

    def _hook(self, name: str) -> Callable[..., torch.Tensor | None]:
        def add_lora(_module: nn.Module, args: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor | None:
            if not self._active:
                return None
            return _add_segments(args[0], output, name, self._active)

        return add_lora


def _add_segments(x: torch.Tensor, output: torch.Tensor, name: str, segments: Sequence[Segment]) -> torch.Tensor:
    """`output` (n, t, d_out) plus each segment's product from `x` (n, t, d_in)."""
    if sum(segment.n_rows for segment in segments) != x.shape[0]:
        raise ValueError(f"segments: expected {x.shape[0]} rows, found {sum(s.n_rows for s in segments)}")
    parts = []
    start = 0
    for segment in segments:
        part = output[start : start + segment.n_rows]
        if segment.factors is not None and segment.n_rows:
            a, b = segment.factors[name]
            low = x[start : start + segment.n_rows].to(a.dtype) @ a.T
            part = part + (segment.scale * low @ b.T).to(output.dtype)
        parts.append(part)
        start += segment.n_rows
    return parts[0] if len(parts) == 1 else torch.cat(parts)
