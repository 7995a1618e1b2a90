"""vLLM behind a pipe: run by a Python that has vLLM, `python vllm_server.py`; imports nothing of this package.

The parent writes frames to stdin and reads an answer to each from stdout. A frame is a length in 8 bytes, then JSON.

- The first, {"llm": arguments of vllm.LLM, "stop": token ids, "sleep": bool}, is answered by {"vllm": version} once the
  base is loaded.
- A call, {"adapters": [[name, id, directory], ...], "requests": [[token ids, name of the adapter, new tokens,
  temperature, [seed, ...]], ...]}, is answered by {"completions": [[tokens, log-probabilities, finish reason], ...]},
  one a seed in order, or by {"error": text} where vLLM refuses an adapter or a request.
- {} cancels the call that runs, which is not answered then, and is answered by {"cancelled": true}.

The process ends when stdin does.
"""

import json
import os
import select
import struct
import sys
from typing import Any

HEADER = struct.Struct("<Q")


def send(descriptor: int, value: Any) -> None:
    """Writes a frame."""
    text = json.dumps(value, separators=(",", ":")).encode()
    data = memoryview(HEADER.pack(len(text)) + text)
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> Any:
    """Reads a frame. Raises EOFError where the other side is gone."""
    (length,) = HEADER.unpack(_exactly(descriptor, HEADER.size))
    return json.loads(_exactly(descriptor, length))


def _exactly(descriptor: int, length: int) -> bytes:
    parts = []
    while length:
        part = os.read(descriptor, min(length, 1 << 20))
        if not part:
            raise EOFError("the other side of the pipe is gone")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def serve(commands: int, answers: int) -> None:
    """Answers frames until `commands` ends."""
    settings = receive(commands)
    import vllm

    engine: Any = vllm.LLM(**settings["llm"], **_of_device()).llm_engine
    send(answers, {"vllm": vllm.__version__})
    while True:
        try:
            call = receive(commands)
        except EOFError:
            return
        if "requests" not in call:
            send(answers, {"cancelled": True})
            continue
        if settings["sleep"]:
            engine.wake_up()
        answer = _answer(engine, call, settings["stop"], commands)
        if settings["sleep"]:
            engine.sleep(1)
        if answer is not None:
            send(answers, answer)


def _answer(engine: Any, call: dict[str, Any], stop: list[int], commands: int) -> dict[str, Any] | None:
    """None where the call was cancelled."""
    from vllm.lora.request import LoRARequest

    engine.reset_prefix_cache()  # so that a call is a function of its requests, not of the calls before
    loras = {name: LoRARequest(name, number, path) for name, number, path in call["adapters"]}
    names: list[str] = []
    try:
        for lora in loras.values():
            engine.add_lora(lora)
        _add(engine, call["requests"], loras, stop, names)
    except Exception as error:  # each part of vLLM has its own; nothing has been computed yet
        engine.abort_request(names)
        return {"error": str(error)}
    done: dict[str, Any] = {}
    while engine.has_unfinished_requests():
        if select.select([commands], [], [], 0)[0]:
            engine.abort_request([name for name in names if name not in done])
            return None
        for output in engine.step():
            if output.finished:
                done[output.request_id] = _completion(output.outputs[0])
    return {"completions": [done[name] for name in names]}


def _of_device() -> dict[str, Any]:
    """On a CPU no prompt is read in parts: vLLM 0.32.0 dies of one with a seed, whose generator it cannot set back.

    Blocks of the prefix cache are as small as its kernels allow, so that short prompts are read once too.
    """
    from vllm.platforms import current_platform

    return {"enable_chunked_prefill": False, "block_size": 32} if current_platform.is_cpu() else {}


def _add(engine: Any, requests: list[Any], loras: dict[str, Any], stop: list[int], names: list[str]) -> None:
    """Every completion is a request of its own, with its own seed; the prefix cache reads a prompt once.

    `names` gets the name of each. Raises ValueError for a request that cannot be.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    for prompt, adapter, new_tokens, temperature, seeds in requests:
        for seed in seeds:
            names.append(str(len(names)))
            sampling = SamplingParams(
                max_tokens=new_tokens,
                temperature=temperature,
                top_p=1.0,
                top_k=0,
                seed=seed,
                logprobs=0,
                ignore_eos=True,
                stop_token_ids=stop,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            request = {"prompt_token_ids": prompt}
            engine.add_request(names[-1], request, sampling, lora_request=loras[adapter])


def _completion(output: Any) -> list[Any]:
    """Token ids with the stop token, the log-probability of each, `stop` or `length`."""
    tokens = list(output.token_ids)
    log_probs = [entry[token].logprob for entry, token in zip(output.logprobs, tokens, strict=True)]
    return [tokens, log_probs, output.finish_reason]


if __name__ == "__main__":
    channel = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    serve(0, channel)
    sys.stdout.flush()
    os._exit(0)  # vLLM's own threads and processes need no farewell: they watch this process
