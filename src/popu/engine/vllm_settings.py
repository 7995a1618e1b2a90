"""What vLLM is started with: interpreter, arguments, variables. Imports neither it nor PyTorch."""

import os
import subprocess
import sys
from typing import Any

from popu.config import Base, Engine
from popu.errors import ConfigError

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # of adapters, that vLLM lays out room for


def room_for(rank: int) -> int:
    """The smallest of `RANKS` that holds a rank of 1 to 512."""
    return next(room for room in RANKS if room >= rank)


def interpreter(settings: Engine) -> str:
    """The Python that runs vLLM."""
    return os.path.abspath(settings.vllm.python) if settings.vllm.python else sys.executable


def installed_version(settings: Engine) -> str | None:
    """vLLM's version in the interpreter's environment, None where there is none."""
    code = "from importlib.metadata import packages_distributions as p, version; print(version(p()['vllm'][0]))"
    result = subprocess.run([interpreter(settings), "-c", code], capture_output=True, text=True)
    return result.stdout.strip() or None


def llm_arguments(base: Base, settings: Engine, rank: int) -> dict[str, Any]:
    """Of `vllm.LLM`. Nothing but temperature shapes the sampling distribution; log-probabilities are those of it."""
    vllm = settings.vllm
    return {
        "model": os.path.abspath(base.path),
        "dtype": settings.dtype,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "logprobs_mode": "processed_logprobs",
        "max_model_len": vllm.context,
        "max_num_seqs": settings.max_batch_rows,
        "enable_prefix_caching": True,
        "enable_lora": True,
        "max_loras": vllm.max_loras + 1,  # and the bare base
        "max_lora_rank": room_for(rank),
        "gpu_memory_utilization": vllm.memory_fraction,
        "kv_cache_memory_bytes": None if vllm.cache_gb is None else int(vllm.cache_gb * 2**30),
        "enable_sleep_mode": vllm.sleep,
        "tensor_parallel_size": vllm.tensor_parallel,
        "enforce_eager": vllm.eager,
    }


def environment(settings: Engine, i: int) -> dict[str, str]:
    """The i-th replica's variables; where there are several, it sees `tensor_parallel` of the visible devices."""
    vllm = settings.vllm
    values = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler in the process that answers: no other order of batches
        **os.environ,
        "OMP_NUM_THREADS": str(max(1, settings.threads // vllm.data_parallel)),
    }
    if vllm.eager:
        values["TORCHDYNAMO_DISABLE"] = "1"  # else vLLM compiles its sampler all the same
    if vllm.data_parallel > 1:
        n = vllm.tensor_parallel
        named = os.environ.get("CUDA_VISIBLE_DEVICES")
        visible = named.split(",") if named else [str(k) for k in range(vllm.data_parallel * n)]
        if len(visible) < vllm.data_parallel * n:
            raise ConfigError(
                f"engine.vllm: expected {vllm.data_parallel * n} devices for data_parallel {vllm.data_parallel} and "
                f"tensor_parallel {n}, found CUDA_VISIBLE_DEVICES={named}"
            )
        values["CUDA_VISIBLE_DEVICES"] = ",".join(visible[i * n : (i + 1) * n])
    return values
