"""Forward passes over one row of tokens: a Hugging Face causal LM without a batch, and so without padding.

All tokens of all sequences lie one after the other; linear layers see exactly those, each stretch with its own
adapter. Who attends to whom is the caller's: the attention of every layer is handed to an `Attend`. Works for any model
of transformers whose attention goes through its attention interface.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from popu.engine.multilora import MultiLora, Segment

IMPLEMENTATION = "popu_flat"
NO_MASK = torch.empty(1, 1, 1, 1)  # a mask of four dimensions is taken as it is; nothing reads this one


class Attend(Protocol):
    """The attention of one layer over the row's tokens."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """(n, h, d) from q (n, h, d) and k, v (n, h_kv, d), positions already applied."""
        ...


def prepare(model: PreTrainedModel) -> None:
    """Switches the model's attention to one that takes an `Attend`, and without one is transformers' sdpa.

    Raises:
        ValueError: the model's code does not use the attention interface.
    """
    AttentionInterface.register(IMPLEMENTATION, _attention)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
    model.set_attn_implementation(IMPLEMENTATION)


def states(
    model: PreTrainedModel,
    lora: MultiLora,
    ids: Tensor,
    positions: Tensor,
    segments: Sequence[Segment],
    attend: Attend,
) -> Tensor:
    """Last hidden states (n, width) of tokens `ids` (n,) at `positions` (n,).

    Raises:
        ValueError: the base has sliding windows shorter than the positions.
    """
    window = getattr(model.config, "sliding_window", None)
    if window is not None and int(positions.max()) >= window:
        raise ValueError(f"base: expected positions within its window of {window}, found {int(positions.max())}")
    with lora.segments(segments):
        output = model.get_decoder()(
            input_ids=ids[None],
            position_ids=positions[None],
            attention_mask=NO_MASK,
            use_cache=False,
            attend=attend,
        )
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


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
    """What transformers calls: query (1, h, n, d), key and value (1, h_kv, n, d) -> (1, n, h, d)."""
    if attend is None:
        output, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return output, None
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: int = module.layer_idx  # type: ignore[assignment]
    return attend(layer, q, k, v, scale)[None], None
