"""Several LoRA adapters in one forward pass of a frozen Hugging Face model, each on its own tokens.

Tokens of a batch are ordered by adapter; every targeted linear layer adds (alpha/r) B A x to those of each segment.
Works for any model whose targets are `torch.nn.Linear`; gradients flow into A and B.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from popu.errors import ConfigError

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

    `targets` are the last parts of module names. Raises ConfigError where a target matches no linear layer.
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
            raise ConfigError(f"lora.targets: expected names of linear layers of the base, found {missing[0]!r}")

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
            x, flat = args[0].flatten(0, -2), output.flatten(0, -2)
            n_tokens = sum(segment.n_tokens for segment in self._active)
            if n_tokens != x.shape[0]:
                raise ValueError(f"segments: expected {x.shape[0]} tokens, found {n_tokens}")
            parts = []
            start = 0
            for segment in self._active:
                end = start + segment.n_tokens
                part = flat[start:end]
                if segment.factors is not None:
                    part = _adapted(x[start:end], part, *segment.factors[name], segment.scale)
                parts.append(part)
                start = end
            return torch.cat(parts).view(output.shape)

        return add_lora


def _adapted(x: Tensor, output: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    return output + (scale * (x.to(a.dtype) @ a.T) @ b.T).to(output.dtype)
