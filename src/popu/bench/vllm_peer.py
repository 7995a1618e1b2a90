"""Rollouts of vLLM, by a Python that has it (this one need not): `python vllm_peer.py MODEL PROMPTS OUT ADAPTER ...`.

OUT becomes a JSON list of seconds, one a round after the first. Imports nothing of this package.
"""

import json
import sys
import time
from typing import Any

ROUNDS = 3
NEW_TOKENS = 32
RANK = 8


def main(model: str, prompts: str, out: str, adapters: list[str]) -> None:
    """Every prompt once a round, EOS ignored; the adapters take equal stretches of the prompts."""
    from vllm import LLM, SamplingParams
    from vllm.lora.request import LoRARequest

    with open(prompts) as file:
        tokens: list[list[int]] = json.load(file)
    engine: Any = LLM(
        model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=len(tokens),
        enforce_eager=True,
        enable_lora=bool(adapters),
        max_loras=max(1, len(adapters)),
        max_lora_rank=RANK,
    )
    share = len(tokens) // max(1, len(adapters))
    owners = [i // share for i in range(len(tokens))] if adapters else []
    loras = [LoRARequest(f"a{k}", 1 + k, adapters[k]) for k in owners]
    sampling = SamplingParams(max_tokens=NEW_TOKENS, min_tokens=NEW_TOKENS, temperature=1.0, ignore_eos=True)
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        engine.generate(
            [{"prompt_token_ids": prompt} for prompt in tokens],
            sampling,
            lora_request=loras if adapters else None,
            use_tqdm=False,
        )
        seconds.append(time.perf_counter() - started)
    with open(out, "w") as file:
        json.dump(seconds[1:], file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
