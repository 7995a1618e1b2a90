"""Rollouts beside Hugging Face's `generate` with PEFT's mixed adapters: the same base, sequences, lengths and threads.

256 sequences of 60-token prompts and 32 new tokens, EOS ignored so that all do equal work; in self-play's shape, 8
completions a prompt, and with a prompt of its own for every sequence. Rounds take turns; figures are medians.
"""

import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from popu.bench.workload import (
    BASE,
    alternating_s,
    load_engine,
    matmul_flops_per_s,
    random_tokens,
    ratio,
    trained_adapter,
)
from popu.engine.base import TransformersEngine
from popu.engine.decode import Decoder
from popu.engine.protocol import Request
from popu.population.adapter import Adapter, write_adapter

N_SEQUENCES = 256
PROMPT_TOKENS = 60
NEW_TOKENS = 32
GROUP = 8  # completions a prompt
N_ADAPTERS = 8
TARGET_RATIO = 5.0  # to Hugging Face with 8 mixed adapters
TARGET_MIXED = 1.15  # time of 8 mixed adapters over that of one


def bench_rollouts(threads: int = 2, rounds: int = 5) -> dict[str, Any]:
    """Tokens a second of the engine and of the peer, and their ratios; `short` names the targets that are missed."""
    engine = load_engine(threads)
    adapters = {f"m{i}@00001": trained_adapter(engine, i) for i in range(N_ADAPTERS)}
    decoder = Decoder(engine.forward, (), N_SEQUENCES)
    ours = {
        f"{shape}_{label}": _requests(engine, list(adapters)[:n], group)
        for shape, group in (("grouped", GROUP), ("distinct", 1))
        for label, n in (("bare", 0), ("one", 1), ("mixed", N_ADAPTERS))
    }
    with tempfile.TemporaryDirectory() as directory:
        peer = _Peer(adapters, Path(directory), ours["grouped_mixed"])
        times = alternating_s(
            {
                **{name: lambda r=requests: decoder.generate(r, adapters) for name, requests in ours.items()},  # type: ignore[misc]
                "hf_bare": lambda: peer.generate(None),
                "hf_one": lambda: peer.generate(["m0@00001"] * N_SEQUENCES),
                "hf_mixed": lambda: peer.generate(
                    [peer.names[i // (N_SEQUENCES // N_ADAPTERS)] for i in range(N_SEQUENCES)]
                ),
            },
            rounds,
        )
    tokens = N_SEQUENCES * NEW_TOKENS
    result: dict[str, Any] = {
        f"{name}_tokens_per_s": round(tokens / statistics.median(values)) for name, values in times.items()
    }
    result |= {
        "ratio": ratio(times, "hf_mixed", "grouped_mixed"),
        "target": TARGET_RATIO,
        "ratio_distinct": ratio(times, "hf_mixed", "distinct_mixed"),
        "mixed_over_one": ratio(times, "grouped_mixed", "grouped_one"),
        "mixed_target": TARGET_MIXED,
        "matmul_share": round(_flops(engine) / matmul_flops_per_s(128) / statistics.median(times["grouped_mixed"]), 2),
        "threads": threads,
        "rounds": rounds,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "load_average": round(os.getloadavg()[0], 2),
    }
    result["short"] = [
        *(["ratio"] if result["ratio"] < TARGET_RATIO else []),
        *(["mixed_over_one"] if result["mixed_over_one"] > TARGET_MIXED else []),
    ]
    return result


def _requests(engine: TransformersEngine, names: Sequence[str], group: int) -> list[Request]:
    generator = torch.Generator().manual_seed(0)
    n = N_SEQUENCES // group
    return [
        Request(
            f"r{i}",
            random_tokens(engine, PROMPT_TOKENS, generator),
            names[i * len(names) // n] if names else None,
            group,
            NEW_TOKENS,
            1.0,
            seed=1,
        )
        for i in range(n)
    ]


def _flops(engine: TransformersEngine) -> float:
    """Of the base's products for one call in groups: every prompt token once, every new token but the last once."""
    weights = sum(p.numel() for name, p in engine.model.named_parameters() if name.endswith("proj.weight"))
    head = engine.model.get_output_embeddings().weight.numel()  # type: ignore[union-attr]
    prompts, new = N_SEQUENCES // GROUP * PROMPT_TOKENS, N_SEQUENCES * (NEW_TOKENS - 1)
    return 2.0 * (weights * (prompts + new) + head * (N_SEQUENCES // GROUP + new))


class _Peer:
    """Hugging Face's `generate` on a model with all adapters loaded by PEFT."""

    def __init__(self, adapters: dict[str, Adapter], directory: Path, requests: Sequence[Request]) -> None:
        from peft import PeftModel

        self.names = list(adapters)
        base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
        self.bare = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
        for name, adapter in adapters.items():
            write_adapter(directory / name, adapter, str(BASE), {})
        self.model: Any = PeftModel.from_pretrained(base, directory / self.names[0], adapter_name=self.names[0])
        for name in self.names[1:]:
            self.model.load_adapter(directory / name, adapter_name=name)
        self.model.eval()
        self.ids = torch.tensor([request.prompt for request in requests for _ in range(request.n)])

    @torch.inference_mode()
    def generate(self, adapter_names: list[str] | None) -> Any:
        """Samples `NEW_TOKENS` after every prompt; without names on the bare base."""
        model = self.bare if adapter_names is None else self.model
        extra = {} if adapter_names is None else {"adapter_names": adapter_names}
        return model.generate(
            input_ids=self.ids,
            attention_mask=torch.ones_like(self.ids),
            do_sample=True,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            **extra,
        )
