"""The steps of `snakemake pretrain_nano`: tokenizer, corpora, phases of training, and the base with its card."""

import itertools
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from transformers import PreTrainedTokenizerFast

from popu.artifacts import atomic_write, sha256, write_json
from popu.config import Base, Engine, Run, Training
from popu.engine.base import TransformersEngine
from popu.evaluate.heldout import score
from popu.grammar.levels import LEVELS, UNSEEN_LEVELS
from popu.grammar.suite import heldout_suite
from popu.nano.corpus import sample_rows
from popu.nano.pretrain import ENCODED, Phase, encode_rows, new_model, train
from popu.nano.proposals import own_proposals
from popu.nano.tokenizer import train_tokenizer
from popu.sandbox.executor import Executor
from popu.seeds import derive_rng

TOKENIZER_ROWS = 10_000
CHUNK_ROWS = 5_000
CARD_TASKS_PER_LEVEL = 40
CARD_SAMPLES = 8


def make_tokenizer(out: Path) -> None:
    """Trains the tokenizer on clean rows and saves it to `out`."""
    rows = itertools.islice(sample_rows("trunk", 0.0, derive_rng("tokenizer", 0)), TOKENIZER_ROWS)
    texts = (row.prefix + "".join(given + completion for given, completion in row.branches) for row in rows)
    with _whole(out, "tokenizer.json") as directory:
        train_tokenizer(texts).save_pretrained(directory)


def make_corpus(tokenizer_path: Path, out: Path, phase: str, n_rows: int, slip_share: float, seed: int) -> None:
    """Encodes `n_rows` rows of a phase; `slip_share` of the solver answers are slips."""
    tokenizer = _tokenizer(tokenizer_path)
    rows = sample_rows(phase, slip_share, derive_rng("corpus", seed))
    with atomic_write(out) as temporary, pq.ParquetWriter(temporary, ENCODED) as writer:
        for start in range(0, n_rows, CHUNK_ROWS):
            chunk = list(itertools.islice(rows, min(CHUNK_ROWS, n_rows - start)))
            writer.write_table(encode_rows(chunk, tokenizer))
            print(f"corpus {start + len(chunk)}/{n_rows} rows", flush=True)


def run_phase(
    tokenizer_path: Path, corpora: Sequence[Path], init: Path | None, phase: Phase, threads: int, out: Path
) -> None:
    """Trains a phase from fresh or from `init` and saves the model to `out`; resumes where it was interrupted."""
    torch.set_num_threads(threads)
    tokenizer = _tokenizer(tokenizer_path)
    model = new_model(len(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id, phase.seed)
    if init is not None:
        model.load_state_dict(load_file(init / "model.safetensors"), strict=False)
    train(model, corpora, phase, out, lambda text: print(text, flush=True))
    with _whole(out, "model.safetensors") as directory:
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)


@contextmanager
def _whole(out: Path, last: str) -> Iterator[Path]:
    """A directory for a library to write to; its files are moved to `out`, `last` after the others."""
    directory = out / ".saving"
    shutil.rmtree(directory, ignore_errors=True)  # of a killed call
    directory.mkdir(parents=True)
    yield directory
    for path in sorted(directory.iterdir(), key=lambda path: path.name == last):
        path.replace(out / path.name)
    directory.rmdir()


def write_base(model: Path, clean: Path | None, slip_share: float, out: Path) -> None:
    """Copies the model to `out` with card.json: sha256, how it was made, and its measured scores.

    `clean` is the same model on clean answers, scored for comparison.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(model.iterdir()):
        if path.suffix == ".json" or path.name == "model.safetensors":
            shutil.copyfile(path, out / path.name)
    card = {
        "name": "nano",
        "sha256": sha256(out / "model.safetensors"),
        "slip_share": slip_share,
        "unseen_levels": list(UNSEEN_LEVELS),
        "levels": {str(level): name for level, name in LEVELS.items()},
        "scores": card_scores(out),
    }
    if clean is not None:
        card["scores_on_clean_answers"] = card_scores(clean)
    write_json(out / "card.json", card)


def card_scores(model: Path) -> dict[str, Any]:
    """Held-out accuracy by type and level at temperature 1 and greedy, and what its own proposals are like."""
    settings = Run(arm="card", seed=0, training=Training(), base=Base(path=str(model)), base_sha256="", engine=Engine())
    engine = TransformersEngine(settings.base, settings.engine, settings.training.lora.targets)
    tasks = heldout_suite(CARD_TASKS_PER_LEVEL, seed=1)
    with Executor() as executor:
        results = score(engine, executor, settings, tasks, {"base": None}, CARD_SAMPLES)["base"]
        proposals = own_proposals(engine, executor, settings)
    rows = list(zip(tasks, results, strict=True))
    return {
        "heldout_tasks": len(tasks),
        "samples": CARD_SAMPLES,
        "accuracy": _accuracy(rows),
        "by_type": {t: _accuracy(_where(rows, problem_type=t)) for t in ("code_o", "code_i", "code_f")},
        "by_level": {str(level): _accuracy(_where(rows, level=level)) for level in LEVELS},
        "own_proposals": proposals,
    }


def _where(rows: list[Any], problem_type: str | None = None, level: int | None = None) -> list[Any]:
    return [
        (task, result)
        for task, result in rows
        if problem_type in (None, task.problem.problem_type) and level in (None, task.level)
    ]


def _accuracy(rows: list[Any]) -> dict[str, float]:
    sampled = sum(n_correct for _, (n_correct, _) in rows) / (CARD_SAMPLES * len(rows))
    greedy = sum(greedy for _, (_, greedy) in rows) / len(rows)
    return {"n": len(rows), "sampled": round(sampled, 4), "greedy": round(greedy, 4)}


def _tokenizer(path: Path) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast.from_pretrained(path)
