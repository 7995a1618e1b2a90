"""AdamW with its state as named tensors, so that it can be stored as safetensors and restored bit for bit."""

from collections.abc import Mapping

import torch

_KEYS = ("exp_avg", "exp_avg_sq", "step")


def state_tensors(optimizer: torch.optim.AdamW, names: Mapping[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    """`<name>.<key>` for every parameter that has taken a step; empty for a fresh optimizer."""
    return {
        f"{name}.{key}": optimizer.state[parameter][key].detach().cpu().clone().contiguous()
        for name, parameter in names.items()
        if parameter in optimizer.state
        for key in _KEYS
    }


def load_state_tensors(
    optimizer: torch.optim.AdamW, names: Mapping[str, torch.nn.Parameter], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Restores what :func:`state_tensors` gave; an empty mapping leaves the optimizer fresh.

    Raises ValueError where names or shapes do not fit the parameters.
    """
    if not tensors:
        return
    expected = {f"{name}.{key}" for name in names for key in _KEYS}
    if set(tensors) != expected:
        odd = sorted(set(tensors) ^ expected)[0]
        raise ValueError(f"optimizer state: expected the tensors of {len(names)} parameters, {odd} does not fit")
    for name, parameter in names.items():
        state = {key: tensors[f"{name}.{key}"].to(parameter.device, copy=True) for key in _KEYS}
        if state["exp_avg"].shape != parameter.shape:
            found = tuple(state["exp_avg"].shape)
            raise ValueError(f"optimizer state of {name}: expected shape {tuple(parameter.shape)}, found {found}")
        optimizer.state[parameter] = state
