"""How much a run does: proposals, rollouts, tokens, forks of the sandbox, seconds, and bytes on disk step by step."""

from dataclasses import dataclass, fields, replace

from popu.config import Engine, Heldout, Training
from popu.grammar.levels import LEVELS
from popu.plan.memory import WIDTHS, decoded_together, longest_prompt, memory, n_learners, sequences_at_once
from popu.plan.shape import Shape, adapter_bytes, optimizer_bytes, parameters
from popu.problems.types import PROBLEM_TYPES
from popu.stages.retention import KEPT_STEPS

FORKS_A_PROPOSAL = 2  # one under each hash seed
CPU_LIMITS_A_PROPOSAL = 3  # the first fork makes every call twice and has twice the time
RUN_SHARE = 2 / 3  # of the answers: those of code_i and code_f are programs to run, one fork each
STEP_BYTES = 40_000  # a step's tables and manifests with hardly a row in them
PROMPT_BYTES = 1.7  # a token of a prompt, once for all its completions
INDEX_BYTES = 15  # a problem in every later step's buffer index


@dataclass(frozen=True)
class Assumptions:
    """What a plan takes as given; every value can be stated anew with `--assume NAME=VALUE`."""

    valid_share: float
    """Share of the proposals that are valid problems."""
    prompt_tokens: float
    proposal_tokens: float
    answer_tokens: float
    read_tokens_s: float
    """Tokens of prompts that a device (else the machine) reads a second, to generate."""
    decode_tokens_s: float
    """Tokens that it writes."""
    update_tokens_s: float
    """Tokens of prompts and completions through a forward and a backward pass."""
    forks_core_s: float
    """Programs that one core runs a second in the sandbox."""
    token_bytes: float
    """Bytes that tables take a token of a completion: id, log-probability, text."""
    reserve_gb: float
    """Device memory that libraries and the allocator take beside the tensors."""


NAMES = tuple(field.name for field in fields(Assumptions))
EMBEDDED_BELOW = 2_000_000  # parameters of a base to which the embedded base's figures apply
EMBEDDED = Assumptions(0.9, 45, 45, 13, 14_000, 6_000, 7_000, 308, 5.1, 0.5)
MEASURED = {
    **dict.fromkeys(("valid_share", "prompt_tokens", "proposal_tokens", "answer_tokens"), "measured, 3 steps"),
    **dict.fromkeys(("decode_tokens_s", "update_tokens_s"), "measured, docs/performance.md, 2 cores"),
    "token_bytes": "measured, 3 steps",
}
FORKS = "measured on trivial programs, docs/verifier.md"
ASSUMED = "assumption"


@dataclass(frozen=True)
class Rates:
    """What a device sustains: floating point operations and bytes of weights read, a second."""

    flops_s: float
    bytes_s: float


ACCELERATOR = Rates(1e14, 1e12)
MACHINE = Rates(3e10, 1e10)  # two cores: docs/performance.md, a quarter of 120 GFLOP/s


def assumptions(
    shape: Shape, training: Training, engine: Engine, device_gb: float = 0.0
) -> tuple[Assumptions, dict[str, str]]:
    """What is known or else assumed of a base, and where each value comes from; 0 GB: no device.

    Reading takes 2 operations a parameter and token, an update 4: the base is frozen, so its weights have no gradients;
    2 more where its layers are computed again. Decoding is bound by the same, or by reading the weights once for a
    token of each of the sequences that are decoded together. The transformers engine generates on the machine's cores
    in any case.
    """
    n, width = parameters(shape), WIDTHS[engine.dtype]
    if n < EMBEDDED_BELOW and not device_gb:
        return EMBEDDED, {**dict.fromkeys(NAMES, ASSUMED), **MEASURED, "forks_core_s": FORKS}
    generates = ACCELERATOR if device_gb and engine.kind == "vllm" else MACHINE
    updates = ACCELERATOR if device_gb and training.update.device == "cuda" else MACHINE
    length = training.sampling.max_new_tokens
    prompt, text = min(1000, longest_prompt(training)), min(400, length / 2)
    alive = decoded_together(training, engine)[0] / 2  # on average, as they end one by one
    if engine.kind == "vllm":  # others take their places
        found = memory(shape, training, engine, device_gb)
        alive = sequences_at_once(shape, engine, found, prompt + text) if found.cache else engine.max_batch_rows
    guess = Assumptions(
        valid_share=0.5,
        prompt_tokens=prompt,
        proposal_tokens=text,
        answer_tokens=text,
        read_tokens_s=generates.flops_s / (2 * n),
        decode_tokens_s=min(generates.flops_s / (2 * n), alive * generates.bytes_s / (width * n)),
        update_tokens_s=updates.flops_s / ((6 if training.update.gradient_checkpointing else 4) * n),
        forks_core_s=EMBEDDED.forks_core_s,
        token_bytes=9,
        reserve_gb=2,
    )
    return guess, {**dict.fromkeys(NAMES, ASSUMED), "forks_core_s": FORKS}


@dataclass(frozen=True)
class Spread:
    """How many devices of a run generate side by side, and how many update."""

    generating: int = 1
    updating: int = 1


def spread_of(training: Training, engine: Engine, n_devices: int) -> Spread:
    """Of a run on `n_devices`: vLLM's copies and their parts; members, one on a device at a time."""
    if not n_devices:
        return Spread()
    settings = engine.vllm
    generating = settings.tensor_parallel * settings.data_parallel if engine.kind == "vllm" else 1
    return Spread(generating, min(n_devices, n_members(training)) if training.update.device == "cuda" else 1)


@dataclass(frozen=True)
class Work:
    """One step of one run, on its devices; means where it is expected, bounds where it is at most."""

    prompts: int
    proposals: int
    problems: float
    rollouts: float
    tokens_read: float
    tokens_written: float
    tokens_updated: float
    forks: float
    sandbox_core_s: float
    seconds: float
    table_bytes: float


