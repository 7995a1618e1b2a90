"""What a run holds in the memory of one device: arithmetic of the tensors that the engine and the update make.

Without a device all of it lies in the machine's memory. On a device vLLM generates, with a copy of the base of its own,
and the update has another where `training.update.device` is `cuda`; the transformers engine generates on the CPU in any
case.

Lengths are the longest that the config allows: prompts that leave room for a whole completion, and completions at the
limit. So a run that fits does so whatever its members write. Widths `w` are bytes of a number of the base, 4 or 2;
d, h, g, e, f, v, l, r are hidden width, heads, heads of keys, width of a head, feed-forward width, vocabulary, layers
and rank. Every linear module is taken to be adapted.
"""

from dataclasses import dataclass, replace
from math import ceil, log2

from popu.config import Engine, Training
from popu.engine.decode import FIRST_SLAB
from popu.engine.vllm_settings import room_for
from popu.plan.shape import FLOAT32, Shape, adapter_parameters, fused_parameters, parameters

GB = 1e9
GIB = 2**30
WIDTHS = {"float32": 4, "bfloat16": 2}
STATE_NUMBERS = 7  # a parameter: the adapter as read, its copy, its gradient, the moments as read and as used
VLLM_READS = 16_384  # tokens of prompts that vLLM reads at once on a large device, where it makes room for them
SAMPLING_BYTES = 20  # a token of the vocabulary: float32 logits, log-probabilities, probabilities; float64 sums
SCORE_COPIES = 2  # of one layer's attention scores, beside the probabilities that every layer keeps


@dataclass(frozen=True)
class Batch:
    """The largest micro-batch of an update: tokens read, tokens predicted, and prompt plus completion of one."""

    read: int
    predicted: int
    length: int


@dataclass(frozen=True)
class Memory:
    """Bytes on one device. A step generates, then updates.

    `weights` and `adapters` are there in both: the copy of the base that learns, which without vLLM also generates.
    vLLM holds `engine_weights`, room for adapters in `slots`, and the rest; `sequence` is the cache of the longest text
    that it has to take. `released`: what generating takes is given back before an update.
    """

    weights: int = 0
    adapters: int = 0
    engine_weights: int = 0
    slots: int = 0
    cache: int = 0
    sequence: int = 0
    reading: int = 0
    sampling: int = 0
    states: int = 0
    activations: int = 0
    scores: int = 0
    logits: int = 0
    drift: int = 0
    released: bool = True

    @property
    def generate(self) -> int:
        """An engine's own weights and adapters, the cache, and what reading prompts or sampling a token takes."""
        return self.engine_weights + self.slots + self.cache + max(self.reading, self.sampling)

    @property
    def update(self) -> int:
        """One adapter's step: its states, and what a backward pass or the KL to the base takes."""
        return self.states + max(self.activations + self.scores + self.logits, self.drift)

    @property
    def peak(self) -> int:
        updating = self.update + (0 if self.released else self.generate)
        return self.weights + self.adapters + max(self.generate, updating)


NOTHING = Memory()


def memory(shape: Shape, training: Training, engine: Engine, device_gb: float = 0.0) -> Memory:
    """The terms, each as its function says; 0 GB: no device."""
    is_vllm, on_machine = engine.kind == "vllm", device_gb == 0
    learns = on_machine or training.update.device == "cuda"
    found = _learning(shape, training, engine) if learns else NOTHING
    if is_vllm:
        return _with_vllm(found, shape, training, engine, device_gb)
    return _with_transformers(found, shape, training, engine) if on_machine else found


def _learning(shape: Shape, training: Training, engine: Engine) -> Memory:
    """The base, and an update on it."""
    width, recompute = WIDTHS[engine.dtype], training.update.gradient_checkpointing
    batch = update_batch(training)
    return replace(
        NOTHING,
        weights=width * parameters(shape),
        states=FLOAT32 * STATE_NUMBERS * adapter_parameters(shape, training.lora),
        activations=batch.read * activations_bytes(shape, training.lora.rank, width, recompute),
        scores=batch.predicted * scores_bytes(shape, batch.length, width, recompute),
        logits=batch.predicted * 16 * shape.vocab,  # float32 logits, log-probabilities and the gradients of both
        drift=batch.predicted * 28 * shape.vocab,  # the same of the bare base beside them, no activations
    )


