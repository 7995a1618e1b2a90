"""What a run holds in the memory of one device: arithmetic of the tensors that the engine and the update make.

Lengths are the longest that the config allows: prompts that leave room for a whole completion, and completions at the
limit. So a run that fits does so whatever its members write. Widths `w` are bytes of a number of the base, 4 or 2;
d, h, g, e, f, v, l, r are hidden width, heads, heads of keys, width of a head, feed-forward width, vocabulary, layers
and rank. Every linear module is taken to be adapted.
"""

from dataclasses import dataclass
from math import ceil, log2

from popu.config import Engine, Training
from popu.engine.decode import FIRST_SLAB
from popu.plan.shape import FLOAT32, Shape, adapter_parameters, fused_parameters, parameters
from popu.problems.types import PROBLEM_TYPES

WIDTHS = {"float32": 4, "bfloat16": 2}
STATE_NUMBERS = 7  # a parameter: the adapter as read, its copy, its gradient, the moments as read and as used
SCORE_COPIES = 2  # of one layer's attention scores, beside the probabilities that every layer keeps


@dataclass(frozen=True)
class Batch:
    """The largest micro-batch of an update: tokens read, tokens predicted, and prompt plus completion of one."""

    read: int
    predicted: int
    length: int


@dataclass(frozen=True)
class Memory:
    """Bytes on one device. A step generates, then updates: `weights` and `adapters` are there in both."""

    weights: int
    adapters: int
    cache: int
    reading: int
    sampling: int
    states: int
    activations: int
    scores: int
    logits: int
    drift: int

    @property
    def generate(self) -> int:
        """A batch in the making: the cache, and what reading its prompts or sampling a token takes."""
        return self.cache + max(self.reading, self.sampling)

    @property
    def update(self) -> int:
        """One adapter's step: its states, and what a backward pass or the KL to the base takes."""
        return self.states + max(self.activations + self.scores + self.logits, self.drift)

    @property
    def peak(self) -> int:
        return self.weights + self.adapters + max(self.generate, self.update)


def memory(shape: Shape, training: Training, engine: Engine) -> Memory:
    """The terms, each as its function says."""
    width = WIDTHS[engine.dtype]
    rows, prompts = decoded_together(training, engine)
    prompt, batch = longest_prompt(training), update_batch(training)
    room = prompts * prompt + rows * slab_tokens(training.sampling.max_new_tokens)
    return Memory(
        weights=width * parameters(shape),
        adapters=adapters_bytes(shape, training),
        cache=width * cache_numbers(shape) * room,
        reading=prompts * prompt * reading_bytes(shape, width),
        sampling=rows * 20 * shape.vocab,  # float32 logits, log-probabilities, probabilities; float64 sums
        states=FLOAT32 * STATE_NUMBERS * adapter_parameters(shape, training.lora),
        activations=batch.read * shape.n_layers * activation_bytes(shape, training.lora.rank, width),
        scores=batch.predicted * scores_bytes(shape, batch.length, width),
        logits=batch.predicted * 16 * shape.vocab,  # float32 logits, log-probabilities and the gradients of both
        drift=batch.predicted * 28 * shape.vocab,  # the same of the bare base beside them, no activations
    )


def longest_prompt(training: Training) -> int:
    """Tokens of a prompt that leaves room for a whole completion, at least 1."""
    return max(1, training.sampling.context - training.sampling.max_new_tokens)


def n_learners(training: Training) -> tuple[int, int]:
    """Adapters that propose and adapters that solve; the single agent is both."""
    population = training.population
    return (1, 1) if population.kind == "single" else (population.n_teachers, population.n_students)


def decoded_together(training: Training, engine: Engine) -> tuple[int, int]:
    """Completions and prompts of the largest batch: whole groups up to `max_batch_rows`, at least one."""
    proposals, per_problem = training.proposals, training.rollouts.per_problem
    n_prompts = n_learners(training)[0] * len(PROBLEM_TYPES) * proposals.prompts_per_type
    groups = ((proposals.proposals_per_prompt, n_prompts), (per_problem, n_prompts * proposals.proposals_per_prompt))
    prompts = [min(count, max(1, engine.max_batch_rows // group)) for group, count in groups]
    return max(n * group for n, (group, _) in zip(prompts, groups, strict=True)), max(prompts)


def update_batch(training: Training) -> Batch:
    """Prompts with all their completions, at the limit; `micro_batch_tokens` are filled, or one prompt exceeds them."""
    prompt, new = longest_prompt(training), training.sampling.max_new_tokens
    group = max(training.proposals.proposals_per_prompt, training.rollouts.per_problem)
    tree = prompt + group * new
    read = max(tree, training.update.micro_batch_tokens)
    return Batch(read, round(read * group * new / tree), prompt + new)


def adapters_bytes(shape: Shape, training: Training) -> int:
    """The adapters of one role, as read and as the forward pass lays them side by side, float32."""
    each = adapter_parameters(shape, training.lora) + fused_parameters(shape, training.lora)
    return FLOAT32 * max(n_learners(training)) * each


def cache_numbers(shape: Shape) -> int:
    """Numbers that the cache keeps of a token: 2 l g e."""
    return 2 * shape.n_layers * shape.n_kv_heads * shape.head_dim


def slab_tokens(new: int) -> int:
    """Room of a sequence, in tokens: its slab, doubled as it fills, and the one that it is copied from."""
    doublings = max(0, ceil(log2(max(new - 1, 1) / FIRST_SLAB)))
    slab: int = FIRST_SLAB * 2**doublings
    return slab + (slab // 2 if doublings else 0)


def reading_bytes(shape: Shape, width: int) -> int:
    """Reading a token of a prompt: 2 f (w + 8) + d (2 w + 8).

    The largest moment: gate and up of a layer in the base's type, the adapters' share in float32 twice (padded and
    not), beside the residual stream, its norm, and that in float32 twice.
    """
    return 2 * shape.intermediate * (width + 8) + shape.hidden * (2 * width + 8)


def activation_bytes(shape: Shape, rank: int, width: int) -> int:
    """What one layer keeps of a token for the backward pass.

    16 d + e (w (3 h + g) + 4 h + o) + f (3 w + 4) + 28 r + 4 h + 8, o = w h where the base is not float32, else 0.

    Inputs of both norms and of the projections in float32; queries and keys, keys and values repeated for all heads;
    the attention's output in float32 and in the base's type; gate, up and their products; the adapters' inner products;
    the scales of attention and norms.
    """
    h, e = shape.n_heads, shape.head_dim
    attention = e * (width * (3 * h + shape.n_kv_heads) + 4 * h + (width * h if width != FLOAT32 else 0))
    return 16 * shape.hidden + attention + shape.intermediate * (3 * width + 4) + 28 * rank + 4 * h + 8


def scores_bytes(shape: Shape, length: int, width: int) -> int:
    """Attention of a completion's token to `length` tokens, prompt and completion: w h ((l + 2) length + l e).

    Every layer keeps the probabilities and the queries; one layer at a time has its scores twice beside them.
    """
    per_layer = length * (shape.n_layers + SCORE_COPIES) + shape.n_layers * shape.head_dim
    return width * shape.n_heads * per_layer
