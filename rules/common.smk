# The validated config, the runs it makes, and the paths of their files.
#
# Needs: the config that Snakemake merged. Makes: CONFIG, RUNS (run id -> settings of its first seed), path functions,
# and the experiment's lock.
import fcntl
import glob
import json
import os
import time
from contextlib import suppress

from popu.base import expected_identity, founder_identities
from popu.config import Run, arm_training, load_config, run_id, study_id
from popu.errors import ArtifactError, ConfigError, explained

os.environ.update(
    POPU_WATCH_PARENT="1",  # stages end with this process: no orphan keeps writing
    PYTHONPATH=os.pathsep.join(
        [f"{workflow.basedir}/src", *filter(None, [os.environ.get("PYTHONPATH")])]
    ),
)


def stop(message):
    """Ends with one message and exit code 2; Snakemake would turn the code into 1 and add its own report."""
    print(f"popu: {message}", file=sys.stderr, flush=True)
    os._exit(2)


def _load():
    try:
        loaded = load_config(config)
        base = expected_identity(loaded.base)
        runs = {}
        for arm in loaded.arms:
            training = arm_training(loaded, arm)
            run = Run(
                arm=arm,
                seed=loaded.seeds[0],
                training=training,
                plugins=training.used_plugins(),
                founders=founder_identities(training.population.founders),
                base=loaded.base,
                base_sha256=base,
                engine=loaded.engine,
            )
            runs[run_id(run)] = run
        _check_new(loaded, runs)
        return loaded, runs
    except (ConfigError, ArtifactError) as error:
        stop(error)


def _check_new(loaded, runs):
    """What a run asks of its base is looked up before its first job; later Snakemakes are spared the imports."""
    where = f"{loaded.results}/{loaded.experiment}/{{}}/seed{{}}/step00000/init.json"
    new = [
        run
        for name, run in runs.items()
        if not all(
            os.path.exists(where.format(name, seed))
            for seed in loaded.arm_seeds.get(run.arm, loaded.seeds)
        )
    ]
    if new:
        from popu.preflight import check_config, check_run

        check_config(loaded)
        for run in new:
            check_run(run)


CONFIG, RUNS = _load()
EXPERIMENT = f"{CONFIG.results}/{CONFIG.experiment}"
RUN = f"{EXPERIMENT}/{{run}}/seed{{seed}}"
STUDY = CONFIG.operator_study
STUDIES = f"{EXPERIMENT}/operator_study/{{study}}"
EMBEDDED = f"{workflow.basedir}/resources/nano"
NANO = f"{CONFIG.results}/nano"
SMOLLM2 = f"{CONFIG.results}/bases/smollm2"
GPU = CONFIG.gpus  # of every job that loads the base
POPU = "exec python -m popu"  # exec: the stage is Snakemake's child and can tell that it is gone


# A batch system gives a job its devices; else a process takes them itself.
os.environ.update(POPU_GPUS="0" if workflow.remote_exec else str(GPU))
if CONFIG.granularity == "block" or workflow.remote_exec:
    # It would keep a device from blocks, and outlive the batch job that began it.
    os.environ.update(POPU_WORKER="0")


wildcard_constraints:
    run=r"\w+-[0-9a-f]{8}",
    seed=r"\d+",
    step=r"\d{5}",
    study=r"\w+-[0-9a-f]{8}",
    repeat=r"\d+",
    slips=r"100|\d\d?",  # percent


onstart:
    lock_experiment()
    settle_times()


