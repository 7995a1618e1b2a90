"""The configuration: every key with its bounds and meaning, arms over defaults, and the identity of a run.

Values of the paper are the defaults where they are known; the tables of `docs/method.md` label each.
"""

import copy
import difflib
import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from popu import plugins
from popu.errors import ConfigError

MAX_STAGE_CHAIN = 9_000  # jobs in one Snakemake chain before the C stack ends; `block` has no such bound
STAGES_PER_STEP = 6
LARGEST = 2**31 - 1  # of any number in a config
SHOWN = 200  # characters of a value that a message repeats

# Keys that change nothing at these values: left out of a run's name there, so that runs from before them keep theirs.
OFF: Mapping[tuple[str, ...], Any] = {
    ("plugins",): {},
    ("founders",): {},
    ("training", "problem_types"): ["code_o", "code_i", "code_f"],
    ("training", "rewards", "flip_share"): 0.0,
    ("training", "update", "gradient_checkpointing"): False,
    ("training", "update", "device"): "cpu",
    ("training", "update", "importance_cap"): None,
}

T = TypeVar("T", bound=BaseModel)


class Section(BaseModel):
    """Unknown keys are errors, values are immutable, numbers are finite, of 31 bits at most, and no booleans."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _plain_numbers(cls, value: object, info: ValidationInfo) -> object:
        """`true` is no 1, and a number beyond any use is named here, not where a machine fails of it."""
        is_switch = info.field_name and cls.model_fields[info.field_name].annotation is bool
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, bool) and not is_switch:
                raise ValueError(f"another value than true or false expected, found {value!r}")
            if isinstance(item, int | float) and LARGEST < abs(item) < math.inf:
                raise ValueError(f"at most {LARGEST:,} expected, found {value!r}")
        return value


class Population(Section):
    """Who trains: `single` is one adapter in both roles, `teams` are teachers and students."""

    kind: Literal["single", "teams"] = "teams"
    n_teachers: int = Field(4, ge=1, le=64)
    n_students: int = Field(4, ge=1, le=64)
    founders: dict[str, str] = {}
    """Slot -> directory of an adapter in PEFT's format that its founder begins as; the others are fresh."""

    @property
    def slots(self) -> tuple[str, ...]:
        """Teachers t0.., students s0..; a0 of the single agent."""
        if self.kind == "single":
            return ("a0",)
        return (*(f"t{i}" for i in range(self.n_teachers)), *(f"s{i}" for i in range(self.n_students)))

    @model_validator(mode="after")
    def _slots_of_founders(self) -> "Population":
        for slot in self.founders:
            if slot not in self.slots:
                raise ValueError(f"founders: slots among {', '.join(self.slots)} expected, found {slot!r}")
        return self

    @model_validator(mode="after")
    def _enough_students(self) -> "Population":
        if self.kind == "teams" and self.n_teachers > self.n_students:
            raise ValueError(f"n_teachers <= n_students expected, found {self.n_teachers} > {self.n_students}")
        return self


class Lora(Section):
    """Shape of every adapter; `targets` are the last parts of the module names."""

    rank: int = Field(8, ge=1, le=512)
    alpha: float = Field(16.0, gt=0, le=65_536)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Proposals(Section):
    """What every teacher writes in a step, for each of the three problem types."""

    prompts_per_type: int = Field(4, ge=1, le=10_000)
    proposals_per_prompt: int = Field(4, ge=2, le=10_000)
    """The teacher's group: a group of one has advantage 0, and the teacher would never learn."""
    n_references: int = Field(2, ge=1, le=100)
    recent_share: float = Field(0.5, ge=0, le=1)
    """Share of the references drawn from the last `recent_steps` steps."""
    recent_steps: int = Field(10, ge=1)
    source: Literal["teacher", "grammar"] = "teacher"
    """`grammar`: random problems of the domain, of code of the base's grammar; no one learns from them as a teacher."""


class Rollouts(Section):
    """What the matched student tries on every valid problem."""

    per_problem: int = Field(8, ge=2, le=10_000)


class Sampling(Section):
    """Top-p 1, top-k off and repetition penalty 1 are not options: they would make the update off-policy."""

    temperature: float = Field(1.0, ge=0.01, le=10)
    max_new_tokens: int = Field(160, ge=1, le=1_000_000)
    context: int = Field(512, ge=16, le=1_000_000)
    """Longest prompt plus completion, in tokens; references are dropped from a prompt that does not fit."""