def expected_work(training: Training, engine: Engine, given: Assumptions, n_devices: int = 0) -> Work:
    """A step as the assumptions have it."""
    forks_s = 1 / given.forks_core_s
    spread = spread_of(training, engine, n_devices)
    return _work(training, engine, given, spread, FORKS_A_PROPOSAL * forks_s, forks_s)


def most_work(training: Training, engine: Engine, given: Assumptions, n_devices: int = 0) -> Work:
    """A step in which every proposal is valid, every text as long and every program as slow as the config allows."""
    new, cpu_s = training.sampling.max_new_tokens, training.verifier.cpu_s
    most = replace(
        given, valid_share=1.0, prompt_tokens=longest_prompt(training), proposal_tokens=new, answer_tokens=new
    )
    spread = spread_of(training, engine, n_devices)
    return _work(training, engine, most, spread, CPU_LIMITS_A_PROPOSAL * cpu_s, cpu_s)


def _work(
    training: Training, engine: Engine, given: Assumptions, spread: Spread, proposal_s: float, answer_s: float
) -> Work:
    """teachers * types * prompts, each with its proposals; valid ones are problems, each with its rollouts."""
    wanted, update = training.proposals, training.update
    prompts = n_learners(training)[0] * len(training.problem_types) * wanted.prompts_per_type
    proposals = prompts * wanted.proposals_per_prompt
    problems = proposals * given.valid_share
    rollouts = problems * training.rollouts.per_problem
    writes = wanted.source == "teacher"
    teachers = (prompts * given.prompt_tokens, proposals * given.proposal_tokens)
    students = (problems * given.prompt_tokens, rollouts * given.answer_tokens)
    read, written = teachers[0] * writes + students[0], teachers[1] * writes + students[1]
    learnt = sum(teachers) * ("teacher" in update.roles) + sum(students) * ("student" in update.roles)
    updated = learnt * update.epochs * (0.5 if update.schedule == "alternating" else 1.0)
    sandbox_core_s = proposals * proposal_s + RUN_SHARE * rollouts * answer_s
    generating_s = (read / given.read_tokens_s + written / given.decode_tokens_s) / spread.generating
    device_s = generating_s + updated / given.update_tokens_s / spread.updating
    return Work(
        prompts=prompts,
        proposals=proposals,
        problems=problems,
        rollouts=rollouts,
        tokens_read=read,
        tokens_written=written,
        tokens_updated=updated,
        forks=FORKS_A_PROPOSAL * proposals + RUN_SHARE * rollouts,
        sandbox_core_s=sandbox_core_s,
        seconds=device_s + sandbox_core_s / engine.threads,
        table_bytes=STEP_BYTES
        + PROMPT_BYTES * (teachers[0] + students[0])
        + given.token_bytes * (teachers[1] + students[1]),
    )


def n_members(training: Training) -> int:
    """Adapters of a run."""
    return 1 if training.population.kind == "single" else sum(n_learners(training))


def heldout_completions(training: Training, heldout: Heldout) -> int:
    """Of the bare base and all members after the last step: types * levels * tasks, `samples` and one greedy each."""
    tasks = len(PROBLEM_TYPES) * len(LEVELS) * heldout.tasks_per_level
    return (n_members(training) + 1) * tasks * (heldout.samples + 1)


def heldout_seconds(
    training: Training, engine: Engine, heldout: Heldout, given: Assumptions, n_devices: int = 0
) -> float:
    """Their seconds on a run's devices; a prompt is read for the samples and for the greedy one."""
    completions = heldout_completions(training, heldout)
    read = completions / (heldout.samples + 1) * 2 * given.prompt_tokens
    seconds = read / given.read_tokens_s + completions * given.answer_tokens / given.decode_tokens_s
    return seconds / spread_of(training, engine, n_devices).generating


@dataclass(frozen=True)
class Disk:
    """Bytes of a run after a finished step."""

    step: int
    tables: float
    heavy: int
    parents: int
    checkpoints: int

    @property
    def total(self) -> float:
        return self.tables + self.heavy + self.parents + self.checkpoints


def disk(shape: Shape, training: Training, work: Work, step: int) -> Disk:
    """What lies there after `step`.

    Tables of all steps, each with an index of all problems so far; adapters and optimizer states of the last two steps
    (none of the latter at step 0); adapters of earlier steps at which evolution was due; a bundle every
    `checkpoint_every` steps and after the last. Children are left out: a child is there twice for two steps at most.
    """
    adapters = n_members(training) * adapter_bytes(shape, training.lora)
    states = n_members(training) * optimizer_bytes(shape, training.lora)
    seeds = training.seed_problems.count
    index = INDEX_BYTES * sum(seeds + n * work.problems for n in range(step + 1))
    first = max(0, step - KEPT_STEPS + 1)
    every = training.evolution.every
    n_bundles = step // training.checkpoint_every
    n_bundles += step == training.steps and step % training.checkpoint_every > 0
    return Disk(
        step=step,
        tables=step * work.table_bytes + index,
        heavy=(step - first + 1) * adapters + (step - max(first, 1) + 1) * states,
        parents=(first - 1) // every * adapters if every and first else 0,
        checkpoints=n_bundles * adapters,
    )


def busiest_disk(shape: Shape, training: Training, work: Work) -> float:
    """The most that lies there at any time: the last step's new adapters and states come before the old ones go."""
    last = disk(shape, training, work, training.steps)
    each = adapter_bytes(shape, training.lora) + optimizer_bytes(shape, training.lora)
    return last.total + (n_members(training) * each if training.steps >= KEPT_STEPS else 0)
