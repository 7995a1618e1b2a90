"""A LoRA adapter that knows the formats of a domain: supervised steps on its random problems, to begin a run with.

For a base that has never seen the problem types, whose proposals would not be valid and whose answers all wrong. Not a
stage of a step; the adapter is named in `training.population.founders`.
"""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open

from popu.artifacts import write_tensors
from popu.config import Run, Update, run_id
from popu.domains.domain import Domain, as_reference, domain_of
from popu.errors import ConfigError
from popu.population.adapter import Adapter, new_adapter, write_adapter
from popu.rl.update import TrainSequence, update_adapter
from popu.seeds import derive_rng, derive_seed
from popu.stages.backend import Backend
from popu.stages.common import lora_config

if TYPE_CHECKING:
    from popu.engine.base import TransformersEngine

NAME = "warm start"  # in the seeds
PROPOSER_SHARE = 0.5
REPORTS = 20  # and as often what is there is kept


def warm_start(
    settings: Run,
    steps: int,
    batch: int,
    learning_rate: float,
    out: Path,
    backend: Backend,
    report: Callable[[str], None],
) -> None:
    """Writes the adapter after `steps` of AdamW on `batch` gold completions each, the rate falling evenly to 0.

    Half of them are teachers', half students', types even; the loss is the mean negative log-likelihood of their tokens
    and the end. The bytes depend on the arguments alone, also where a killed call is given again: it goes on with
    `<out>.partial`. Raises ConfigError for a domain without random problems or gold answers, and where `out` is there.
    """
    if out.exists():
        raise ConfigError(f"--out: expected a new directory, found {out}")
    engine, domain = backend.engine(settings), domain_of(settings.training)
    generator = torch.Generator().manual_seed(derive_seed(NAME, settings.seed))
    adapter = new_adapter(engine.lora.shapes, lora_config(settings), generator)
    facts = {"warm_start": domain.name, "steps": steps, "batch": batch, "learning_rate": learning_rate}
    facts["seed"] = settings.seed
    partial = _Partial(out.with_name(f"{out.name}.partial"), {**facts, "run": run_id(settings)})
    done, adapter, state = partial.read(adapter)
    if done:
        report(f"step {done}/{steps}: found in {partial.path}")
    for step in range(done + 1, steps + 1):
        rng = derive_rng(NAME, settings.seed, step)
        sequences = [_sequence(engine, domain, settings, rng) for _ in range(batch)]
        update = Update(
            learning_rate=learning_rate * (steps + 1 - step) / steps,
            micro_batch_tokens=settings.training.update.micro_batch_tokens,
        )
        result = update_adapter(engine.forward, adapter, state, sequences, update, 1.0, backend.check)
        adapter, state = result.adapter, result.optimizer
        if step % max(1, steps // REPORTS) == 0 or step == steps:
            # Nats a token by role and type: what separates the policy from an engine that is sure of every token.
            found = [f"{row['role']} {row['problem_type']} {row['engine_mismatch']:.3f}" for row in result.metrics]
            partial.write(step, adapter, state)
            report(f"step {step}/{steps}: {', '.join(found)}")
    written = out.with_name(f"{out.name}.new")  # so that `out` is whole or not there
    shutil.rmtree(written, ignore_errors=True)
    write_adapter(written, adapter, settings.base.path, facts)
    written.rename(out)
    partial.path.unlink(missing_ok=True)


class _Partial:
    """What a warm start has reached, in one file. One of other arguments counts for nothing."""

    def __init__(self, path: Path, arguments: Mapping[str, object]) -> None:
        self.path = path
        self._key = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()

    def write(self, step: int, adapter: Adapter, state: Mapping[str, torch.Tensor]) -> None:
        factors = {f"{name}.{i}": factor for name, pair in adapter.factors.items() for i, factor in enumerate(pair)}
        tensors = {f"adapter.{name}": tensor.contiguous() for name, tensor in factors.items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in state.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(self.path, tensors, {"arguments": self._key, "step": str(step)})

    def read(self, fresh: Adapter) -> tuple[int, Adapter, dict[str, torch.Tensor]]:
        """The step, the adapter and the optimizer's state; step 0 and the fresh adapter where there is nothing."""
        try:
            with safe_open(self.path, "pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("arguments") != self._key:
                    return 0, fresh, {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
        except (OSError, SafetensorError):
            return 0, fresh, {}
        factors = {name: (tensors[f"adapter.{name}.0"], tensors[f"adapter.{name}.1"]) for name in fresh.factors}
        state = {
            name.removeprefix("optimizer."): tensor for name, tensor in tensors.items() if name.startswith("optimizer.")
        }
        return int(metadata["step"]), Adapter(fresh.config, factors), state


def _sequence(engine: "TransformersEngine", domain: Domain, settings: Run, rng: random.Random) -> TrainSequence:
    """A gold completion of a random problem. Of advantage 1 the update's one step is that of the likelihood."""
    problem_type = rng.choice(settings.training.problem_types)
    problem, style = domain.sampled(problem_type, rng), settings.base.prompt_style
    if rng.random() < PROPOSER_SHARE:
        role, text = "teacher", domain.proposal_text(problem)
        n = rng.randint(1, settings.training.proposals.n_references)
        shown = [as_reference(domain.sampled(problem_type, rng)) for _ in range(n)]
        if problem_type in domain.borrowing:
            shown = [as_reference(problem)]
        prompt = domain.propose_prompt(problem_type, shown, style)
    else:
        role, text, prompt = "student", domain.gold_answer(problem), domain.solve_prompt(problem, style)
    tokens = (*engine.encode(text, chat=False), engine.eos_ids[0])
    return TrainSequence(engine.encode(prompt), tokens, (0.0,) * len(tokens), 1.0, 1.0, (role, problem_type))