class Rewards(Section):
    """The rewards are the paper's; everything else is an ablation or a null. rho, verdicts and ratings stay true."""

    duplicate: Literal["paper", "invalid"] = "paper"
    """`invalid` pays a duplicate proposal -1."""
    source: str = "verifier"
    """`random`: a coin for every rollout, a uniform number for every proposal; `format`: form alone is paid; or the
    name of an installed one."""
    target_band: tuple[float, float] | None = None
    """A valid problem pays its teacher 1 where rho lies in this band, ends included, else 0."""
    flip_share: float = Field(0.0, ge=0, le=0.5)
    """Share of the verdicts on well-formed answers that are told wrongly to training."""

    @model_validator(mode="after")
    def _band(self) -> "Rewards":
        if self.target_band is not None and not 0 <= self.target_band[0] <= self.target_band[1] <= 1:
            raise ValueError(f"target_band: 0 <= low <= high <= 1 expected, found {list(self.target_band)}")
        return self


class Update(Section):
    """The policy gradient step that every adapter takes once a step."""

    learning_rate: float = Field(3e-4, gt=0, le=1)
    epochs: int = Field(1, ge=1, le=16)
    """Optimizer steps on the same rollouts; the ratio differs from 1 from the second on."""
    clip_low: float = Field(0.2, gt=0, lt=1)
    clip_high: float = Field(0.28, gt=0, le=1_000)
    gradient_clip: float = Field(1.0, gt=0, le=1e9)
    importance_cap: float | None = Field(None, gt=0, le=1_000)
    """Truncated importance sampling: weigh tokens by min(trainer's / engine's probability, cap); null is off."""
    whiten: Literal["adapter_role", "population", "role_type"] = "adapter_role"
    roles: tuple[Literal["teacher", "student"], ...] = ("teacher", "student")
    """Who learns; the others keep their adapters."""
    schedule: Literal["joint", "alternating"] = "joint"
    """`alternating`: teachers learn in odd steps, students in even ones."""
    micro_batch_tokens: int = Field(2048, ge=64)
    """Tokens of a forward and backward pass; a prompt is read again where its completions exceed them."""
    gradient_checkpointing: bool = False
    """Keep each layer's input alone, and compute the layer again in the backward pass: less memory, slower."""
    device: Literal["cpu", "cuda"] = "cpu"
    """`cuda`: every visible device has a copy of the base, and the members are spread over them."""


class Matching(Section):
    """How teachers meet students."""

    method: str = "pfsp"
    """`pfsp`, `uniform`, `fixed`, or the name of an installed one."""


class Evolution(Section):
    """Replacement of the weakest, every `every` steps; 0 switches it off."""

    every: int = Field(10, ge=0)
    fraction: float = Field(0.25, gt=0, lt=1)
    bound_sigmas: float = Field(3.0, ge=0, le=1_000)
    grace_steps: int = Field(20, ge=0)
    child_rating: Literal["inherited", "initial"] = "inherited"
    sigma_inflation: float = Field(1.0, ge=1, le=100)
    parent_selection: Literal["uniform", "tournament"] = "uniform"
    tournament_size: int = Field(2, ge=1)
    crossover_probability: float = Field(0.5, ge=0, le=1)
    operators: tuple[str, ...] | dict[str, float] = (
        *("svd_structured", "layer_selective_gaussian", "component_masking", "full_gaussian"),
        *("dare", "layer_wise", "svd_subspace", "extrapolative"),
    )
    optimizer: Literal["fresh", "inherited"] = "fresh"
    roles: tuple[Literal["teacher", "student"], ...] = ("teacher", "student")
    survivors: Literal["bound", "random"] = "bound"
    """Who stays: the highest bounds, or anyone."""


class SeedProblems(Section):
    """Where the first buffer comes from: the base model continuing the identity program, the grammar, or a file."""

    source: Literal["identity", "grammar", "file"] = "identity"
    count: int = Field(256, ge=1, le=1_000_000)
    file: str | None = None
    """JSON lines of {"program", "input"} for `source: file`."""


class Verifier(Section):
    """Limits of one run of an untrusted program."""

    cpu_s: float = Field(2.0, ge=0.01, le=60)
    wall_s: float = Field(10.0, ge=0.1, le=600)
    memory_mb: int = Field(256, ge=32, le=65_536)
    value_bytes: int = Field(65_536, ge=256, le=16_777_216)
    unsafe: bool = False
    """Go on where the machine cannot filter system calls. Only for programs that are trusted."""


