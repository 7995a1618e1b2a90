"""What self-play asks of a domain of problems: its types, their prompts, the checks of proposals and answers.

Stages know nothing else of the problems. `code` is the paper's domain; others come by entry points of group
`popu.problem_types`, each named by a type and giving the domain that has it (docs/extend.md).
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from popu import plugins
from popu.config import Training
from popu.errors import ConfigError
from popu.problems.complexity import text_measures
from popu.problems.parse import BadFormat
from popu.problems.types import Attempt, Judged, Problem, PromptStyle, Proposal, Reference, Task, Validated
from popu.sandbox.executor import Executor
from popu.sandbox.verdicts import Status, Verdict

CUT = "cut at the token limit"


def text_key(program: str, inputs: Sequence[str] = ()) -> str:
    """16 hex digits that equal texts share."""
    return hashlib.sha256("\0".join([program, *inputs]).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def by_proposal(written: Callable[[Proposal], Problem]) -> Callable[[Sequence[Proposal], Executor], list[Validated]]:
    """`validate` of a domain that runs nothing: `written` gives the problem of a proposal, or raises BadFormat."""

    def checked(proposal: Proposal) -> Validated:
        if proposal.truncated:
            return Validated(Status.BAD_FORMAT, CUT)
        try:
            problem = written(proposal)
        except BadFormat as error:
            return Validated(Status.BAD_FORMAT, error.reason)
        return Validated(Status.OK, "", problem.program, problem.inputs, problem.outputs, problem.message)

    return lambda proposals, executor: [checked(proposal) for proposal in proposals]


def by_attempt(is_right: Callable[[Attempt], bool]) -> Callable[[Sequence[Attempt], Executor], list[Judged]]:
    """`judge` of a domain that runs nothing: `is_right` says whether an answer is, or raises BadFormat."""

    def judged(attempt: Attempt) -> Judged:
        if attempt.truncated:
            return Judged(Verdict.BAD_FORMAT, CUT)
        try:
            right = is_right(attempt)
        except BadFormat as error:
            return Judged(Verdict.BAD_FORMAT, error.reason)
        return Judged(Verdict.CORRECT) if right else Judged(Verdict.WRONG, "another value than expected")

    return lambda attempts, executor: [judged(attempt) for attempt in attempts]


def _no_tasks(tasks_per_level: int) -> list[Task]:
    return []


@dataclass(frozen=True)
class Domain:
    """A family of problem types that share one buffer. All functions are pure but for what the executor runs.

    Args:
        types: the names of its problem types.
        first: the problem that a buffer begins with; it has to be valid as one of the first type.
        propose_prompt: (type, references, style) -> what a teacher is asked.
        solve_prompt: (problem, style) -> what a student is asked, without the answer.
        proposal_text: the completion of a teacher that would make this problem; outputs may be empty.
        validate: a result a proposal, in order: a problem with its gold answer, or why it is none.
        judge: a verdict an attempt, in order.
        borrowing: types whose teacher is shown one program and writes about it, in place of one of its own. Their
            problems are no references.
        problem_key, program_key: 16 hex digits that two problems share which count as the same; (program, inputs) and
            program. By default those of equal text.
        measures: the complexity of a program, the keys of `popu.problems.complexity.MEASURES`.
        sample: (type, generator) -> a random problem for `source: grammar`; None where there is none.
        answer_text: a completion that solves a problem, for `popu warm-start`; None where there is none.
        heldout: tasks per level -> the held-out suite, the same for every run; by default empty.
    """

    name: str
    types: tuple[str, ...]
    first: Reference
    propose_prompt: Callable[[str, Sequence[Reference], PromptStyle], str]
    solve_prompt: Callable[[Problem, PromptStyle], str]
    proposal_text: Callable[[Problem], str]
    validate: Callable[[Sequence[Proposal], Executor], list[Validated]]
    judge: Callable[[Sequence[Attempt], Executor], list[Judged]]
    borrowing: frozenset[str] = frozenset()
    problem_key: Callable[[str, Sequence[str]], str] = text_key
    program_key: Callable[[str], str] = text_key
    measures: Callable[[str], Mapping[str, int]] = text_measures
    sample: Callable[[str, random.Random], Problem] | None = None
    answer_text: Callable[[Problem], str] | None = None
    heldout: Callable[[int], list[Task]] = _no_tasks

    def seed_proposal(self, reference: Reference) -> Proposal:
        """A seed problem as a proposal of the first type."""
        given = (reference.input,) if reference.input else ()
        text = self.proposal_text(Problem(self.types[0], reference.program, given, ()))
        return Proposal(self.types[0], text, None, False)

    def sampled(self, problem_type: str, rng: random.Random) -> Problem:
        """A random problem. Raises ConfigError for a domain that has none."""
        if self.sample is None:
            raise ConfigError(f"source: expected another than grammar for problems of {self.name}, which has none")
        return self.sample(problem_type, rng)

    def gold_answer(self, problem: Problem) -> str:
        """A completion that solves a problem. Raises ConfigError for a domain that has none."""
        if self.answer_text is None:
            raise ConfigError(f"problem_types: expected a domain with gold answers, found {self.name}")
        return self.answer_text(problem)


def domain_of(training: Training) -> Domain:
    """The domain of a run's problem types. Raises ConfigError."""
    first, *others = training.problem_types
    for name in others:
        domain_of_type(name)
    return domain_of_type(first)


def domain_of_type(name: str) -> Domain:
    """The domain of a problem type. Raises ConfigError."""
    domain = plugins.load("problem_types", name, Domain)
    if name not in domain.types:
        raise ConfigError(f"problem type {name!r}: expected among those of {domain.name}, found {domain.types}")
    return domain


def as_reference(problem: Problem) -> Reference:
    """A problem as a teacher sees it."""
    return Reference(problem.program, problem.inputs[0] if problem.inputs else "")
