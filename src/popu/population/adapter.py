"""LoRA adapters as plain values, and their files in PEFT's format.

An adapter adds ``dW = scale * B @ A`` to the weight of every targeted module, with A of shape (rank, d_in)
and B of shape (d_out, rank). Files hold float32 and are byte-deterministic: equal adapters give equal files.
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from popu.population.card import card_text

Factors: TypeAlias = tuple[Tensor, Tensor]  # A (rank, d_in), B (d_out, rank)

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
CARD_FILE = "README.md"
KEY_PREFIX = "base_model.model."
KEY_SUFFIXES = (".lora_A.weight", ".lora_B.weight")
READABLE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

# Keys of PEFT's adapter_config.json that are read here or do not change dW. Any other key that is set asks
# for a variant of LoRA (dora, rank_pattern, bias, ...) that the operators do not know: refused, not ignored.
INERT_KEYS = frozenset(
    [
        *("auto_mapping", "base_model_name_or_path", "inference_mode", "lora_dropout", "megatron_core"),
        *("peft_version", "qalora_group_size", "revision", "task_type"),
        *("init_lora_weights", "lora_alpha", "peft_type", "r", "target_modules", "use_rslora"),
    ]
)
NEUTRAL_VALUES: tuple[object, ...] = (None, False, "", "none", [], {})


@dataclass(frozen=True)
class LoraConfig:
    """Rank, alpha and targeted module names (last path components, e.g. ``q_proj``; kept sorted).

    Raises:
        ValueError: rank < 1, alpha not finite and positive, targets empty, blank or repeated.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]
    rslora: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 1:
            raise ValueError(f"rank: expected an integer >= 1, found {self.rank!r}")
        if not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ValueError(f"alpha: expected a finite number > 0, found {self.alpha!r}")
        if not self.targets or not all(self.targets) or len(set(self.targets)) != len(self.targets):
            raise ValueError(f"targets: expected distinct module names, found {self.targets!r}")
        object.__setattr__(self, "targets", tuple(sorted(self.targets)))  # equal configs give equal files
        object.__setattr__(self, "alpha", float(self.alpha))

    @property
    def scale(self) -> float:
        """alpha / rank, or alpha / sqrt(rank) for rank-stabilised LoRA (arXiv 2312.03732)."""
        return self.alpha / (math.sqrt(self.rank) if self.rslora else self.rank)


@dataclass(frozen=True, eq=False)
class Adapter:
    """The float32 factors (A, B) of every adapted module, by full module path.

    Raises:
        ValueError: a factor's shape or dtype does not fit the config, a module matches no target, a target no
            module.
    """

    config: LoraConfig
    factors: dict[str, Factors]

    def __post_init__(self) -> None:
        _check_targets(tuple(self.factors), self.config.targets)
        for module, (a, b) in self.factors.items():
            _check_factor(f"{module}.lora_A", a, (self.config.rank, None))
            _check_factor(f"{module}.lora_B", b, (None, self.config.rank))

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """(d_out, d_in) of every adapted module."""
        return {module: (b.shape[0], a.shape[1]) for module, (a, b) in self.factors.items()}


def _check_targets(modules: tuple[str, ...], targets: tuple[str, ...]) -> None:
    used = set()
    for module in modules:
        matching = [target for target in targets if module == target or module.endswith("." + target)]
        if not matching:
            raise ValueError(f"module {module}: expected a name ending in one of {targets}")
        used.update(matching)
    if unused := sorted(set(targets) - used):
        raise ValueError(f"targets: expected a module for each of {targets}, found none for {unused}")


def _check_factor(name: str, factor: Tensor, shape: tuple[int | None, int | None]) -> None:
    expected = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
    fits = factor.dim() == 2 and all(want in (None, size) for want, size in zip(shape, factor.shape, strict=True))
    if not fits or min(factor.shape) < 1:
        raise ValueError(f"{name}: expected shape {expected}, found {tuple(factor.shape)}")
    if factor.dtype != torch.float32:
        raise ValueError(f"{name}: expected dtype torch.float32, found {factor.dtype}")


def kaiming_a(rank: int, d_in: int, generator: torch.Generator) -> Tensor:
    """A fresh A (rank, d_in): Kaiming uniform with a = sqrt(5) as in PEFT, so uniform in +-1/sqrt(d_in)."""
    return torch.nn.init.kaiming_uniform_(torch.empty(rank, d_in), a=math.sqrt(5), generator=generator)


def new_adapter(shapes: Mapping[str, tuple[int, int]], config: LoraConfig, generator: torch.Generator) -> Adapter:
    """A fresh adapter with dW = 0: A Kaiming uniform, B zero, drawn in the sorted order of the module paths.

    Args:
        shapes: (d_out, d_in) by module path; each path must end in one of the config's targets.
    """
    factors: dict[str, Factors] = {}
    for module in sorted(shapes):
        d_out, d_in = shapes[module]
        factors[module] = (kaiming_a(config.rank, d_in, generator), torch.zeros(d_out, config.rank))
    return Adapter(config, factors)