def lock_experiment():
    """Holds the experiment's lock until this process ends, however it ends."""
    try:
        os.makedirs(EXPERIMENT, exist_ok=True)
        lock = open(f"{EXPERIMENT}/.lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        stop(f"{EXPERIMENT}: another Snakemake is at work on this experiment")
    except OSError as error:
        stop(explained(error) or f"{EXPERIMENT}: {error}")
    globals()["_held_lock"] = lock


def settle_times():
    """Sets times that lie in the future to now.

    They are of another machine's clock, or of one that was set back; Snakemake fails a job whose input is younger
    than what it makes.
    """
    now = time.time()
    for pattern in (
        "*.parquet",
        "*/seed*/step*/*.json",
        "*/seed*/checkpoints/*/manifest.json",
        "*/seed*/heldout/*.parquet",
        "*/seed*/dynamics/*/*.parquet",
        "*/seed*/benchmarks/**/*.parquet",
        "operator_study/**/*.parquet",
    ):
        for path in glob.iglob(f"{EXPERIMENT}/{pattern}", recursive=True):
            with suppress(
                OSError
            ):  # another's file: Snakemake says so where it matters
                if os.stat(path).st_mtime > now:
                    os.utime(path, (now, now))


def folder(wildcards, output):
    """The directory of a rule's output."""
    return os.path.dirname(output[0])


def folder_above(wildcards, output):
    """The directory that holds that of a rule's output."""
    return os.path.dirname(os.path.dirname(output[0]))


def run_folder(wildcards):
    """The directory of one seed of a run."""
    return f"{EXPERIMENT}/{wildcards.run}/seed{wildcards.seed}"


def settings_json(wildcards):
    """The settings of one seed of a run, as the command line takes them."""
    run = RUNS[wildcards.run].model_copy(update={"seed": int(wildcards.seed)})
    return json.dumps(run.model_dump(mode="json"))


def seeds_of(run):
    return CONFIG.arm_seeds.get(RUNS[run].arm, CONFIG.seeds)


def last_bundles():
    return [bundle(run, seed, steps_of(run)) for run in RUNS for seed in seeds_of(run)]


def steps_of(run):
    return RUNS[run].training.steps


def is_checkpoint(run, step):
    training = RUNS[run].training
    return step == training.steps or step % training.checkpoint_every == 0


def manifest(run, seed, step, stage):
    return f"{EXPERIMENT}/{run}/seed{seed}/step{step:05d}/{stage}.json"


def bundle(run, seed, step):
    return f"{EXPERIMENT}/{run}/seed{seed}/checkpoints/step{step:05d}/manifest.json"


def state_of(run, seed, step):
    """What has to exist before a step may follow: the state, and its bundle, since old files are removed in time."""
    files = [manifest(run, seed, step, "evolve" if step else "init")]
    if step and is_checkpoint(run, step):
        files.append(bundle(run, seed, step))
    return files


def block_ends(run):
    """The last steps of the blocks: those with a checkpoint."""
    return [s for s in range(1, steps_of(run) + 1) if is_checkpoint(run, s)]


def state_before(wildcards):
    return [
        ancient(path)
        for path in state_of(wildcards.run, wildcards.seed, int(wildcards.step) - 1)
    ]


def block_before(wildcards):
    earlier = [s for s in block_ends(wildcards.run) if s < int(wildcards.step)]
    return [
        ancient(path)
        for path in state_of(wildcards.run, wildcards.seed, max(earlier, default=0))
    ]


def block_first(wildcards):
    return (
        max(
            (s for s in block_ends(wildcards.run) if s < int(wildcards.step)), default=0
        )
        + 1
    )


def nano_input(phase, of, file):
    """A file of what a phase goes on from; the embedded base's make nothing anew in a fresh checkout."""
    if phase.startswith("slips-"):
        return ancient(f"{EMBEDDED}/{file}")
    return f"{NANO}/{of}/{file}"


def nano_slips(phase):
    """The share of a phase's solver answers that are slips."""
    known = {"trunk": 0, "clean": 0, "mixed": CONFIG.nano.slip_share}
    return known[phase] if phase in known else int(phase.removeprefix("slips-")) / 100


def nano_seed(phase):
    """Corpora of different phases have different programs; those of bases with other slips have equal ones."""
    return {"trunk": 0, "mixed": 10, "clean": 20}.get(phase, 30)


def made_base(_wildcards):
    """The card of a base that a rule of this workflow makes; other bases are the user's."""
    card = f"{CONFIG.base.path}/card.json"
    return [ancient(card)] if card == f"{SMOLLM2}/card.json" else []


def heldout_tables(_wildcards=None):
    if not CONFIG.heldout.tasks_per_level:
        return []
    return [
        f"{EXPERIMENT}/{run}/seed{seed}/heldout/step{steps_of(run):05d}.parquet"
        for run in RUNS
        for seed in seeds_of(run)
    ]


def dynamics_tables():
    return [
        f"{EXPERIMENT}/{run}/seed{seed}/dynamics/step{steps_of(run):05d}/dynamics.parquet"
        for run in RUNS
        for seed in seeds_of(run)
    ]


def crossplay_table():
    return [f"{EXPERIMENT}/crossplay.parquet"] if CONFIG.crossplay.problems else []


def report_figures():
    """Those that every experiment of these settings has; others depend on what the runs found."""
    wanted = {
        "dynamics": True,
        "heldout": CONFIG.heldout.tasks_per_level,
        "together": CONFIG.heldout.tasks_per_level,
        "weights": True,
        "crossplay": CONFIG.crossplay.problems,
        **{f"lineage-{run.arm}": is_team(run) for run in RUNS.values()},
    }
    return [name for name, has in wanted.items() if has]


def is_team(run):
    return run.training.population.kind == "teams"


def summary_files():
    return [f"{EXPERIMENT}/summary.{ending}" for ending in ("json", "md", "png")]


def studied_run():
    """The run id of the arm whose operators are studied."""
    for name, run in RUNS.items():
        if run.arm == STUDY.arm:
            return name
    stop(
        f"operator_study.arm: expected one of {', '.join(CONFIG.arms)}, found {STUDY.arm!r}"
    )


def study_tables(_wildcards=None):
    """What the last scored step of every run and repeat leaves."""
    return [
        f"{study_folder()}/seed{seed}-repeat{repeat}/step{STUDY.steps:05d}/changes.parquet"
        for seed in seeds_of(studied_run())
        for repeat in range(STUDY.repeats)
    ]


def study_files(_wildcards):
    """The tables of all runs and repeats, so that new ones are made where the report exists, and the report."""
    return [*study_tables(), f"{study_folder()}/operators.csv"]


def study_folder():
    return f"{EXPERIMENT}/operator_study/{study_id(RUNS[studied_run()], STUDY)}"


def study_bundle(wildcards):
    run = studied_run()
    return ancient(bundle(run, wildcards.seed, steps_of(run)))


def study_run(wildcards):
    return f"{EXPERIMENT}/{studied_run()}/seed{wildcards.seed}"


def study_step(_wildcards):
    return steps_of(studied_run())


BENCHMARK = f"{RUN}/benchmarks/step{{step}}/{{benchmark}}"


def _benchmarks():
    if not CONFIG.evaluation.suites:
        return {}
    from popu.evaluate.benchmark import benchmarks

    try:
        return benchmarks(CONFIG.evaluation)
    except (ConfigError, ArtifactError) as error:
        stop(error)


BENCHMARKS = _benchmarks()


def wanted_scores(_wildcards):
    """Of `evaluate_all`, which has nothing to do without suites."""
    if not BENCHMARKS:
        stop("evaluation.suites: expected names of suites, found none")
    return benchmark_scores()


def benchmark_flags(wildcards):
    """The benchmark as the command line takes it."""
    item = BENCHMARKS[wildcards.benchmark]
    flags = [
        f"--suite {item.suite}" + (f"@{item.samples}" if item.samples > 1 else ""),
        f"--max-new-tokens {item.max_new_tokens}",
        f"--temperature {CONFIG.evaluation.temperature}",
    ]
    if item.limit:
        flags.append(f"--limit {item.limit}")
    if CONFIG.evaluation.data_dir:
        flags.append(f"--data-dir {CONFIG.evaluation.data_dir}")
    return " ".join(flags)


def generation_shards(wildcards):
    n = CONFIG.evaluation.shards
    return [
        f"{BENCHMARK}/generations/{k}-of-{n}.parquet".format(**wildcards)
        for k in range(n)
    ]


def benchmark_scores():
    return [
        f"{EXPERIMENT}/{run}/seed{seed}/benchmarks/step{steps_of(run):05d}/{name}/scores.parquet"
        for run in RUNS
        for seed in seeds_of(run)
        for name in BENCHMARKS
    ]
