"""Pretraining of the embedded base: a small Llama from scratch on grammar rows, resumable.

A trunk on clean answers, then a short branch on rows whose solver answers are of mixed quality. The same branch on clean
rows is the comparison for the base's card.
"""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from popu.artifacts import atomic_write
from popu.engine.packing import Tree, pack
from popu.nano.corpus import Row
from popu.optimizer import load_state_tensors, state_tensors
from popu.seeds import derive_rng, derive_seed

GIVEN_WEIGHT = 0.1  # loss weight of tokens that the model only reads in self-play

ARCHITECTURE = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
    "rope_theta": 10_000.0,
    "initializer_range": 0.08,  # about 1/sqrt(width): 0.02 costs a model this narrow its first million tokens
}


@dataclass(frozen=True)
class Phase:
    """`warmup` steps up to `lr`, then constant, or (`decay`) a linear fall from `lr` to zero."""

    n_steps: int
    lr: float
    tokens_per_batch: int  # padded positions
    decay: bool = False
    warmup: int = 100
    checkpoint_every: int = 100
    seed: int = 0


def phase(name: str, n_steps: int) -> Phase:
    """A phase of the recipe by name: "warm" and "refine" make the trunk, "branch" ends it.

    Small batches at a high rate bring a model this small past its first plateau; what it then knows shows only at a
    lower rate. Raises ValueError for another name.
    """
    phases = {
        "warm": Phase(n_steps, lr=3e-3, tokens_per_batch=1_250),
        "refine": Phase(n_steps, lr=1e-3, tokens_per_batch=5_000),
        "branch": Phase(n_steps, lr=1e-3, tokens_per_batch=5_000, decay=True),
    }
    if name not in phases:
        raise ValueError(f"phase: expected one of {', '.join(phases)}, found {name!r}")
    return phases[name]


def new_model(vocab_size: int, eos_token_id: int, pad_token_id: int, seed: int) -> LlamaForCausalLM:
    """A fresh model of the embedded base's architecture, float32."""
    torch.manual_seed(derive_seed(seed, "nano-init") % 2**31)
    config = LlamaConfig(
        vocab_size=vocab_size,
        eos_token_id=eos_token_id,
        pad_token_id=pad_token_id,
        bos_token_id=None,
        attn_implementation="sdpa",
        **ARCHITECTURE,
    )
    return LlamaForCausalLM(config)


# --- rows as token ids ----------------------------------------------------------------------------------------

ENCODED = pa.schema(
    [
        ("prefix", pa.list_(pa.uint16())),
        ("given", pa.list_(pa.list_(pa.uint16()))),
        ("completion", pa.list_(pa.list_(pa.uint16()))),
    ]
)


def encode_rows(rows: Sequence[Row], tokenizer: PreTrainedTokenizerFast) -> pa.Table:
    """Rows as token ids; every completion ends with EOS."""
    texts = [text for row in rows for text in (row.prefix, *(part for branch in row.branches for part in branch))]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    columns: dict[str, list] = {"prefix": [], "given": [], "completion": []}
    for row in rows:
        columns["prefix"].append(next(encoded))
        pairs = [(next(encoded), next(encoded)) for _ in row.branches]
        columns["given"].append([given for given, _ in pairs])
        columns["completion"].append([[*completion, tokenizer.eos_token_id] for _, completion in pairs])
    return pa.table(columns, schema=ENCODED)


def batches(
    corpora: Sequence[Path], tokens_per_batch: int, seed: int, epoch: int
) -> Iterator[list[tuple[Tree, list[float]]]]:
    """Batches of (tree, weights of its branch tokens), rows of like length together, in an order set by the seed."""
    rng = derive_rng(seed, "order", epoch)
    files = [pq.ParquetFile(corpus) for corpus in corpora]
    groups = [(file, group) for file in files for group in range(file.num_row_groups)]
    rng.shuffle(groups)
    for file, group in groups:
        rows = [_weighted(row) for row in file.read_row_group(group).to_pylist()]
        rng.shuffle(rows)
        rows.sort(key=lambda row: row[0].n_tokens)
        cut: list[list[tuple[Tree, list[float]]]] = [[]]
        for row in rows:
            if cut[-1] and (len(cut[-1]) + 1) * row[0].n_tokens > tokens_per_batch:
                cut.append([])
            cut[-1].append(row)
        rng.shuffle(cut)
        yield from cut


