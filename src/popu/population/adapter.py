"""LoRA adapters as plain values, and their files in PEFT's format.

An adapter adds ``dW = scale * B @ A`` to the weight of every targeted module, with A of shape (rank, d_in)
and B of shape (d_out, rank). Files hold float32 and are byte-deterministic: equal adapters give equal files.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError
from torch import Tensor

from popu.artifacts import atomic_write, read_tensors, write_tensors
from popu.population.card import card_text

Factors: TypeAlias = tuple[Tensor, Tensor]  # A (rank, d_in), B (d_out, rank)

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
CARD_FILE = "README.md"
KEY_PREFIX = "base_model.model."
KEY_SUFFIXES = (".lora_A.weight", ".lora_B.weight")
READABLE_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

# Keys that, beside target_modules, say which modules are adapted: the tensors say so themselves.
SELECTING_KEYS = ("exclude_modules", "layers_pattern", "layers_to_transform")
UNSET: tuple[object, ...] = (None, "", [])
# Keys of PEFT's adapter_config.json that are read here or do not change dW. Any other key that is set asks
# for a variant of LoRA (dora, bias, modules_to_save, ...) that the operators do not know: refused, not ignored.
INERT_KEYS = frozenset(
    [
        *("auto_mapping", "base_model_name_or_path", "inference_mode", "lora_dropout", "megatron_core"),
        *("peft_version", "qalora_group_size", "revision", "task_type"),
        *("init_lora_weights", "lora_alpha", "peft_type", "r", "target_modules", "use_rslora"),
        *("alpha_pattern", "rank_pattern"),
        *SELECTING_KEYS,
    ]
)
NEUTRAL_VALUES: tuple[object, ...] = (None, False, "", "none", [], {})


@dataclass(frozen=True)
class LoraConfig:
    """Rank, alpha and targeted module names (last path components, e.g. ``q_proj``, or whole paths; kept sorted).

    Args:
        rank_pattern, alpha_pattern: what single modules have instead, by their whole path.

    Raises:
        ValueError: a rank < 1, an alpha not finite and positive, targets empty, blank or repeated.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]
    rslora: bool = False
    rank_pattern: Mapping[str, int] = field(default_factory=dict, hash=False)
    alpha_pattern: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for rank in (self.rank, *self.rank_pattern.values()):
            if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
                raise ValueError(f"rank: expected an integer >= 1, found {rank!r}")
        for alpha in (self.alpha, *self.alpha_pattern.values()):
            if not (math.isfinite(alpha) and alpha > 0):
                raise ValueError(f"alpha: expected a finite number > 0, found {alpha!r}")
        if not self.targets or not all(self.targets) or len(set(self.targets)) != len(self.targets):
            raise ValueError(f"targets: expected distinct module names, found {self.targets!r}")
        object.__setattr__(self, "targets", tuple(sorted(self.targets)))  # equal configs give equal files
        object.__setattr__(self, "alpha", float(self.alpha))

    @property
    def scale(self) -> float:
        """What `scale_of` gives for every module. Raises ValueError where single modules have their own."""
        if self.rank_pattern or self.alpha_pattern:
            raise ValueError("rank_pattern, alpha_pattern: expected none, found some: modules have scales of their own")
        return self.scale_of("")

    def rank_of(self, module: str) -> int:
        return self.rank_pattern.get(module, self.rank)

    def alpha_of(self, module: str) -> float:
        return self.alpha_pattern.get(module, self.alpha)

    def scale_of(self, module: str) -> float:
        """alpha / rank, or alpha / sqrt(rank) for rank-stabilised LoRA (arXiv 2312.03732)."""
        rank = self.rank_of(module)
        return self.alpha_of(module) / (math.sqrt(rank) if self.rslora else rank)


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
            rank = self.config.rank_of(module)
            _check_factor(f"{module}.lora_A", a, (rank, None))
            _check_factor(f"{module}.lora_B", b, (None, rank))

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
    write_tensors(directory / WEIGHTS_FILE, tensors, {"format": "pt"})
    facts = {key: value for key, value in asdict(adapter.config).items() if value != {}} | dict(card)
    with atomic_write(directory / CARD_FILE) as path:
        path.write_bytes(card_text(base_name, facts).encode())
    config_text = json.dumps(_peft_config(adapter.config, base_name), indent=2, sort_keys=True) + "\n"
    with atomic_write(directory / CONFIG_FILE) as path:
        path.write_bytes(config_text.encode())


