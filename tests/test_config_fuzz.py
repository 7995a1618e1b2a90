"""Random mutations of valid configs and command lines: each is taken, or refused by one message that names the key.

What is accepted has to run: `test_what_a_mutation_leaves_valid_runs` trains a step of some of them.
"""

import copy
import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from popu.base import expected_identity
from popu.config import Config, Run, arm_training, load_config
from popu.errors import ArtifactError, ConfigError
from popu.preflight import check_config, check_run
from popu.rundir import RunDirectory
from popu.stages.backend import Backend
from popu.stages.call import StageCall
from popu.stages.run import run_block, run_stage

N_MUTATIONS = 1_500
TINY = yaml.safe_load("""
experiment: fuzz
base: {path: resources/nano}
engine: {threads: 1}
training:
  steps: 1
  population: {n_teachers: 1, n_students: 1}
  proposals: {prompts_per_type: 1, proposals_per_prompt: 2}
  rollouts: {per_problem: 2}
  sampling: {max_new_tokens: 40}
  evolution: {every: 0}
  seed_problems: {count: 4}
arms: {pair: {}}
""")
NUMBERS = [-1, 0, 1, 2, 3, 0.5, 1.5, -0.0, 1e-9, 1e308, 2**31, 2**63, 10**30, float("inf"), float("nan")]
TEXTS = ["", " ", "x", "no/such", "../x", "é", "\0", "a\nb", "3", "1e-3", "true", "null", "~", "[1]", "x" * 5_000]
OTHERS = [None, True, False, [], {}, [None], [[]], {"x": 1}, [1, 1], ["teacher"], ["student", "student"], [0.5, 0.1]]
SECTIONS = [  # of a whole section, or an arm's lines
    *([path, value] for path in ("training", "engine", "base", "heldout", "arms") for value in (3, "x", [], None)),
    *(["arms", {"a": value}] for value in (None, 3, "x", [], {"x": 1}, {"training": {"steps": 1}}, {"steps": {}})),
    *(["arms", {name: {}}] for name in ("", "a b", "a-b", "é", "../x", "a/b", 3, None, True)),
    *(["arm_seeds", value] for value in ({"pair": []}, {"other": [1]}, {"pair": 3}, {"pair": ["x"]}, [1])),
    *(["seeds", value] for value in ([], [1, 1], [-1], ["x"], 3, [None], [2**70], [1.5])),
]