def _with_transformers(found: Memory, shape: Shape, training: Training, engine: Engine) -> Memory:
    """Generating on the same base: a cache for the largest batch."""
    width = WIDTHS[engine.dtype]
    rows, prompts = decoded_together(training, engine)
    prompt = longest_prompt(training)
    room = prompts * prompt + rows * slab_tokens(training.sampling.max_new_tokens)
    return replace(
        found,
        adapters=adapters_bytes(shape, training),
        cache=width * cache_numbers(shape) * room,
        reading=prompts * prompt * reading_bytes(shape, width),
        sampling=rows * SAMPLING_BYTES * shape.vocab,
    )


def _with_vllm(found: Memory, shape: Shape, training: Training, engine: Engine, device_gb: float) -> Memory:
    """vLLM beside it, on `tensor_parallel` devices each with its part of weights and cache, but all of the adapters.

    The cache is `cache_gb`, or what `memory_fraction` of the device leaves; without a device, or where nothing is left,
    0 bytes. Graphs and buffers of vLLM are part of `reserve_gb`.
    """
    width, settings = WIDTHS[engine.dtype], engine.vllm
    lora = training.lora.model_copy(update={"rank": room_for(training.lora.rank)})
    engine_weights = width * parameters(shape) // settings.tensor_parallel
    slots = width * (settings.max_loras + 1) * adapter_parameters(shape, lora)  # and one for the bare base
    token = width * cache_numbers(shape) // settings.tensor_parallel
    reading = VLLM_READS * vllm_reading_bytes(shape, width)
    sampling = engine.max_batch_rows * SAMPLING_BYTES * shape.vocab
    left = settings.memory_fraction * device_gb * GB - engine_weights - slots - max(reading, sampling)
    cache = settings.cache_gb * GIB if settings.cache_gb is not None else max(0.0, left)
    return replace(
        found,
        engine_weights=engine_weights,
        slots=slots,
        cache=int(cache),
        sequence=token * (settings.context or shape.positions),
        reading=reading,
        sampling=sampling,
        released=settings.sleep and device_gb > 0,
    )


def sequences_at_once(shape: Shape, engine: Engine, found: Memory, tokens: float) -> float:
    """Sequences of so many tokens that vLLM decodes together: `max_batch_rows`, or as many as the cache holds."""
    token = WIDTHS[engine.dtype] * cache_numbers(shape) / engine.vllm.tensor_parallel
    return min(engine.max_batch_rows, max(1.0, found.cache / (token * tokens)))


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
    n_prompts = n_learners(training)[0] * len(training.problem_types) * proposals.prompts_per_type
    groups = ((proposals.proposals_per_prompt, n_prompts), (per_problem, n_prompts * proposals.proposals_per_prompt))
    prompts = [min(count, max(1, engine.max_batch_rows // group)) for group, count in groups]
    return max(n * group for n, (group, _) in zip(prompts, groups, strict=True)), max(prompts)


def update_batch(training: Training) -> Batch:
    """Prompts with completions at the limit, as many of each as `micro_batch_tokens` hold, but at least one."""
    prompt, new = longest_prompt(training), training.sampling.max_new_tokens
    group = max(training.proposals.proposals_per_prompt, training.rollouts.per_problem)
    group = min(group, max(1, (training.update.micro_batch_tokens - prompt) // new))
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


def vllm_reading_bytes(shape: Shape, width: int) -> int:
    """Reading a token in vLLM: w (3 f + 4 d).

    Gate, up and their product; the residual stream, its norm and a copy of both.
    """
    return width * (3 * shape.intermediate + 4 * shape.hidden)


def activations_bytes(shape: Shape, rank: int, width: int, recompute: bool) -> int:
    """What all layers keep of a token: l times one layer; recomputed, one layer and the inputs of all, w l d."""
    each = activation_bytes(shape, rank, width)
    return each + width * shape.n_layers * shape.hidden if recompute else shape.n_layers * each


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


def scores_bytes(shape: Shape, length: int, width: int, recompute: bool) -> int:
    """Attention of a completion's token to `length` tokens, prompt and completion: w h ((l + 2) length + l e).

    Every layer keeps the probabilities and the queries; one layer at a time has its scores twice beside them. l is 1
    where layers are recomputed.
    """
    kept = 1 if recompute else shape.n_layers
    return width * shape.n_heads * (length * (kept + SCORE_COPIES) + kept * shape.head_dim)
