"""Forward passes over one row of tokens: a causal LM without a batch, and so without padding.

All tokens of all sequences lie one after the other; linear layers see exactly those, each stretch with its own
adapter. Who attends to whom is the caller's: the attention of every layer is handed to an `Attend`.

`HookedForward` runs any Hugging Face model whose attention goes through transformers' attention interface;
`llama.LlamaForward` runs models of Llama's shape faster. Both give the same states.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from popu.engine.multilora import MultiLora, Segment
from popu.errors import ConfigError

IMPLEMENTATION = "popu_flat"
NO_MASK = torch.empty(1, 1, 1, 1)  # a mask of four dimensions is taken as it is; nothing reads this one


class Attend(Protocol):
    """The attention of one layer over the row's tokens."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """(n, h, d) from q (n, h, d) and k, v (n, h_kv, d), positions already applied."""
        ...


class Forward(Protocol):
    """A frozen base with adapters, over one row of tokens, on one device."""

    device: torch.device

    def states(
        self, ids: Tensor, positions: Tensor, segments: Sequence[Segment], attend: Attend, recompute: bool = False
    ) -> Tensor:
        """Last hidden states (n, width) of tokens `ids` (n,) at `positions` (n,); segments cover the row.

        With `recompute` each layer keeps its input alone for the backward pass, and is computed again there.

        Raises:
            ValueError: segments do not cover the row, or positions leave the base's window.
        """
        ...

    def logits(self, states: Tensor) -> Tensor:
        """float32 logits (m, v) of hidden states (m, width)."""
        ...


class HookedForward:
    """Any model of transformers, adapted by the hooks of `MultiLora`.

    Raises:
        ValueError: the model's code does not use the attention interface.
    """

    def __init__(self, model: PreTrainedModel, lora: MultiLora) -> None:
        self.model, self.lora = model, lora
        self.device = model.device
        AttentionInterface.register(IMPLEMENTATION, _attention)
        AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
        model.set_attn_implementation(IMPLEMENTATION)

    def states(
        self, ids: Tensor, positions: Tensor, segments: Sequence[Segment], attend: Attend, recompute: bool = False
    ) -> Tensor:
        """See `Forward`."""
        window = getattr(self.model.config, "sliding_window", None)
        if window is not None and int(positions.max()) >= window:
            raise ValueError(f"base: expected positions within its window of {window}, found {int(positions.max())}")
        layers = self.model.get_decoder().layers if recompute and torch.is_grad_enabled() else []
        again = partial(self.lora.segments, segments)
        with self.lora.segments(segments), _recomputed(layers, again):
            output = self.model.get_decoder()(
                input_ids=ids[None],
                position_ids=positions[None],
                attention_mask=NO_MASK,
                use_cache=False,
                attend=attend,
            )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, states: Tensor) -> Tensor:
        """See `Forward`."""
        logits: Tensor = self.model.get_output_embeddings()(states)
        return logits.float()


@contextmanager
def _recomputed(layers: Iterable[torch.nn.Module], again: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Within it each layer's forward pass is a checkpoint, which runs once more in the context `again`."""
    contexts = lambda: (nullcontext(), again())  # noqa: E731
    for layer in layers:
        layer.forward = partial(  # shadows the method
            checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False, context_fn=contexts
        )
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    attend: Attend | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """What transformers calls: query (1, h, n, d), key and value (1, h_kv, n, d) -> (1, n, h, d).

    Without an `Attend` it is transformers' sdpa.
    """
    if attend is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return output, None
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise ConfigError(f"base.path: expected a base with plain softmax attention, found one with {name}")
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    return attend(layer, q, k, v, scale)[None], None