def leaves(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all keys that hold no section."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, (*path, name))
        else:
            yield (*path, name)


def put(config: dict[str, Any], path: tuple[str, ...], value: object) -> None:
    for part in path[:-1]:
        config = config.setdefault(part, {})
    config[path[-1]] = value


def misspelt(name: str, rng: random.Random) -> str:
    i = rng.randrange(len(name))
    return rng.choice([name[:i] + name[i + 1 :], name[:i] + name[i] + name[i:], name.upper(), name + "s", "x" + name])


def mutations(n: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(the key that is touched, the mutated config)"""
    rng = random.Random(0)
    paths = list(leaves(Config))
    for path, value in SECTIONS:
        config = copy.deepcopy(TINY)
        config[path] = value
        yield path, config
    for _ in range(n - len(SECTIONS)):
        config, path = copy.deepcopy(TINY), rng.choice(paths)
        kind = rng.randrange(5)
        if kind == 0:
            path = (*path[:-1], misspelt(path[-1], rng))
        if kind == 1:
            path = (rng.choice(["training", "engine", "base", "arms", "nano"]), path[-1])
        choices = rng.choice([NUMBERS, TEXTS, OTHERS, literals(path) or NUMBERS])
        put(config, path, rng.choice(choices))
        yield ".".join(path), config


def literals(path: tuple[str, ...]) -> list[object]:
    """The values of a key that has a list of them."""
    model: Any = Config
    for part in path:
        field = getattr(model, "model_fields", {}).get(part)
        model = field.annotation if field else None
    return [value for value in get_args(model) if isinstance(value, str)]


def accepted() -> Iterator[tuple[str, Config]]:
    for key, data in mutations(N_MUTATIONS):
        try:
            yield key, load_config(data)
        except ConfigError:
            continue


def test_a_mutated_config_is_taken_or_refused_by_its_key():
    n_refused = 0
    for key, data in mutations(N_MUTATIONS):
        try:
            config = load_config(data)
            [arm_training(config, arm) for arm in config.arms]
        except ConfigError as error:
            n_refused += 1
            message = str(error)
            section, _, name = key.rpartition(".")
            assert name in message, (key, message)
            assert len(message) < 600 * max(1, message.count("\n")), (key, message[:500])
    assert n_refused > N_MUTATIONS / 3


def test_a_value_that_is_too_long_is_shown_in_short():
    with pytest.raises(ConfigError, match=r"training.steps: .*\.\.\. \(5,002 characters\)"):
        load_config({"training": {"steps": "x" * 5_000}})


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"evolution": {"operators": ["dare", "layerwise"]}}, "layerwise"),
        ({"sampling": {"context": 100_000}}, "training.sampling.context: expected at most the base's"),
        ({"lora": {"targets": ["q_proj", "qproj"]}}, "training.lora.targets: expected modules of the base"),
        ({"lora": {"targets": []}}, "training.lora.targets: expected at least one module"),
        ({"lora": {"targets": ["q_proj", "q_proj"]}}, "training.lora.targets: expected no module twice"),
        ({"seed_problems": {"source": "file"}}, "training.seed_problems.file: expected a path"),
        ({"seed_problems": {"source": "file", "file": "no/such"}}, "training.seed_problems.file: expected a readable"),
    ],
)
def test_what_the_base_or_a_file_does_not_allow_is_refused_before_a_run(lines, message):
    with pytest.raises(ConfigError, match=message):
        check_run(run_of(load_config({"training": lines}), "4t4s"))


def test_a_base_without_a_chat_template_is_refused_before_a_run():
    with pytest.raises(ConfigError, match="base.chat_template: expected a tokenizer with a chat template"):
        check_run(run_of(load_config({"base": {"path": "resources/nano", "chat_template": True}}), "4t4s"))


def test_an_unknown_suite_is_refused_before_a_run():
    with pytest.raises(ConfigError, match=r"evaluation.suites: expected one of humaneval_plus.*'humaneval\+'"):
        check_config(load_config({"evaluation": {"suites": ["humaneval+"]}}))


def run_of(config: Config, arm: str) -> Run:
    identity = expected_identity(config.base)
    training = arm_training(config, arm)
    return Run(arm=arm, seed=1, training=training, base=config.base, base_sha256=identity, engine=config.engine)


def trained(config: Config, directory: Path) -> None:
    """One real step of the config's first arm, in this process."""
    settings = run_of(config, next(iter(config.arms)))
    check_run(settings)
    run = RunDirectory(directory)
    run.create(settings)
    with closing(Backend()) as backend:
        run_stage(StageCall("init", str(directory), 0), backend)
        run_block(str(directory), 1, 1, backend, lambda _: None)
    assert run.last_step() == 1


def small(config: Config) -> bool:
    """Whether a step takes seconds."""
    training = config.training
    numbers = (training.proposals.prompts_per_type, training.proposals.proposals_per_prompt)
    return max(*numbers, training.seed_problems.count, training.rollouts.per_problem) < 100


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_what_a_mutation_leaves_valid_runs(part, tmp_path):
    """Of a sample; the whole: POPU_FUZZ=all python -m pytest -m slow tests/test_config_fuzz.py."""
    cases = [(key, config) for key, config in accepted() if key.startswith(("training", "engine", "base", "seeds"))]
    cases = [case for case in cases if small(case[1])]
    random.Random(0).shuffle(cases)
    for i, (key, config) in enumerate(cases[part::3] if os.environ.get("POPU_FUZZ") else cases[part:12:3]):
        try:
            trained(config, tmp_path / str(i))
        except (ConfigError, ArtifactError) as error:
            assert key.rpartition(".")[2] in str(error), (key, error)
            assert not (tmp_path / str(i)).exists(), (key, error)
