"""Adapters from elsewhere as founders: the same dW, in the shape of the run's adapters."""

from pathlib import Path

from popu.population.adapter import Adapter, Factors, LoraConfig, read_adapter


def imported(directory: Path, fresh: Adapter) -> Adapter:
    """The adapter in PEFT's format in `directory`, as one of the run's: with its dW, and the config of `fresh`.

    Its alpha and scaling (rank-stabilised too) go into B, bit for bit where they are the run's. A lower rank is filled
    up with rows of `fresh`, of which B is zero, and so is a module that it does not adapt: dW is the same, and all of
    it can be trained.

    Raises:
        ValueError: a file that is no plain LoRA adapter (see `read_adapter`), a module that the run does not adapt or
            that has another shape in its base, a rank above the run's. The message says what to set.
    """
    found = read_adapter(directory)
    strange = sorted({*found.factors} - {*fresh.factors})
    if strange:
        names = sorted({name.rsplit(".", 1)[-1] for name in (*found.factors, *fresh.factors)})
        raise ValueError(
            f"{directory}: expected modules that the run adapts, found {strange[0]}; where the base has it, set "
            f"training.lora.targets: [{', '.join(names)}]"
        )
    for name, shape in found.shapes.items():
        if shape != fresh.shapes[name]:
            expected = fresh.shapes[name]
            raise ValueError(f"{directory}: expected {name} of the run's base, (d_out, d_in) {expected}, found {shape}")
    rank = max(a.shape[0] for a, _ in found.factors.values())
    if rank > fresh.config.rank:
        raise ValueError(
            f"{directory}: expected a rank of at most {fresh.config.rank}, found {rank}; set training.lora.rank: {rank}"
        )
    return Adapter(fresh.config, {name: _placed(name, found, fresh) for name in fresh.factors})


def _placed(name: str, found: Adapter, fresh: Adapter) -> Factors:
    a, b = (factor.clone() for factor in fresh.factors[name])
    if name in found.factors:
        own_a, own_b = found.factors[name]
        rank = own_a.shape[0]
        a[:rank], b[:, :rank] = own_a, own_b * _relative_scale(name, found.config, fresh.config)
    return a, b


def _relative_scale(name: str, found: LoraConfig, run: LoraConfig) -> float:
    return found.scale_of(name) / run.scale_of(name)