def _peft_config(config: LoraConfig, base_name: str) -> dict[str, object]:
    return {
        "alpha_pattern": dict(config.alpha_pattern),
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
        "rank_pattern": dict(config.rank_pattern),
        "target_modules": list(config.targets),
        "task_type": "CAUSAL_LM",
        "use_dora": False,
        "use_rslora": config.rslora,
    }


def read_adapter(directory: Path, shapes: Mapping[str, tuple[int, int]] | None = None) -> Adapter:
    """Read and validate an adapter in PEFT's format; bfloat16 and float16 tensors become float32.

    Patterns of ranks and alphas are resolved to the paths of their modules. Where the config selects modules by more
    than a list of names, the targets become the paths themselves.

    Args:
        shapes: (d_out, d_in) by module path of the base; when given, the modules must be exactly these.

    Raises:
        ValueError: a file is missing or corrupt, the config asks for more than plain LoRA (DoRA, biases,
            ``modules_to_save``, ...), a tensor is unknown, absent, of a wrong shape or dtype, or not
            finite. The message names the file, what was expected and what was found.
    """
    directory = Path(directory)
    data = _read_config(directory / CONFIG_FILE)
    path = directory / WEIGHTS_FILE
    tensors = _read_tensors(path)
    _check_finite(path, tensors)
    modules = sorted({_module_of(path, key) for key in tensors})
    config = _config_of(directory / CONFIG_FILE, data, modules)
    factors: dict[str, Factors] = {}
    for module in modules:
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


def read_base_name(directory: Path) -> str:
    """The base that an adapter names, or "" where it names none. Raises ValueError as `read_adapter`."""
    name = _read_config(Path(directory) / CONFIG_FILE).get("base_model_name_or_path")
    return name if isinstance(name, str) else ""


def _read_config(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise _fault(path, "a file", "none")
    try:
        data: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _fault(path, "JSON", str(error)) from error
    if not isinstance(data, dict) or data.get("peft_type") != "LORA":
        raise _fault(path, 'an object with "peft_type": "LORA"', repr(data)[:80])
    if data.get("init_lora_weights", True) not in (
        True,
        False,
        "gaussian",
    ):  # others change the base's weights
        raise _fault(path, "init_lora_weights true, false or gaussian", repr(data["init_lora_weights"]))
    for key in sorted(set(data) - INERT_KEYS):
        if not any(data[key] == neutral and type(data[key]) is type(neutral) for neutral in NEUTRAL_VALUES):
            raise _fault(path, f"plain LoRA ({key} unset)", f"{key} = {repr(data[key])[:80]}")
    return data


def _config_of(path: Path, data: Mapping[str, Any], modules: Sequence[str]) -> LoraConfig:
    alpha, rslora = data.get("lora_alpha"), data.get("use_rslora", False)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not isinstance(rslora, bool):
        raise _fault(path, "lora_alpha number, use_rslora boolean", f"{alpha!r}, {rslora!r}")
    patterns = [_resolved(path, key, data.get(key), modules) for key in ("rank_pattern", "alpha_pattern")]
    try:
        return LoraConfig(data.get("r", 0), alpha, _targets(path, data, modules), rslora, *patterns)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{path}: {error}") from error


def _targets(path: Path, data: Mapping[str, Any], modules: Sequence[str]) -> tuple[str, ...]:
    targets = data.get("target_modules")
    if isinstance(targets, str) or any(data.get(key) not in UNSET for key in SELECTING_KEYS):
        return tuple(modules)
    if not isinstance(targets, list) or not all(isinstance(name, str) for name in targets):
        raise _fault(path, "target_modules as a list of names or an expression", repr(targets)[:80])
    return tuple(targets)


def _resolved(path: Path, key: str, pattern: Any, modules: Sequence[str]) -> dict[str, Any]:
    """A pattern's values by module path; as in PEFT, the first expression that matches the end of a path counts."""
    numbers = isinstance(pattern or {}, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in (pattern or {}).values()
    )
    if not numbers:
        raise _fault(path, f"{key} as an object of numbers", repr(pattern)[:80])
    values = {}
    for module in modules:
        for expression, value in (pattern or {}).items():
            try:
                matches = re.match(rf"(.*\.)?({expression})$", module)
            except re.error as error:
                raise _fault(path, f"{key} of regular expressions", f"{expression[:80]!r}: {error}") from error
            if matches:
                values[module] = value
                break
    return values


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise _fault(path, "a file", "none")
    try:
        tensors = read_tensors(path)
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