class Training(Section):
    """Everything that an arm may change."""

    steps: int = Field(40, ge=1)
    checkpoint_every: int = Field(10, ge=1)
    problem_types: tuple[str, ...] = Field(("code_o", "code_i", "code_f"), min_length=1)
    """Types of one domain, ours or an installed one's."""
    population: Population = Population()
    lora: Lora = Lora()
    proposals: Proposals = Proposals()
    rollouts: Rollouts = Rollouts()
    sampling: Sampling = Sampling()
    rewards: Rewards = Rewards()
    update: Update = Update()
    matching: Matching = Matching()
    evolution: Evolution = Evolution()
    seed_problems: SeedProblems = SeedProblems()
    verifier: Verifier = Verifier()

    @model_validator(mode="after")
    def _teachers_that_write_learn(self) -> "Training":
        if self.proposals.source == "grammar" and "teacher" in self.update.roles:
            raise ValueError("update.roles: [student] expected with proposals.source: grammar, found teacher in it")
        return self

    @field_validator("problem_types")
    @classmethod
    def _distinct_types(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names):
            raise ValueError(f"no type twice expected, found {list(names)}")
        return names

    @property
    def parts(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """What may be installed: key below `training` -> kind and names."""
        return {
            "problem_types": ("problem_types", self.problem_types),
            "rewards.source": ("rewards", (self.rewards.source,)),
            "matching.method": ("matchers", (self.matching.method,)),
            "evolution.operators": ("operators", tuple(self.evolution.operators)),
        }

    def used_plugins(self) -> dict[str, str]:
        """The distributions whose parts are named, with version and digest of their sources; loads these parts.

        Raises ConfigError.
        """
        return plugins.distributions((kind, name) for kind, names in self.parts.values() for name in names)


class Base(Section):
    """The frozen base model: a directory with safetensors, config and tokenizer."""

    path: str = "resources/nano"
    prompt_style: Literal["compact", "instruct"] = "compact"
    chat_template: bool = False
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """Expected sha256 of the weights; null takes that of the base's card.json, or measures it."""


class Vllm(Section):
    """The vLLM engine; read where `engine.kind` is vllm."""

    python: str | None = None
    """The interpreter of an environment with vLLM; null is the one that runs the stage."""
    max_loras: int = Field(8, ge=1, le=512)
    """Adapters in one batch; a call may name more, which wait."""
    context: int | None = Field(None, ge=16, le=1_000_000)
    """Longest prompt plus completion that it takes; null is the base's."""
    memory_fraction: float = Field(0.9, gt=0, le=1)
    """Share of a device's memory (on a CPU: of the machine's) that an engine takes for weights and cache."""
    cache_gb: float | None = Field(None, gt=0, le=10_000)
    """Size of the cache of keys and values in place of what `memory_fraction` leaves, in GiB."""
    sleep: bool = False
    """Leave the device between calls: weights to host memory, cache dropped. For a trainer on the same device."""
    tensor_parallel: int = Field(1, ge=1, le=64)
    """Devices that one copy of the base is spread over."""
    data_parallel: int = Field(1, ge=1, le=64)
    """Copies of the base, each with its share of a call's requests."""
    eager: bool = False
    """No compilation and no CUDA graphs: starts sooner, runs slower. With LoRA a CPU never has them."""


class Engine(Section):
    """How the base runs. `threads` is fixed here, not by the machine, since it changes the last bits of results."""

    kind: Literal["transformers", "vllm"] = "transformers"
    """Who generates; the update runs on transformers in any case."""
    threads: int = Field(2, ge=1, le=256)
    dtype: Literal["float32", "bfloat16"] = "float32"
    max_batch_rows: int = Field(1024, ge=1, le=65_536)
    """Sequences decoded together."""
    vllm: Vllm = Vllm()


class Heldout(Section):
    """The held-out suite of grammar problems that scores the members at the end; 0 tasks switch it off."""

    tasks_per_level: int = Field(12, ge=0, le=10_000)
    samples: int = Field(8, ge=1, le=10_000)


class Crossplay(Section):
    """Problems of every arm and time against students of every arm and time; 0 problems switch it off."""

    problems: int = Field(0, ge=0, le=100_000)
    samples: int = Field(4, ge=1, le=10_000)
    times: int = Field(3, ge=1, le=1_000)


class Evaluation(Section):
    """The benchmarks that score all members of the last checkpoint, the bare base beside them."""

    suites: tuple[str, ...] = ()
    """Names of suites; `aime24@32` is 32 samples at `temperature` instead of one greedy answer."""
    limit: int | None = Field(None, ge=1)
    """The first tasks of every suite alone; part of the result's name."""
    max_new_tokens: int | None = Field(None, ge=1)
    """In place of each suite's own length; part of the result's name."""
    temperature: float = Field(0.6, ge=0.01, le=10)
    shards: int = Field(4, ge=1, le=1_000)
    """Jobs that a suite's tasks are spread over: a kill repeats at most one."""
    data_dir: str | None = None
    """Where the data files lie on a machine without internet; null downloads them into the user's cache."""

    @field_validator("suites")
    @classmethod
    def _suites(cls, suites: tuple[str, ...]) -> tuple[str, ...]:
        for suite in suites:
            _, at, samples = suite.partition("@")
            if at and not (samples.isdecimal() and int(samples) >= 2):
                raise ValueError(f"suite or suite@samples, at least 2 samples, expected, found {suite!r}")
        if len(set(suites)) != len(suites):
            raise ValueError(f"no suite twice expected, found {list(suites)}")
        return suites


class OperatorStudy(Section):
    """Children of every operator from the same parents, trained side by side (`snakemake operator_study`)."""

    arm: str = "4t4s"
    repeats: int = Field(1, ge=1, le=1_000)
    """Children of an operator from each run's parents, each with its own random numbers and problems."""
    steps: int = Field(20, ge=1)
    problems: int = Field(24, ge=1, le=100_000)
    every: int = Field(5, ge=1)
    """Steps between scores."""
    tasks_per_level: int = Field(6, ge=1, le=10_000)
    samples: int = Field(4, ge=1, le=10_000)


class Nano(Section):
    """How `pretrain_nano` makes the embedded base: a trunk on clean answers, then a branch with slips."""

    trunk_rows: int = Field(200_000, ge=100)
    trunk_steps: int = Field(31_000, ge=1)
    branch_rows: int = Field(27_000, ge=100)
    branch_steps: int = Field(2_400, ge=1)
    slip_share: float = Field(0.43, ge=0, le=1)
    """Share of the branch's solver answers that are plausible slips."""


class Config(Section):
    """A whole experiment."""

    experiment: str = Field("quick", pattern=r"^[A-Za-z0-9_-]+$")
    results: str = "results"
    seeds: tuple[int, ...] = (1,)
    granularity: Literal["stage", "block"] = "stage"
    gpus: int = Field(0, ge=0, le=64)
    """Accelerators of a job that loads the base: what it asks of the batch system, or takes of its machine's."""
    base: Base = Base()
    engine: Engine = Engine()
    training: Training = Training()
    heldout: Heldout = Heldout()
    crossplay: Crossplay = Crossplay()
    evaluation: Evaluation = Evaluation()
    operator_study: OperatorStudy = OperatorStudy()
    nano: Nano = Nano()
    arms: dict[str, dict[str, Any]] = {"single": {"population": {"kind": "single"}}, "4t4s": {}}
    arm_seeds: dict[str, tuple[int, ...]] = {}
    """Seeds of single arms, in place of `seeds`."""

    @field_validator("seeds")
    @classmethod
    def _distinct_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
            raise ValueError(f"at least one seed >= 0, no seed twice expected, found {list(seeds)}")
        return seeds

    @model_validator(mode="after")
    def _seeds_of_arms(self) -> "Config":
        for arm, seeds in self.arm_seeds.items():
            if arm not in self.arms:
                raise ValueError(f"arm_seeds: names of arms ({', '.join(self.arms)}) expected, found {arm!r}")
            try:
                self._distinct_seeds(seeds)
            except ValueError as error:
                raise ValueError(f"arm_seeds.{arm}: {error}") from error
        return self

    @field_validator("arms")
    @classmethod
    def _arm_names(cls, arms: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for name in arms:
            if not re.fullmatch(r"[A-Za-z0-9_]{1,100}", name):
                raise ValueError(f"arm names of letters, digits and _ expected, found {name!r}")
        if not arms:
            raise ValueError("at least one arm expected, found none")
        return arms


class Run(Section):
    """One arm resolved: what `run.json` of a run's directory holds."""

    arm: str
    seed: int
    training: Training
    base: Base
    base_sha256: str
    engine: Engine
    plugins: dict[str, str] = {}
    """What `Training.used_plugins` gave when the run was made."""
    founders: dict[str, str] = {}
    """What `popu.base.founder_identities` gave of `training.population.founders` when the run was made."""


def load_config(data: Mapping[str, Any]) -> Config:
    """Validates a merged config. Raises ConfigError with one line a fault."""
    config = _validate(Config, data)
    _check_parts(config.training, "training.")
    for arm in config.arms:
        training = arm_training(config, arm)
        n_jobs = training.steps * STAGES_PER_STEP
        if config.granularity == "stage" and n_jobs > MAX_STAGE_CHAIN:
            raise ConfigError(
                f"training.steps of arm {arm}: {training.steps} steps make a chain of {n_jobs} jobs, expected at most "
                f"{MAX_STAGE_CHAIN}; set granularity: block"
            )
    return config


def read_config(path: Path) -> Config:
    """A config file as :func:`load_config` reads it. Raises ConfigError."""
    try:
        data = yaml.safe_load(Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: expected a YAML file, found: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected a mapping, found {type(data).__name__}")
    return load_config(data)


def arm_training(config: Config, arm: str) -> Training:
    """The default training settings with the arm's few lines over them."""
    return parse_training(config.training, config.arms[arm], f"arms.{arm}.")


def parse_training(base: Training, lines: Mapping[str, Any], prefix: str) -> Training:
    """Settings with some lines over them; faults are named with `prefix`. Raises ConfigError."""
    training = _validate(Training, _merge(base.model_dump(mode="json"), lines), prefix)
    _check_parts(training, prefix)
    return training


def parse_section(section: type[T], lines: Mapping[str, Any]) -> T:
    """A section of a config as a command line gives it. Raises ConfigError."""
    return _validate(section, lines, f"{section.__name__.lower()}.")


def run_id(run: Run) -> str:
    """`<arm>-<8 hex>` of the keys that change the bytes of a step.

    Run length and checkpoint spacing are left out, so that a run can be extended; so are the paths of base and founders
    and the seed (hashes are in, the seed has its own directory), where vLLM lies and what memory it takes, and what is
    switched off (`OFF`).
    """
    keys = run.model_dump(mode="json", exclude={"arm": True, "seed": True, "base": {"path", "sha256"}})
    for name in ("steps", "checkpoint_every"):
        del keys["training"][name]
    if run.engine.kind == "transformers":
        del keys["engine"]["kind"], keys["engine"]["vllm"]
    else:
        for name in ("python", "memory_fraction", "cache_gb", "sleep"):
            del keys["engine"]["vllm"][name]
    del keys["training"]["population"]["founders"]
    for (*sections, name), off in OFF.items():
        section = functools.reduce(dict.__getitem__, sections, keys)
        if section[name] == off:
            del section[name]
    digest = hashlib.sha256(json.dumps(keys, sort_keys=True).encode()).hexdigest()
    return f"{run.arm}-{digest[:8]}"


def study_from_json(text: str) -> OperatorStudy:
    """The section `operator_study` that the workflow passes on a command line. Raises ConfigError."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--settings: expected JSON, found: {error}") from error
    return _validate(OperatorStudy, data, "--settings ")


def study_id(run: Run, study: OperatorStudy) -> str:
    """`<arm>-<8 hex>` of what changes the bytes of a study of a run's last checkpoint; more repeats add files."""
    keys = [run_id(run), run.training.steps, study.model_dump(mode="json", exclude={"repeats"})]
    return f"{run.arm}-{hashlib.sha256(json.dumps(keys).encode()).hexdigest()[:8]}"


def _check_parts(training: Training, prefix: str) -> None:
    """Raises ConfigError for a name that nothing has, and for problem types of several domains."""
    for key, (kind, names) in training.parts.items():
        try:
            found = {plugins.find(kind, name).value for name in names}
        except ConfigError as error:
            raise ConfigError(f"{prefix}{key}: {error}") from error
        if kind == "problem_types" and len(found) > 1:
            raise ConfigError(f"{prefix}{key}: expected types of one domain, found {', '.join(names)}")


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(base)
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), dict):
            merged[key] = _merge(merged[key], value)
        else:
            merged[key] = value
    return merged


def _validate(model: type[T], data: Mapping[str, Any], prefix: str = "") -> T:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(model, item, prefix) for item in error.errors())) from None


def _explain(model: type[BaseModel], item: Any, prefix: str) -> str:
    key = prefix + ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(item["loc"][-1]), _keys(model, item["loc"][:-1]), n=1, cutoff=0.0)
        return f"{key}: unknown key; the nearest valid key is {near[0]}" if near else f"{key}: unknown key"
    if item["type"] == "value_error":  # of a validator above, which says what it found
        message = _short(str(item["ctx"]["error"]))
        return f"{key}: {message}" if key else message
    return f"{key}: {item['msg']}, found {_short(repr(item['input']))}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text):,} characters)"


def _keys(model: type[BaseModel], path: tuple[Any, ...]) -> list[str]:
    for part in path:
        annotation = model.model_fields[part].annotation if part in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
