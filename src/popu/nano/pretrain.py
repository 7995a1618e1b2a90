"""Pretraining of the embedded base: a small Llama from scratch on grammar rows, resumable.

A trunk on clean answers, then a short branch on rows whose solver answers are of mixed quality. The same branch on
clean rows is the comparison for the base's card.
"""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from popu.artifacts import write_tensors
from popu.engine.trees import Tree
from popu.nano.corpus import Row
from popu.nano.packing import pack
from popu.optimizer import load_state_tensors, state_tensors
from popu.seeds import derive_rng, derive_seed

Core = Callable[..., Any]

ROW_WIDTH = 192  # tokens of a row into which trees are packed
POOL = 128  # trees among which the packing chooses
GIVEN_WEIGHT = 0.5  # loss weight of what the model only reads in self-play: it teaches names and copying

ARCHITECTURE: dict[str, Any] = {
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
    """A linear fall of the learning rate from `lr` to `final_lr`, after `warmup` steps of rising to it."""

    n_steps: int
    lr: float
    final_lr: float
    rows_per_batch: int  # packed rows of `ROW_WIDTH` tokens
    warmup: int = 100
    checkpoint_every: int = 500
    seed: int = 0


def phase(name: str, n_steps: int) -> Phase:
    """A phase of the recipe by name: "trunk" or "branch". Raises ValueError for another name."""
    phases = {
        "trunk": Phase(n_steps, lr=2e-3, final_lr=2e-4, rows_per_batch=6),
        "branch": Phase(n_steps, lr=5e-4, final_lr=0.0, rows_per_batch=6),
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


WeightedTree = tuple[Tree, list[float]]
Batch = list[WeightedTree]


def batches(corpora: Sequence[Path], n_rows: int, seed: int, epoch: int) -> Iterator[Batch]:
    """Batches of (tree, weights of its tokens but the first) in random order, each filling `n_rows` packed rows.

    Levels and kinds are mixed in every batch: sorting rows by length would make batches of one kind each.
    """
    packed = _packed_rows(_shuffled(corpora, derive_rng(seed, "order", epoch)))
    while len(rows := list(itertools.islice(packed, n_rows))) == n_rows:
        yield [tree for row in rows for tree in row]


def _shuffled(corpora: Sequence[Path], rng: random.Random) -> Iterator[WeightedTree]:
    files = [pq.ParquetFile(corpus) for corpus in corpora]
    groups = [(file, group) for file in files for group in range(file.num_row_groups)]
    rng.shuffle(groups)
    for file, group in groups:
        rows = [_weighted(row) for row in file.read_row_group(group).to_pylist()]
        rng.shuffle(rows)
        yield from (row for row in rows if row[0].n_tokens <= ROW_WIDTH)


def _packed_rows(trees: Iterator[WeightedTree]) -> Iterator[list[WeightedTree]]:
    """Rows of `ROW_WIDTH` tokens: the tree that has waited longest, then from the next `POOL` the largest that fit."""
    pool = list(itertools.islice(trees, POOL))
    while pool:
        row, free = [], ROW_WIDTH
        at: int | None = 0
        while at is not None:
            row.append(pool.pop(at))
            free -= row[-1][0].n_tokens
            fitting = [i for i, (tree, _) in enumerate(pool) if tree.n_tokens <= free]
            at = max(fitting, key=lambda i: pool[i][0].n_tokens, default=None)
        yield row
        pool += itertools.islice(trees, len(row))


def _weighted(row: dict) -> tuple[Tree, list[float]]:
    """A row as a tree of at most `ROW_WIDTH` tokens where dropping branches can do it, and the loss weights of its
    tokens but the first."""
    pairs = list(zip(row["given"], row["completion"], strict=True))
    while len(pairs) > 1 and len(row["prefix"]) + sum(len(g) + len(c) for g, c in pairs) > ROW_WIDTH:
        pairs.pop()
    weights = [GIVEN_WEIGHT] * (len(row["prefix"]) - 1)
    for given, completion in pairs:
        weights += [GIVEN_WEIGHT] * len(given) + [1.0] * len(completion)
    return Tree(row["prefix"], [given + completion for given, completion in pairs]), weights


# --- training -------------------------------------------------------------------------------------------------


def weighted_loss(model: LlamaForCausalLM, core: Core, batch: Batch, n_rows: int) -> torch.Tensor:
    """Weighted mean cross-entropy of all tokens but the first of every tree; `core` is the model below its head.

    The batch is padded to `n_rows` rows, so that every batch has the same shape.
    """
    packed = pack([tree for tree, _ in batch], ROW_WIDTH, predict_prefix=True)
    missing = n_rows - packed.n_rows
    visible = F.pad(packed.mask, (0, 0, 0, 0, 0, 0, 0, missing), value=True)
    states = core(
        input_ids=F.pad(packed.ids, (0, 0, 0, missing)),
        attention_mask=torch.zeros(visible.shape).masked_fill_(~visible, torch.finfo(torch.float32).min),
        position_ids=F.pad(packed.positions, (0, 0, 0, missing)),
        use_cache=False,
    ).last_hidden_state
    logits = model.lm_head(states[packed.rows, packed.sources])
    weights = torch.tensor([weight for _, row in batch for weight in row])
    losses = F.cross_entropy(logits, packed.tokens, reduction="none")
    return (losses * weights).sum() / weights.sum()


def compiled(model: LlamaForCausalLM) -> Core:
    """The model below its head, compiled where the machine has a C++ compiler (about 1.5 times as fast).

    The plain attention, compiled, is a tenth faster here than the fused one with a mask.
    """
    model.set_attn_implementation("eager")
    core: Core = model.model
    return torch.compile(core, dynamic=False) if which("g++") else core


def schedule(step: int, phase: Phase) -> float:
    """The learning rate at a step."""
    rise = min(1.0, (step + 1) / phase.warmup)
    return rise * (phase.lr + (phase.final_lr - phase.lr) * step / phase.n_steps)


def train(
    model: LlamaForCausalLM,
    corpora: Sequence[Path],
    phase: Phase,
    directory: Path,
    report: Callable[[str], None],
) -> None:
    """Trains `model` in place for a phase; resumes from `directory` if an earlier call was interrupted."""
    names = dict(model.named_parameters())
    core = compiled(model)
    optimizer = torch.optim.AdamW(names.values(), lr=phase.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    step = _resume(optimizer, names, directory)
    started, first = time.monotonic(), step
    for batch in itertools.islice(_endless(corpora, phase), step, phase.n_steps):
        for group in optimizer.param_groups:
            group["lr"] = schedule(step, phase)
        loss = weighted_loss(model, core, batch, phase.rows_per_batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % phase.checkpoint_every == 0 or step == phase.n_steps:
            _save(optimizer, names, step, directory)
            left = (time.monotonic() - started) / (step - first) * (phase.n_steps - step)
            report(f"step {step}/{phase.n_steps} loss {loss.item():.3f} {left / 60:.1f} min left")


def _endless(corpora: Sequence[Path], phase: Phase) -> Iterator[Batch]:
    for epoch in itertools.count():
        yield from batches(corpora, phase.rows_per_batch, phase.seed, epoch)


def _save(optimizer: torch.optim.AdamW, names: dict[str, torch.nn.Parameter], step: int, directory: Path) -> None:
    tensors = {f"model.{name}": parameter.detach().contiguous() for name, parameter in names.items()}
    tensors |= {f"optimizer.{key}": value for key, value in state_tensors(optimizer, names).items()}
    write_tensors(directory / "progress.safetensors", tensors, {"step": str(step)})


def _resume(optimizer: torch.optim.AdamW, names: dict[str, torch.nn.Parameter], directory: Path) -> int:
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