def _weighted(row: dict) -> tuple[Tree, list[float]]:
    """The first prefix token alone is the tree's prefix, so that the rest of the prefix is trained on too.

    With several branches the prefix has to be shared, and only branches are trained on.
    """
    branches = [given + completion for given, completion in zip(row["given"], row["completion"], strict=True)]
    weights = [
        [GIVEN_WEIGHT] * len(given) + [1.0] * len(completion)
        for given, completion in zip(row["given"], row["completion"], strict=True)
    ]
    prefix = row["prefix"]
    if len(branches) == 1:
        branches = [prefix[1:] + branches[0]]
        weights = [[GIVEN_WEIGHT] * (len(prefix) - 1) + weights[0]]
        prefix = prefix[:1]
    return Tree(prefix, branches), [weight for branch in weights for weight in branch]


# --- training -------------------------------------------------------------------------------------------------


def weighted_loss(model: LlamaForCausalLM, batch: list[tuple[Tree, list[float]]]) -> torch.Tensor:
    """Weighted mean cross-entropy of the branch tokens."""
    packed = pack([tree for tree, _ in batch])
    states = model.model(
        input_ids=packed.ids, attention_mask=packed.mask, position_ids=packed.positions, use_cache=False
    ).last_hidden_state
    logits = model.lm_head(states[packed.rows, packed.sources])
    weights = torch.tensor([weight for _, row in batch for weight in row])
    losses = F.cross_entropy(logits, packed.tokens, reduction="none")
    return (losses * weights).sum() / weights.sum()


def schedule(step: int, phase: Phase) -> float:
    """Share of the phase's learning rate at a step."""
    if phase.decay:
        return 1 - step / phase.n_steps
    return min(1.0, (step + 1) / phase.warmup)


def train(
    model: LlamaForCausalLM,
    corpora: Sequence[Path],
    phase: Phase,
    directory: Path,
    report: Callable[[str], None],
) -> None:
    """Trains `model` in place for a phase; resumes from `directory` if an earlier call was interrupted."""
    names = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(names.values(), lr=phase.lr, betas=(0.9, 0.95), weight_decay=0.01)
    step = _resume(model, optimizer, names, directory)
    started, first = time.monotonic(), step
    for batch in itertools.islice(_endless(corpora, phase), step, phase.n_steps):
        for group in optimizer.param_groups:
            group["lr"] = phase.lr * schedule(step, phase)
        loss = weighted_loss(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % phase.checkpoint_every == 0 or step == phase.n_steps:
            _save(model, optimizer, names, step, directory)
            left = (time.monotonic() - started) / (step - first) * (phase.n_steps - step)
            report(f"step {step}/{phase.n_steps} loss {loss.item():.3f} {left / 60:.1f} min left")


def _endless(corpora: Sequence[Path], phase: Phase) -> Iterator[list[tuple[Tree, list[float]]]]:
    for epoch in itertools.count():
        yield from batches(corpora, phase.tokens_per_batch, phase.seed, epoch)


def _save(model, optimizer, names, step: int, directory: Path) -> None:  # type: ignore[no-untyped-def]
    tensors = {f"model.{name}": parameter.detach().contiguous() for name, parameter in names.items()}
    tensors |= {f"optimizer.{key}": value for key, value in state_tensors(optimizer, names).items()}
    with atomic_write(directory / "progress.safetensors") as path:
        save_file(tensors, path, metadata={"step": str(step)})


def _resume(model, optimizer, names, directory: Path) -> int:  # type: ignore[no-untyped-def]
    path = directory / "progress.safetensors"
    if not path.exists():
        return 0
    with safe_open(path, "pt") as file:
        step = int(file.metadata()["step"])
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    with torch.no_grad():
        for name, parameter in names.items():
            parameter.copy_(tensors[f"model.{name}"])
    state = {key.removeprefix("optimizer."): value for key, value in tensors.items() if key.startswith("optimizer.")}
    load_state_tensors(optimizer, names, state)
    return step
