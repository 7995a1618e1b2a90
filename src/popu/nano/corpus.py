"""Pretraining rows of the embedded base: the six formats of the self-play, written out on grammar programs."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from popu.grammar.examples import Example, is_small, problems_of, reference_of, sample_example
from popu.grammar.levels import PRETRAINING_LEVELS
from popu.grammar.slips import slip_arguments, slip_program, slip_value
from popu.grammar.trace import trace
from popu.problems.prompts import answer_text, fence, proposal_text, proposer_prompt, solver_prompt
from popu.problems.types import IDENTITY, Problem, ProblemType, Reference
from popu.problems.values import Arguments, canonical, canonical_arguments

N_BRANCHES = 8
MAX_NOTES = 8  # intermediate values before an output; a longer run is answered at sight

# phase -> (solver or proposer, type) -> share of the rows. Ten distinct inputs and a message are what takes longest to
# be written without a fault, so the last phase shows more of them.
ROW_KINDS: dict[str, dict[tuple[str, ProblemType], float]] = {
    "trunk": {
        ("solve", "code_o"): 0.30,
        ("solve", "code_i"): 0.24,
        ("solve", "code_f"): 0.18,
        ("propose", "code_o"): 0.08,
        ("propose", "code_i"): 0.08,
        ("propose", "code_f"): 0.12,
    },
    "branch": {
        ("solve", "code_o"): 0.25,
        ("solve", "code_i"): 0.20,
        ("solve", "code_f"): 0.15,
        ("propose", "code_o"): 0.09,
        ("propose", "code_i"): 0.09,
        ("propose", "code_f"): 0.22,
    },
}

# The easier, the more frequent: copying and single operations are learned first and carry the rest.
LEVEL_WEIGHTS = (0.20, 0.14, 0.16, 0.16, 0.10, 0.12, 0.07, 0.05)


@dataclass(frozen=True)
class Row:
    """A shared prefix and branches of (given, completion): the model is to continue prefix + given by completion."""

    prefix: str
    branches: tuple[tuple[str, str], ...]


def sample_rows(phase: str, slip_share: float, rng: random.Random) -> Iterator[Row]:
    """Endless rows in a phase's proportions; `slip_share` of the solver answers are replaced by plausible slips."""
    kinds, weights = zip(*ROW_KINDS[phase].items(), strict=True)
    while True:
        role, problem_type = rng.choices(kinds, weights)[0]
        level = rng.choices(PRETRAINING_LEVELS, LEVEL_WEIGHTS)[0]
        example = sample_example(level, "pretraining", rng)
        if role == "solve":
            yield _solver_row(example, problem_type, slip_share, rng)
        else:
            yield _proposer_row(example, problem_type, rng)


def _solver_row(example: Example, problem_type: ProblemType, slip_share: float, rng: random.Random) -> Row:
    problems = problems_of(example, problem_type)[:N_BRANCHES]
    texts = [solver_prompt(problem, "compact") for problem in problems]
    answers = [
        _notes(example, problem, i)
        + (_slipped_answer(example, problem, i, rng) if rng.random() < slip_share else answer_text(problem))
        for i, problem in enumerate(problems)
    ]
    prefix = texts[0] if problem_type == "code_f" else _through_program(texts[0], example.source)
    return Row(prefix, tuple((text[len(prefix) :], answer) for text, answer in zip(texts, answers, strict=True)))


def _notes(example: Example, problem: Problem, i: int) -> str:
    """A line of intermediate values before the output of `code_o`; none where there are none, or too many."""
    values = trace(example.source, example.inputs[i]) if problem.problem_type == "code_o" else []
    if not 1 <= len(values) <= MAX_NOTES or not all(map(is_small, values)):
        return ""
    return " -> ".join(map(canonical, values)) + "\n"


def _slipped_answer(example: Example, problem: Problem, i: int, rng: random.Random) -> str:
    if problem.problem_type == "code_o":
        wrong = Problem("code_o", problem.program, problem.inputs, (canonical(slip_value(example.outputs[i], rng)),))
    elif problem.problem_type == "code_i":
        wrong_input = canonical_arguments(Arguments(slip_arguments(example.inputs[i], rng), {}))
        wrong = Problem("code_i", problem.program, (wrong_input,), problem.outputs)
    else:
        wrong = Problem("code_f", slip_program(problem.program, rng), problem.inputs, problem.outputs)
    return answer_text(wrong)


def _proposer_row(example: Example, problem_type: ProblemType, rng: random.Random) -> Row:
    if problem_type == "code_f":
        references: Sequence[Reference] = [reference_of(example)]
    else:
        references = [_reference(rng) for _ in range(rng.randint(1, 2))]
    prompt = proposer_prompt(problem_type, references, "compact")
    return Row(prompt, (("", proposal_text(problems_of(example, problem_type)[0])),))


def _reference(rng: random.Random) -> Reference:
    if rng.random() < 0.1:
        return IDENTITY
    example = sample_example(rng.choice(PRETRAINING_LEVELS), "pretraining", rng)
    return reference_of(example)


def _through_program(prompt: str, source: str) -> str:
    """The head of a solver prompt up to the end of the program's block, which all inputs share."""
    block = fence("python", source)
    return prompt[: prompt.index(block) + len(block)]
