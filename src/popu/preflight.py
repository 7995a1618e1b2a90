"""What settings ask of the base, of operators and of files, looked up before a run begins and without loading the base.

A stage finds the same faults, but after its job has started.
"""

import os
from pathlib import Path

from safetensors import safe_open

from popu.artifacts import read_json
from popu.config import Config, Run
from popu.engine.vllm_settings import interpreter
from popu.errors import ConfigError
from popu.evaluate import suites
from popu.stages.common import selection_config
from popu.stages.init import read_seed_problems


def check_config(config: Config) -> None:
    """The names of suites. Raises ConfigError."""
    for suite in config.evaluation.suites:
        try:
            suites.suite(suite.partition("@")[0])
        except ConfigError as error:
            raise ConfigError(f"evaluation.suites: {str(error).removeprefix('suite: ')}") from error


def check_run(run: Run) -> None:
    """Operators, seed problems, vLLM's interpreter, and what the base must have: positions and modules.

    A base that a rule of the workflow is still to make says nothing yet. Raises ConfigError, ArtifactError.
    """
    selection_config(run)
    if run.training.seed_problems.source == "file":
        read_seed_problems(run.training.seed_problems.file)
    if run.engine.kind == "vllm" and not os.access(interpreter(run.engine), os.X_OK):
        found = interpreter(run.engine)
        raise ConfigError(f"engine.vllm.python: expected one with vLLM (make install-vllm), found none at {found}")
    base = Path(run.base.path)
    if not (base / "config.json").is_file():
        return
    limit = read_json(base / "config.json").get("max_position_embeddings")
    context = run.training.sampling.context
    if isinstance(limit, int) and context > limit:
        raise ConfigError(f"training.sampling.context: expected at most the base's {limit} positions, found {context}")
    if run.base.chat_template and not _has_chat_template(base):
        raise ConfigError(f"base.chat_template: expected a tokenizer with a chat template, found none in {base}")
    _check_targets(base, run.training.lora.targets)


def _has_chat_template(base: Path) -> bool:
    config = base / "tokenizer_config.json"
    named = config.is_file() and read_json(config).get("chat_template")
    return bool(named) or (base / "chat_template.jinja").is_file() or (base / "chat_template.json").is_file()


def _check_targets(base: Path, targets: tuple[str, ...]) -> None:
    names = {name for file in base.glob("*.safetensors") for name in _modules(file)}
    last_parts = {name.rsplit(".", 1)[-1] for name in names}
    if not targets:
        raise ConfigError("training.lora.targets: expected at least one module, found none")
    for target in targets:
        if target not in last_parts:
            known = ", ".join(sorted(last_parts))
            raise ConfigError(f"training.lora.targets: expected modules of the base ({known}), found {target!r}")
    if len(set(targets)) != len(targets):
        raise ConfigError(f"training.lora.targets: expected no module twice, found {list(targets)}")


def _modules(file: Path) -> list[str]:
    """Names of the modules in a file that have a matrix as their weight."""
    with safe_open(file, framework="numpy") as tensors:
        names = [name for name in tensors.keys() if name.endswith(".weight")]  # noqa: SIM118  (no mapping)
        return [name.removesuffix(".weight") for name in names if len(tensors.get_slice(name).get_shape()) == 2]
