"""Benchmarks of a checkpoint's members, the bare base beside them; and of one adapter from anywhere.

Not stages of a step: they read a bundle and write `generations` and `scores`, one file a shard and one a benchmark.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from popu import artifacts
from popu.base import measure_identity
from popu.config import Base, Engine, Lora, Run, Training
from popu.errors import ArtifactError, ConfigError
from popu.evaluate import evalplus_peer, lm_eval_peer
from popu.evaluate.benchmark import Benchmark, judge_rows, shard
from popu.evaluate.generate import complete
from popu.evaluate.heldout import BASE
from popu.evaluate.peers import Comparison
from popu.evaluate.suites import rows_of as rows_of_suite
from popu.evaluate.suites import suite
from popu.population.adapter import Adapter, read_adapter
from popu.population.member import Population
from popu.rundir import SETTINGS
from popu.sandbox.executor import Executor, Profile
from popu.stages.backend import Backend
from popu.stages.checkpoint import check_bundle

ADAPTER = "adapter"  # the name of one from anywhere; its directory may be called as the base is
Members = Mapping[str, tuple[str, Adapter | None]]
"""Member id -> slot and adapter; the bare base has neither."""


def members_of(bundle: Path) -> tuple[Run, Members]:
    """The bundle's settings, and its members with the bare base first. Raises ArtifactError."""
    state = check_bundle(bundle)
    settings = Run.model_validate(artifacts.read_json(bundle / SETTINGS))
    members: dict[str, tuple[str, Adapter | None]] = {BASE: ("", None)}
    for member in Population.from_json(state["population"]).members:
        members[member.id] = (member.slot, read_adapter(bundle / state["adapters"][member.slot]))
    return settings, members


def adapter_alone(base: str, directory: Path | None, threads: int) -> tuple[Run, Members]:
    """One adapter in PEFT's format with its base; without a directory the bare base alone. Raises ArtifactError."""
    try:
        adapter = None if directory is None else read_adapter(directory)
    except ValueError as error:
        raise ArtifactError(f"--adapter: {error}") from error
    lora = Lora() if adapter is None else Lora(rank=adapter.config.rank, targets=adapter.config.targets)
    settings = Run(
        arm="evaluate",
        seed=0,
        training=Training(lora=lora),
        base=Base(path=base),
        base_sha256=measure_identity(Base(path=base)),
        engine=Engine(threads=threads),
    )
    members: dict[str, tuple[str, Adapter | None]] = {BASE: ("", None)}
    if adapter is not None:
        members[ADAPTER] = ("", adapter)
    return settings, members


def generate_shard(
    settings: Run, members: Members, item: Benchmark, k: int, n: int, data_dir: str | None, backend: Backend, out: Path
) -> None:
    """Writes table `generations` of the k-th of n parts of the tasks, all members in one batch."""
    rows = complete(
        backend.engine(settings),
        shard(item.tasks(data_dir), k, n),
        {name: adapter for name, (_, adapter) in members.items()},
        item.samples,
        item.temperature,
        item.max_new_tokens,
        settings.seed,
        suite(item.suite).chat_prompt,
        backend.check,
    )
    artifacts.write_table(out, "generations", [{**row, "slot": members[row["member"]][0]} for row in rows])


def score_generations(item: Benchmark, shards: Sequence[Path], data_dir: str | None, slots: int, out: Path) -> None:
    """Judges the completions of all shards; writes table `scores`."""
    generations = [row for path in shards for row in artifacts.read_table(path, "generations")]
    with Executor(slots=slots, profile=Profile.EVALUATION) as executor:
        rows = judge_rows(item, item.tasks(data_dir), generations, executor)
    artifacts.write_table(out, "scores", rows)


def compare_generations(
    item: Benchmark, shards: Sequence[Path], data_dir: str | None, slots: int
) -> dict[str, list[Comparison]]:
    """Our word on the completions of all shards beside that of another scorer, by member; of several samples the first.

    Raises ConfigError for a suite that has no other, or where that is not installed; ArtifactError where it fails.
    """
    known = [*evalplus_peer.DATASETS, lm_eval_peer.SUITE]
    if item.suite not in known:
        raise ConfigError(f"--suite: expected one with another scorer ({', '.join(known)}), found {item.suite}")
    generations = [row for path in shards for row in artifacts.read_table(path, "generations") if row["sample"] == 0]
    tasks = {task.task_id: task for task in item.tasks(data_dir)}
    rows = rows_of_suite(item.suite, data_dir)
    found = {}
    with Executor(slots=slots, profile=Profile.EVALUATION) as executor:
        for member in dict.fromkeys(row["member"] for row in generations):
            own = [row for row in generations if row["member"] == member]
            of, texts = [tasks[row["task_id"]] for row in own], [row["completion"] for row in own]
            scores = suite(item.suite).score(of, texts, executor)
            if item.suite == lm_eval_peer.SUITE:
                found[member] = lm_eval_peer.compare(of, texts, scores)
            else:
                found[member] = evalplus_peer.compare(item.suite, rows, of, scores)
    return found


def evaluate_adapter(
    base: str,
    adapter: Path | None,
    item: Benchmark,
    shards: int,
    data_dir: str | None,
    threads: int,
    out: Path,
    backend: Backend,
    report: Callable[[str], None],
) -> Path:
    """Generates and scores in `out/<label>/`; finished shards of an interrupted call are kept. Returns the scores."""
    settings, members = adapter_alone(base, adapter, threads)
    directory = out / item.label
    _keep_identity(directory, settings, adapter)
    paths = []
    for k in range(shards):
        path = directory / "generations" / f"{k}-of-{shards}.parquet"
        if not path.exists():
            generate_shard(settings, members, item, k, shards, data_dir, backend, path)
        paths.append(path)
        report(f"{item.label}: part {k + 1} of {shards}")
    scores = directory / "scores.parquet"
    score_generations(item, paths, data_dir, threads, scores)
    return scores


def _keep_identity(directory: Path, settings: Run, adapter: Path | None) -> None:
    """What the directory's files were made from; other weights there are refused. Raises ArtifactError."""
    weights = None if adapter is None else artifacts.sha256(adapter / "adapter_model.safetensors")
    value = {"base": settings.base_sha256, "adapter": weights}
    path = directory / "identity.json"
    if path.exists() and artifacts.read_json(path) != value:
        raise ArtifactError(f"{path}: expected an evaluation of this base and adapter, found one of others")
    artifacts.write_json(path, value)
