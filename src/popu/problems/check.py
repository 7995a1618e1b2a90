"""From completions to statuses and verdicts: the checks of proposals and of answers.

Texts are parsed and checked here, in the trusted process; only programs go to the executor, and expected
values never do. A teacher's arguments are made canonical before they run, so that two spellings of one input (a dict
in another order) are one problem; a student's run as written, since a program may tell the order of a dict.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from popu.problems.duplicates import normal_form
from popu.problems.parse import BadFormat, parse_answer, parse_proposal
from popu.problems.static import ProgramRejected, check_program
from popu.problems.types import N_PAIRS, N_SHOWN, Attempt, Judged, Problem, Proposal, Validated
from popu.problems.values import (
    ValueRejected,
    ValueTooLarge,
    canonical,
    canonical_arguments,
    parse_arguments,
    parse_value,
)
from popu.sandbox.executor import Executor, Job, Outcome
from popu.sandbox.verdicts import Status, Verdict

MIN_DISTINCT_OUTPUTS = 2  # of a code_f proposal
_NO_CAP = 2**40  # gold values met the executor's cap when they were made
_MIN_LEAK = 9  # characters without blanks; a shorter function body may well occur in an honest message
_MAX_MESSAGE_LINES = 60  # of a message that is searched for programs


@dataclass(frozen=True)
class Answer:
    """A student's completion, with what judging it takes.

    `code_o` needs `output`, `code_i` needs `program` and `output`, `code_f` needs `hidden`, pairs of input
    and output. Inputs and outputs are canonical text; `input` is carried for the reader.
    """

    problem_type: str
    completion: str
    truncated: bool
    program: str | None
    input: str | None
    output: str | None
    hidden: tuple[tuple[str, str], ...]


# ---------------------------------------------------------------- proposals


def validate(proposals: Sequence[Proposal], executor: Executor) -> list[Validated]:
    """Return one result per proposal, in order.

    Raises ValueError for an unknown problem type or a `code_f` proposal without its program.
    """
    drafts = [_draft(proposal) for proposal in proposals]
    jobs = {
        index: Job(draft.program, draft.inputs, check_determinism=True)
        for index, draft in enumerate(drafts)
        if draft.status is Status.OK
    }
    for index, outcome in zip(jobs, executor.run(list(jobs.values())), strict=True):
        drafts[index] = _with_outputs(proposals[index], drafts[index], outcome)
    return drafts


def _draft(proposal: Proposal) -> Validated:
    """Return the proposal without outputs, or the reason why it need not run."""
    if proposal.problem_type == "code_f" and proposal.program is None:
        raise ValueError("program: a code_f proposal needs the program it was shown, got None")
    if proposal.truncated:
        return Validated(Status.BAD_FORMAT, "cut at the token limit")
    try:
        parsed = parse_proposal(proposal.problem_type, proposal.completion)
        program = (parsed.program if proposal.program is None else proposal.program) or ""
        check_program(program)
        inputs = tuple(canonical_arguments(parse_arguments(text)) for text in parsed.inputs)
    except BadFormat as error:
        return Validated(Status.BAD_FORMAT, error.reason)
    except ProgramRejected as error:
        return Validated(Status(error.status), error.reason)
    except ValueTooLarge as error:
        return Validated(Status.TOO_LARGE, f"input: {error.reason}")
    except ValueRejected as error:
        return Validated(Status.BAD_FORMAT, f"input: {error.reason}")
    message = (parsed.message or "").strip()
    if proposal.problem_type == "code_f":
        if len(set(inputs)) != N_PAIRS:
            return Validated(Status.BAD_FORMAT, f"expected {N_PAIRS} distinct inputs, got {len(set(inputs))}")
        if contains_program(message, program):
            return Validated(Status.BAD_FORMAT, "the message contains the program")
    return Validated(Status.OK, "", program, inputs, (), message)


def _with_outputs(proposal: Proposal, draft: Validated, outcome: Outcome) -> Validated:
    if outcome.status is not Status.OK:
        return Validated(outcome.status, outcome.reason, draft.program, draft.inputs, (), draft.message)
    status, reason = Status.OK, ""
    if proposal.problem_type == "code_f" and len(set(outcome.outputs)) < MIN_DISTINCT_OUTPUTS:
        status, reason = Status.BAD_FORMAT, "all outputs are the same"
    return Validated(status, reason, draft.program, draft.inputs, outcome.outputs, draft.message)


def contains_program(message: str, program: str) -> bool:
    """Return whether `message` gives `program` away.

    It does when it holds, blanks and quote style aside, the program, or the body of `f` unless that is very
    short; or when it holds code whose normal form is the program's, under whatever names and constants.
    `program` must have passed `check_program`.
    """
    tree = ast.parse(program)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "f")
    body = _squeeze("\n".join(_source(node, program) for node in function.body))
    needles = [_squeeze(program), _squeeze("\n".join(_source(node, program) for node in tree.body))]
    if len(body) >= _MIN_LEAK:
        needles.append(body)
    squeezed = _squeeze(message)
    return any(needle in squeezed for needle in needles) or _contains_variant(message, normal_form(program))


def _source(node: ast.stmt, program: str) -> str:
    """Return a statement without comments, or as written where nested f-strings defeat `ast.unparse`."""
    try:
        return ast.unparse(node)
    except ValueError:
        return ast.get_source_segment(program, node) or ""


def _squeeze(text: str) -> str:
    return "".join(text.split()).replace('"', "'")


def _contains_variant(message: str, form: str) -> bool:
    """Return whether some run of lines of `message` is a program of normal form `form`."""
    lines = message.split("\n")[:_MAX_MESSAGE_LINES]
    starts = [i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "import ", "from ", "class "))]
    for start in starts:
        for end in range(len(lines), start, -1):
            try:
                if normal_form(textwrap.dedent("\n".join(lines[start:end]))) == form:
                    return True
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    return False


# ---------------------------------------------------------------- answers


def answer_of(problem: Problem, completion: str, truncated: bool) -> Answer:
    """A completion with what judging it takes."""
    single = problem.problem_type != "code_f"
    return Answer(
        problem.problem_type,
        completion,
        truncated,
        problem.program,
        problem.inputs[0] if single else None,
        problem.outputs[0] if single else None,
        () if single else tuple(zip(problem.inputs, problem.outputs, strict=True))[N_SHOWN:],
    )


def judge_attempts(attempts: Sequence[Attempt], executor: Executor) -> list[Judged]:
    """The verdict on every attempt, in order."""
    return judge([answer_of(attempt.problem, attempt.completion, attempt.truncated) for attempt in attempts], executor)


def judge(answers: Sequence[Answer], executor: Executor) -> list[Judged]:
    """Return one verdict per answer, in order; equal answers are judged once, equal programs and
    inputs run once.

    Raises ValueError for an unknown problem type or an answer without the field its type needs.
    """
    plans = {answer: _plan(answer) for answer in dict.fromkeys(answers)}
    jobs = {answer: plan for answer, plan in plans.items() if isinstance(plan, Job)}
    outcomes = dict(zip(jobs, executor.run(list(jobs.values())), strict=True))
    judged = {
        answer: plan if isinstance(plan, Judged) else _compare(answer, outcomes[answer])
        for answer, plan in plans.items()
    }
    return [judged[answer] for answer in answers]


def _plan(answer: Answer) -> Judged | Job:
    """Return the verdict where nothing need run, else the job to run."""
    _require_fields(answer)
    if answer.truncated:
        return Judged(Verdict.BAD_FORMAT, "cut at the token limit")
    try:
        text = parse_answer(answer.problem_type, answer.completion)
        if answer.problem_type == "code_o":
            return _verdict_on((canonical(parse_value(text)),), (answer.output or "",))
        if answer.problem_type == "code_i":
            parse_arguments(text)
            return Job(answer.program or "", (text.strip(),))
        check_program(text)
        return Job(text, tuple(given for given, _ in answer.hidden))
    except BadFormat as error:
        return Judged(Verdict.BAD_FORMAT, error.reason)
    except ProgramRejected as error:  # a student's program is not asked to be deterministic, but may use no more
        return Judged(Verdict.DENIED if error.status == "nondeterministic" else Verdict(error.status), error.reason)
    except ValueTooLarge as error:
        return Judged(Verdict.TOO_LARGE, error.reason)
    except ValueRejected as error:
        return Judged(Verdict.BAD_FORMAT, error.reason)


def _require_fields(answer: Answer) -> None:
    needed = {"code_o": ("output",), "code_i": ("program", "output"), "code_f": ("hidden",)}
    if answer.problem_type not in needed:
        raise ValueError(f"problem_type: expected one of {sorted(needed)}, got {answer.problem_type!r}")
    for name in needed[answer.problem_type]:
        if not getattr(answer, name):
            raise ValueError(f"{name}: a {answer.problem_type} answer needs it, got {getattr(answer, name)!r}")


def _compare(answer: Answer, outcome: Outcome) -> Judged:
    if outcome.status is not Status.OK:
        return Judged(Verdict(outcome.status), outcome.reason)
    if answer.problem_type == "code_i":
        return _verdict_on(outcome.outputs, (answer.output or "",))
    return _verdict_on(outcome.outputs, tuple(expected for _, expected in answer.hidden))


def _verdict_on(given: tuple[str, ...], expected: tuple[str, ...]) -> Judged:
    """Compare canonical texts, in which values of equal type and content are the same text."""
    if given == tuple(canonical(parse_value(text, _NO_CAP), _NO_CAP) for text in expected):
        return Judged(Verdict.CORRECT)
    return Judged(Verdict.WRONG, "another value than expected")
