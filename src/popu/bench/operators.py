"""Every operator on a full LoRA adapter of a 7B model, on one thread, beside public peers in the same run.

Peers: PyPI's `populora`, on the whole adapter; PEFT's `add_weighted_adapter` in its SVD modes, on one small module
only, since it decomposes dense matrices (a whole adapter would take it hours). A peer's CPU time is compared with ours
for the same work.
"""

import ctypes
import gc
import importlib
import itertools
import os
import platform
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from popu.evolution.operator import Operator
from popu.evolution.registry import OPERATORS
from popu.population.adapter import Adapter, LoraConfig, new_adapter

# Qwen2.5-7B: (d_out, d_in) of the seven linear modules of each of 28 layers.
MODULES = {
    "self_attn.q_proj": (3584, 3584),
    "self_attn.k_proj": (512, 3584),
    "self_attn.v_proj": (512, 3584),
    "self_attn.o_proj": (3584, 3584),
    "mlp.gate_proj": (18944, 3584),
    "mlp.up_proj": (18944, 3584),
    "mlp.down_proj": (3584, 18944),
}
N_LAYERS = 28
RANK = 32
LONG_S = 20.0  # work that takes longer is not repeated
SMALL = ("model.layers.0.self_attn.k_proj",)  # what PEFT is compared on

# Our operator -> the function of `populora`, and whether that works on the factors and so is another operation.
POPULORA = {
    "svd_structured": ("mutation_svd_structured", False),
    "layer_selective_gaussian": ("mutation_layer_selective_gaussian", False),
    "component_masking": ("mutation_component_masking", False),
    "full_gaussian": ("mutation_full_gaussian", False),
    "dare": ("crossover_dare", True),
    "layer_wise": ("crossover_layer_wise", False),
    "svd_subspace": ("crossover_svd_subspace", False),
    "extrapolative": ("crossover_extrapolative", True),
    "linear_0_5": ("crossover_average", True),
    "copy_parent": ("crossover_clone", False),
}
PEFT = {"linear_0_5": "svd", "dare": "dare_linear_svd", "ties": "ties_svd"}


