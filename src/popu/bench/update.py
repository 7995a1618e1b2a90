"""The policy update beside TRL's `GRPOTrainer`: the same base, LoRA shape, sequences, advantages, loss and threads.

The sequences have self-play's shape: 8 completions a prompt, of mixed lengths. TRL gets them in its own form (rows
padded to the longest of a micro-batch, in the best of three micro-batch sizes) and does what its training step does
with them: loss, backward, clipping, AdamW. Rounds take turns; figures are medians.
"""

import importlib
import os
import resource
import statistics
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch

from popu.bench.workload import BASE, RANK, TARGETS, alternating_s, load_engine, random_tokens, ratio, trained_adapter
from popu.config import Update
from popu.engine.base import TransformersEngine
from popu.rl.update import TrainSequence, Updated, update_adapter

N_PROMPTS = 96
GROUP = 8
PROMPT_TOKENS = (20, 100)  # uniform
NEW_TOKENS = (4, 48)  # half of them below 12, as measured in self-play
N_MEMBERS = 8
PEER_ROWS = (8, 16, 32)  # micro-batch sizes that TRL is tried with
TARGET_RATIO = 1.5
TARGET_MEMBERS = 1.31  # time of 8 members over that of one, at equal tokens


def bench_update(threads: int = 2, rounds: int = 3) -> dict[str, Any]:
    """Completion tokens a second, ratio to TRL (None where it is not installed), and 8 members beside one.

    `short` names the targets that are missed.
    """
    engine = load_engine(threads)
    sequences = _sequences(engine)
    adapter = trained_adapter(engine, 0)
    share = len(sequences) // N_MEMBERS
    parts = [sequences[i * share : (i + 1) * share] for i in range(N_MEMBERS)]
    settings = Update()

    def update(rows: Sequence[TrainSequence]) -> Updated:
        return update_adapter(engine.forward, adapter, {}, rows, settings, 1.0)

    methods: dict[str, Callable[[], object]] = {
        "one": lambda: update(sequences),
        "members": lambda: [update(part) for part in parts],
    }
    with tempfile.TemporaryDirectory() as directory:
        peer = _trl(directory)
        methods |= {f"trl_{rows}": lambda rows=rows: peer(sequences, rows) for rows in PEER_ROWS if peer}  # type: ignore[misc]
        times = alternating_s(methods, rounds)
    peer_names = [name for name in times if name.startswith("trl_")]
    best = min(peer_names, key=lambda name: statistics.median(times[name]), default=None)
    n_tokens = sum(len(sequence.tokens) for sequence in sequences)
    result: dict[str, Any] = {
        f"{name}_tokens_per_s": round(n_tokens / statistics.median(values)) for name, values in times.items()
    }
    result |= {
        "ratio": ratio(times, best, "one") if best else None,
        "target": TARGET_RATIO,
        "peer": f"trl {importlib.import_module('trl').__version__}, {best.removeprefix('trl_')} rows" if best else None,
        "members_over_one": ratio(times, "members", "one"),
        "members_target": TARGET_MEMBERS,
        "completion_tokens": n_tokens,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "threads": threads,
        "rounds": rounds,
        "torch": torch.__version__,
        "load_average": round(os.getloadavg()[0], 2),
    }
    result["short"] = [
        *(["ratio"] if best and result["ratio"] < TARGET_RATIO else []),
        *(["members_over_one"] if result["members_over_one"] > TARGET_MEMBERS else []),
    ]
    return result


def _sequences(engine: TransformersEngine) -> list[TrainSequence]:
    """Random tokens in self-play's shape, every advantage different from 0."""
    generator = torch.Generator().manual_seed(0)

    def uniform(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    rows = []
    for i in range(N_PROMPTS):
        prompt = random_tokens(engine, uniform(*PROMPT_TOKENS), generator)
        typical = uniform(*NEW_TOKENS) if i % 2 else uniform(NEW_TOKENS[0], 12)
        for _ in range(GROUP):
            length = min(max(typical + uniform(-2, 2), NEW_TOKENS[0]), NEW_TOKENS[1])
            tokens = random_tokens(engine, length, generator)
            advantage = float(torch.randn((), generator=generator))
            rows.append(TrainSequence(prompt, tokens, (-1.0,) * length, advantage, advantage, ("student", "code_o")))
    return rows


def _trl(directory: str) -> Callable[[Sequence[TrainSequence], int], None] | None:
    """One training step of TRL on given sequences in micro-batches of so many rows; None where it is not installed."""
    try:
        trl: Any = importlib.import_module("trl")
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        return None
    from peft import LoraConfig

    settings = Update()
    trainer = trl.GRPOTrainer(
        model=str(BASE),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=datasets.Dataset.from_dict({"prompt": ["x"] * GROUP}),
        args=trl.GRPOConfig(
            output_dir=directory,
            use_cpu=True,
            bf16=False,
            fp16=False,
            report_to=[],
            beta=0.0,
            loss_type="dapo",
            epsilon=settings.clip_low,
            epsilon_high=settings.clip_high,
            num_generations=GROUP,
            per_device_train_batch_size=GROUP,
            gradient_checkpointing=False,
            learning_rate=settings.learning_rate,
        ),
        peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=list(TARGETS), lora_dropout=0.0),
    )
    trainer.model.train()
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.0)
    trainer.current_gradient_accumulation_steps = 1

    def step(sequences: Sequence[TrainSequence], rows: int) -> None:
        optimizer.zero_grad()
        n_tokens = torch.tensor(sum(len(sequence.tokens) for sequence in sequences))
        for start in range(0, len(sequences), rows):
            inputs = _padded(sequences[start : start + rows])
            trainer._compute_loss(trainer.model, {**inputs, "num_items_in_batch": n_tokens}).backward()
        torch.nn.utils.clip_grad_norm_(parameters, settings.gradient_clip)
        optimizer.step()

    return step


def _padded(sequences: Sequence[TrainSequence]) -> dict[str, torch.Tensor]:
    """Prompts padded on the left, completions on the right, as TRL makes them."""
    p, t = (max(len(part) for part in parts) for parts in zip(*((s.prompt, s.tokens) for s in sequences), strict=True))
    ids = {"prompt_ids": torch.zeros(len(sequences), p, dtype=torch.long)}
    ids["completion_ids"] = torch.zeros(len(sequences), t, dtype=torch.long)
    masks = {name.replace("_ids", "_mask"): torch.zeros_like(value) for name, value in ids.items()}
    for row, sequence in enumerate(sequences):
        ids["prompt_ids"][row, p - len(sequence.prompt) :] = torch.tensor(sequence.prompt)
        masks["prompt_mask"][row, p - len(sequence.prompt) :] = 1
        ids["completion_ids"][row, : len(sequence.tokens)] = torch.tensor(sequence.tokens)
        masks["completion_mask"][row, : len(sequence.tokens)] = 1
    return {**ids, **masks, "advantages": torch.tensor([sequence.advantage for sequence in sequences])}