def write_adapter(directory: Path, adapter: Adapter, base_name: str, card: Mapping[str, object]) -> None:
    """Write the three files that ``PeftModel.from_pretrained(base, directory)`` and the hub expect.

    Each file appears atomically, the config last; the bytes depend on the arguments only.

    Args:
        card: JSON-able facts for the model card (member, step, operator, ...), shown as a table of escaped
            values.

    Raises:
        ValueError: a factor holds a non-finite value (naming the tensor).
    """
    directory = Path(directory)
    tensors: dict[str, Tensor] = {}
    for module in sorted(adapter.factors):
        for suffix, factor in zip(KEY_SUFFIXES, adapter.factors[module], strict=True):
            tensors[KEY_PREFIX + module + suffix] = factor.detach().cpu().contiguous()
    _check_finite(directory / WEIGHTS_FILE, tensors)
    directory.mkdir(parents=True, exist_ok=True)
    _replace(directory / WEIGHTS_FILE, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    facts = {**asdict(adapter.config), **card}
    _replace(directory / CARD_FILE, lambda path: path.write_bytes(card_text(base_name, facts).encode()))
    config_text = json.dumps(_peft_config(adapter.config, base_name), indent=2, sort_keys=True) + "\n"
    _replace(directory / CONFIG_FILE, lambda path: path.write_bytes(config_text.encode()))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    write(temporary)
    with temporary.open("rb") as handle:
        os.fsync(handle.fileno())
    temporary.chmod(0o644)  # safetensors creates its files for the owner only
    os.replace(temporary, path)


def _peft_config(config: LoraConfig, base_name: str) -> dict[str, object]:
    return {
        "alpha_pattern": {},
        "base_model_name_or_path": base_name,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "lora_alpha": int(config.alpha) if config.alpha.is_integer() else config.alpha,
        "lora_dropout": 0.0,
        "modules_to_save": None,
        "peft_type": "LORA",
        "r": config.rank,
        "rank_pattern": {},
        "target_modules": list(config.targets),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": config.rslora,
    }


def read_adapter(directory: Path, shapes: Mapping[str, tuple[int, int]] | None = None) -> Adapter:
    """Read and validate an adapter in PEFT's format; bfloat16 and float16 tensors become float32.

    Args:
        shapes: (d_out, d_in) by module path of the base; when given, the modules must be exactly these.

    Raises:
        ValueError: a file is missing or corrupt, the config asks for more than plain LoRA (``rank_pattern``
            and ``alpha_pattern`` included), a tensor is unknown, absent, of a wrong shape or dtype, or not
            finite. The message names the file, what was expected and what was found.
    """
    directory = Path(directory)
    config = _read_config(directory / CONFIG_FILE)
    path = directory / WEIGHTS_FILE
    tensors = _read_tensors(path)
    _check_finite(path, tensors)
    factors: dict[str, Factors] = {}
    for module in sorted({_module_of(path, key) for key in tensors}):
        a_key, b_key = (KEY_PREFIX + module + suffix for suffix in KEY_SUFFIXES)
        for key in (a_key, b_key):
            if key not in tensors:
                raise _fault(path, f"tensor {key}", "no such tensor")
        factors[module] = (tensors[a_key].float(), tensors[b_key].float())
    try:
        adapter = Adapter(config, factors)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if shapes is not None and adapter.shapes != dict(shapes):
        wrong = sorted(set(adapter.shapes.items()) ^ set(shapes.items()))[0][0]
        raise _fault(path, f"{wrong} (d_out, d_in) {shapes.get(wrong)}", str(adapter.shapes.get(wrong)))
    return adapter


def _fault(path: Path, expected: str, found: str) -> ValueError:
    return ValueError(f"{path}: expected {expected}, found {found}")


def _read_config(path: Path) -> LoraConfig:
    if not path.is_file():
        raise _fault(path, "a file", "none")
    try:
        data: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _fault(path, "JSON", str(error)) from error
    if not isinstance(data, dict) or data.get("peft_type") != "LORA":
        raise _fault(path, 'an object with "peft_type": "LORA"', repr(data)[:80])
    targets = data.get("target_modules")
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        raise _fault(path, "target_modules as a list of names", repr(targets)[:80])
    if data.get("init_lora_weights", True) not in (
        True,
        False,
        "gaussian",
    ):  # others change the base's weights
        raise _fault(path, "init_lora_weights true, false or gaussian", repr(data["init_lora_weights"]))
    for key in sorted(set(data) - INERT_KEYS):
        if not any(data[key] == neutral and type(data[key]) is type(neutral) for neutral in NEUTRAL_VALUES):
            raise _fault(path, f"plain LoRA ({key} unset)", f"{key} = {repr(data[key])[:80]}")
    alpha, rslora = data.get("lora_alpha"), data.get("use_rslora", False)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not isinstance(rslora, bool):
        raise _fault(path, "lora_alpha number, use_rslora boolean", f"{alpha!r}, {rslora!r}")
    try:
        return LoraConfig(data.get("r", 0), alpha, tuple(targets), rslora)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise _fault(path, "a file", "none")
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise _fault(path, "a complete safetensors file", str(error)) from error
    for key, tensor in tensors.items():
        if tensor.dtype not in READABLE_DTYPES:
            raise _fault(path, f"{key} of dtype {READABLE_DTYPES}", str(tensor.dtype))
    return tensors


def _check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    for key, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise _fault(path, f"finite values in {key}", f"{int((~torch.isfinite(tensor)).sum())} non-finite")


def _module_of(path: Path, key: str) -> str:
    for suffix in KEY_SUFFIXES:
        if key.startswith(KEY_PREFIX) and key.endswith(suffix) and len(key) > len(KEY_PREFIX + suffix):
            return key[len(KEY_PREFIX) : -len(suffix)]
    raise _fault(path, f"keys {KEY_PREFIX}<module>.lora_A|lora_B.weight", key)