def bench_operators(n_layers: int = N_LAYERS) -> dict[str, Any]:
    """Per operator CPU seconds, peak memory above the parents (MiB, the child included) and, where a peer is installed,
    ours over its CPU seconds.

    `peer_ratio` is None without a peer; `peer` names it; `peer_on_factors` marks one that does something else and
    cheaper: averages, extrapolates or drops entries of A and B separately.
    """
    torch.set_num_threads(1)
    shapes = {f"model.layers.{i}.{name}": shape for i in range(n_layers) for name, shape in MODULES.items()}
    parents = [_parent(shapes, seed) for seed in range(2)]
    small = [_only(parent, SMALL) for parent in parents]
    populora = _populora(parents) or {}
    rows = {}
    for name, operator in OPERATORS.items():
        function, on_factors = POPULORA.get(name, ("", False))
        peer = populora.get(function)
        measured = _measured(partial(_apply, operator, parents), peer)
        rows[name] = {**measured, "peer": "populora" if peer else None, "peer_on_factors": bool(peer) and on_factors}
        if name in PEFT and _installed("peft"):
            merged = _measured(partial(_apply, operator, small), _peft_merge(small, PEFT[name]))
            rows[name]["peft_ratio_on_k_proj"] = merged["peer_ratio"]
    return {
        "operators": rows,
        "layers": n_layers,
        "rank": RANK,
        "threads": 1,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _parent(shapes: Mapping[str, tuple[int, int]], seed: int) -> Adapter:
    generator = torch.Generator().manual_seed(seed)
    adapter = new_adapter(shapes, LoraConfig(RANK, 2 * RANK, tuple(n.rsplit(".", 1)[-1] for n in MODULES)), generator)
    for _, b in adapter.factors.values():
        b.normal_(std=0.01, generator=generator)
    return adapter


def _only(adapter: Adapter, modules: tuple[str, ...]) -> Adapter:
    targets = tuple(sorted({module.rsplit(".", 1)[-1] for module in modules}))
    config = LoraConfig(adapter.config.rank, adapter.config.alpha, targets)
    return Adapter(config, {module: adapter.factors[module] for module in modules})


def _apply(operator: Operator, parents: list[Adapter]) -> Adapter:
    return operator.apply(parents[: operator.arity], torch.Generator().manual_seed(0))


def _measured(work: Callable[[], object], peer: Callable[[], object] | None) -> dict[str, Any]:
    """The CPU seconds of the best of up to three runs, the first of which gives the peak of memory; `peer_ratio` is
    ours over the peer's best, whose runs take turns with ours.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator holds back would hide the peak
    before = _memory_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
    ours = [_cpu_s(work)]
    peak = _memory_mib("VmHWM") - before
    theirs = [_cpu_s(peer)] if peer else []
    while len(ours) < 3 and sum(ours) + sum(theirs) < LONG_S:
        ours.append(_cpu_s(work))
        theirs += [_cpu_s(peer)] if peer else []
    ratio = round(min(ours) / min(theirs), 3) if theirs else None
    return {"cpu_s": round(min(ours), 4), "peak_mib": round(peak), "peer_ratio": ratio}


def _cpu_s(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _memory_mib(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _populora(parents: list[Adapter]) -> dict[str, Callable[[], object]] | None:
    """Its functions by name, each to make a child in a third row beside the parents; None where it is missing."""
    try:
        operators = importlib.import_module("populora.operators")
    except ImportError:
        return None
    names = sorted(parents[0].factors)
    down = {n: torch.stack([*(p.factors[n][0].T for p in parents), parents[0].factors[n][0].T]) for n in names}
    up = {n: torch.stack([*(p.factors[n][1] for p in parents), parents[0].factors[n][1]]) for n in names}
    parameters = [
        {name: torch.nn.Parameter(tensor, requires_grad=False) for name, tensor in tensors.items()}
        for tensors in (down, up)
    ]
    population = SimpleNamespace(weight_down=parameters[0], weight_up=parameters[1], device=torch.device("cpu"))
    child, pair = torch.tensor([2]), torch.tensor([[0, 1]])

    def bound(name: str) -> Callable[[], object]:
        function = getattr(operators, name)
        if name.startswith("mutation"):
            return lambda: function(population, child)
        return lambda: function(population, pair, child)

    return {name: bound(name) for name, _ in POPULORA.values()}


def _peft_merge(parents: list[Adapter], combination: str) -> Callable[[], object]:
    """PEFT's merge of the parents' adapters of one module."""
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model
    from torch import nn

    ((module, (a, b)),) = parents[0].factors.items()
    name = module.rsplit(".", 1)[-1]
    base = nn.Module()
    base.add_module(name, nn.Linear(a.shape[1], b.shape[0], bias=False))
    config = PeftConfig(r=RANK, lora_alpha=2 * RANK, target_modules=[name])
    model: Any = get_peft_model(base, config, "first")  # type: ignore[arg-type]
    model.add_adapter("second", config)
    layer = getattr(model.base_model.model, name)
    for adapter, parent in zip(("first", "second"), parents, strict=True):
        layer.lora_A[adapter].weight.data.copy_(parent.factors[module][0])
        layer.lora_B[adapter].weight.data.copy_(parent.factors[module][1])
    options = {} if combination == "svd" else {"density": 0.3 if combination.startswith("dare") else 0.5}
    merge, numbers = model.base_model.add_weighted_adapter, itertools.count()
    settings = {"combination_type": combination, "svd_full_matrices": False, "svd_rank": RANK, **options}
    return lambda: merge(["first", "second"], [0.5, 0.5], f"child{next(numbers)}", **settings)
