"""The frozen base loaded by transformers: tokenizer with the prompt form, generation and training on one model."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from popu.config import Base, Engine
from popu.engine.decode import Decoder
from popu.engine.flat import Forward, HookedForward
from popu.engine.llama import LlamaForward, is_llama_shaped
from popu.engine.multilora import MultiLora
from popu.engine.protocol import Completion, Request
from popu.errors import ArtifactError, ConfigError
from popu.population.adapter import Adapter


class TransformersEngine:
    """A base loaded by transformers, with hooks for the adapters. Generation and training share the one model."""

    def __init__(self, base: Base, settings: Engine, targets: Sequence[str]) -> None:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        torch.set_num_threads(settings.threads)
        self._base, self._dtype, self._targets = base, settings.dtype, targets
        self._copies: list[Forward] = []
        self.model = load_model(base, settings.dtype)
        self.tokenizer = AutoTokenizer.from_pretrained(base.path)
        self.lora = MultiLora(self.model, targets)
        if base.chat_template and not self.tokenizer.chat_template:
            raise ConfigError(
                f"base.chat_template: expected a tokenizer with a chat template, found none in {base.path}"
            )
        self.chat_template = base.chat_template
        self.eos_ids = _eos_ids(self.model.generation_config.eos_token_id, self.tokenizer.eos_token_id)
        self.forward = forward_of(self.model, self.lora)
        self._decoder = Decoder(self.forward, self.eos_ids, settings.max_batch_rows)

    def encode(self, prompt: str, chat: bool | None = None) -> tuple[int, ...]:
        """Token ids of a prompt, in the chat template where `chat`, or else the config, asks for it; never two BOS."""
        if self.chat_template if chat is None else chat:
            messages = [{"role": "user", "content": prompt}]
            text = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return tuple(self.tokenizer(prompt)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of a completion without EOS."""
        return str(self.tokenizer.decode([token for token in tokens if token not in self.eos_ids]))

    def generate(
        self,
        requests: Sequence[Request],
        adapters: Mapping[str, Adapter],
        check: Callable[[], None] = lambda: None,
    ) -> list[tuple[Completion, ...]]:
        """See `protocol.Engine.generate`; `check` is called before every token and may raise to cancel.

        Raises ArtifactError as `check_modules`.
        """
        check_modules(adapters, self.lora.shapes)
        return self._decoder.generate(requests, adapters, check)

    def trainers(self, device: str) -> Sequence[Forward]:
        """The forward passes that the update trains on: the engine's own, or with "cuda" one on every visible GPU.

        A copy is loaded once a device, at the first call. Untested on a GPU. Raises ConfigError where there is none.
        """
        if device == "cpu":
            return [self.forward]
        if not torch.cuda.is_available():
            raise ConfigError("training.update.device: expected cpu where torch sees no GPU, found cuda")
        for i in range(len(self._copies), torch.cuda.device_count()):
            model: Any = load_model(self._base, self._dtype)
            model.to(torch.device("cuda", i))
            self._copies.append(forward_of(model, MultiLora(model, self._targets)))
        return self._copies

    def close(self) -> None:
        """Ends what the engine runs beside this process: nothing."""


def load_model(base: Base, dtype: str) -> PreTrainedModel:
    """The frozen base on the CPU, in `dtype`."""
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16}
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        base.path, dtype=types[dtype], attn_implementation="sdpa"
    )
    return model.requires_grad_(False).eval()


def check_modules(adapters: Mapping[str, Adapter], shapes: Mapping[str, tuple[int, int]]) -> None:
    """Compares adapters with the base's modules (d_out, d_in).

    Raises ArtifactError for an adapter with a module that the base has not, or has in another shape, or without one
    that its targets name: it would be left out in silence.
    """
    for name, adapter in adapters.items():
        strange = [module for module, shape in adapter.shapes.items() if shapes.get(module) != shape]
        if strange:
            raise ArtifactError(f"adapter {name}: expected modules of the base in their shapes, found {strange[0]}")
        targets = tuple(f".{target}" for target in adapter.config.targets)
        missing = [module for module in shapes if f".{module}".endswith(targets) and module not in adapter.factors]
        if missing:
            raise ArtifactError(f"adapter {name}: expected all modules that its targets name, found no {missing[0]}")


def forward_of(model: PreTrainedModel, lora: MultiLora) -> Forward:
    """The fastest forward pass there is for the model."""
    return LlamaForward(model) if is_llama_shaped(model) else HookedForward(model, lora)


def _eos_ids(*ids: int | Sequence[int] | None) -> tuple[int, ...]:
    flat: list[int] = []
    for item in ids:
        flat += [] if item is None else [item] if isinstance(item, int) else list(item)
    return tuple(dict.fromkeys(flat))
