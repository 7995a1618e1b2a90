"""Python functions: deduce the output, abduce an input, induce the program. The paper's domain."""

import random
from collections.abc import Sequence

from popu.domains.domain import Domain
from popu.grammar.examples import problems_of, sample_example
from popu.grammar.levels import PRETRAINING_LEVELS
from popu.grammar.suite import heldout_suite
from popu.problems.check import judge_attempts, validate
from popu.problems.complexity import complexity
from popu.problems.duplicates import problem_key, program_key
from popu.problems.prompts import answer_text, proposal_text, proposer_prompt, solver_prompt
from popu.problems.types import IDENTITY, PROBLEM_TYPES, Problem


def key_of(program: str, inputs: Sequence[str]) -> str:
    """The duplicate key of a problem: of its one input, or of the list of all of `code_f`."""
    return problem_key(program, ", ".join(f"({given},)" for given in inputs) if len(inputs) > 1 else inputs[0])


def sample(problem_type: str, rng: random.Random) -> Problem:
    """A problem of the base's grammar, levels even."""
    return problems_of(sample_example(rng.choice(PRETRAINING_LEVELS), "pretraining", rng), problem_type)[0]


CODE = Domain(
    name="code",
    types=PROBLEM_TYPES,
    first=IDENTITY,
    propose_prompt=proposer_prompt,
    solve_prompt=solver_prompt,
    proposal_text=proposal_text,
    validate=validate,
    judge=judge_attempts,
    borrowing=frozenset({"code_f"}),
    problem_key=key_of,
    program_key=program_key,
    measures=complexity,
    sample=sample,
    answer_text=answer_text,
    heldout=heldout_suite,
)
