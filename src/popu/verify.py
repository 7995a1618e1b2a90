"""The verifier's black-box door: requests as JSON lines, one JSON object a line as answer, in order.

Three kinds of requests, told apart by `kind`: a teacher's `proposal`, a student's `answer`, a program to `run`. Values
are canonical text. A line that is none of these gets an answer with `error` in place of a verdict.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from popu.domains.code import CODE
from popu.domains.domain import Domain, domain_of_type
from popu.problems.check import Answer, judge
from popu.problems.static import ProgramRejected, check_program
from popu.problems.types import Attempt, Problem, Proposal, Validated
from popu.problems.values import ValueRejected, canonical_arguments, parse_arguments, parse_value
from popu.rl.rewards import student_reward
from popu.sandbox.executor import Executor, Job, Profile
from popu.sandbox.verdicts import Status

CHUNK = 256  # lines answered together, so that equal runs are made once

Response = dict[str, Any]
Executors = Callable[[Profile], Executor]
Pair = tuple[str, str]
R = TypeVar("R")
Q = TypeVar("Q", "ProposalRequest", "AnswerRequest")


class DoorRequest(BaseModel):
    """What a line of any door has: an id of the caller's."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    id: str | int


def _known(name: str) -> str:
    domain_of_type(name)
    return name


ProblemTypeName = Annotated[str, AfterValidator(_known)]


class ProposalRequest(DoorRequest):
    """A teacher's completion; `program` is the one shown for `code_f`, null for types that borrow none."""

    kind: Literal["proposal"]
    problem_type: ProblemTypeName
    completion: str
    program: str | None = None
    truncated: bool = False

    @model_validator(mode="after")
    def _program_of_code_f(self) -> "ProposalRequest":
        domain = domain_of_type(self.problem_type)
        if (self.problem_type in domain.borrowing) != (self.program is not None):
            raise ValueError(f"program: expected for {_listed(domain.borrowing)} and for no other type")
        return self


class AnswerRequest(DoorRequest):
    """A student's completion with the problem it answers; `hidden` are the pairs that `code_f` is judged by. Types of
    other domains than code need `program`, of which the gold answer is made anew."""

    kind: Literal["answer"]
    problem_type: ProblemTypeName
    completion: str
    program: str | None = None
    input: str | None = None
    output: str | None = None
    shown: tuple[Pair, ...] = Field((), strict=False)
    hidden: tuple[Pair, ...] = Field((), strict=False)
    message: str = ""
    truncated: bool = False

    @model_validator(mode="after")
    def _complete(self) -> "AnswerRequest":
        for name in _NEEDED.get(self.problem_type, ("program",)):
            if not getattr(self, name):
                raise ValueError(f"{name}: a {self.problem_type} answer needs it")
        if domain_of_type(self.problem_type) is not CODE:
            return self
        for text in (self.output, *(output for _, output in self.hidden)):
            if text is not None:
                _must_parse("output", parse_value, text)
        for given, _ in self.hidden:
            _must_parse("input", parse_arguments, given)
        return self


_NEEDED = {"code_o": ("output",), "code_i": ("program", "output"), "code_f": ("hidden",)}


def _listed(types: Iterable[str]) -> str:
    return ", ".join(sorted(types)) or "no type"


class RunRequest(DoorRequest):
    """A program whose function `entry` is called on argument lists, determinism checked as for a proposal.

    In the profile of evaluation arguments are expressions, and without `entry` the program is a script that reads its
    inputs from standard input.
    """

    kind: Literal["run"]
    program: str
    inputs: tuple[str, ...] = Field(strict=False, min_length=1)
    profile: Profile = Profile.TRAINING
    entry: str | None = "f"

    @model_validator(mode="after")
    def _training_calls_f(self) -> "RunRequest":
        if self.profile is Profile.TRAINING and self.entry != "f":
            raise ValueError("entry: expected f in the profile of training")
        return self


Request = ProposalRequest | AnswerRequest | RunRequest
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])


def verify_lines(lines: Iterable[str], executor_of: Executors) -> Iterator[Response]:
    """One answer a line, in order; blank lines have none. `executor_of` gives the executor of a profile."""
    for requests in request_chunks(lines, _REQUEST):
        yield from _answers(requests, executor_of)


def request_chunks(lines: Iterable[str], kind: TypeAdapter[R]) -> Iterator[list[R | Response]]:
    """The requests of the lines that are not blank, in chunks; in place of one that is malformed, the answer to it."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    while chunk := list(itertools.islice(numbered, CHUNK)):
        yield [_read(number, line, kind) for number, line in chunk]


def _answers(requests: list[Request | Response], executor_of: Executors) -> list[Response]:
    answers: dict[int, Response] = {i: request for i, request in enumerate(requests) if isinstance(request, dict)}
    training = executor_of(Profile.TRAINING)
    answers |= _proposals({i: r for i, r in enumerate(requests) if isinstance(r, ProposalRequest)}, training)
    answers |= _judged({i: r for i, r in enumerate(requests) if isinstance(r, AnswerRequest)}, training)
    for profile in Profile:
        runs = {i: r for i, r in enumerate(requests) if isinstance(r, RunRequest) and r.profile is profile}
        if runs:
            answers |= _runs(runs, executor_of(profile))
    return [answers[i] for i in range(len(requests))]


def _read(number: int, line: str, kind: TypeAdapter[Any]) -> Any:
    try:
        return kind.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = f"line {number}: {f'{where}: ' if where else ''}{first['msg']}"
    except (ValueError, RecursionError) as error:
        reason = f"line {number}: {error}"
    return {"id": _id_of(line), "error": reason[:300]}


def _id_of(line: str) -> str | int | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, (str, int)) else None


def _proposals(requests: dict[int, ProposalRequest], executor: Executor) -> dict[int, Response]:
    answers: dict[int, Response] = {}
    for domain, own in _by_domain(requests).items():
        proposals = [Proposal(r.problem_type, r.completion, r.program, r.truncated) for r in own.values()]
        for (i, request), result in zip(own.items(), domain.validate(proposals, executor), strict=True):
            answers[i] = {
                "id": request.id,
                "status": str(result.status),
                "reason": result.reason,
                "program": result.program,
                "inputs": result.inputs,
                "outputs": result.outputs,
            }
    return answers


def _judged(requests: dict[int, AnswerRequest], executor: Executor) -> dict[int, Response]:
    answers: dict[int, Response] = {}
    for domain, own in _by_domain(requests).items():
        if domain is CODE:  # of which a part of the problem suffices
            judged = judge([_code_answer(request) for request in own.values()], executor)
        else:
            problems = domain.validate([_as_proposal(domain, request) for request in own.values()], executor)
            faults = {i: _fault(own[i], made) for i, made in zip(own, problems, strict=True)}
            bad = {i: fault for i, fault in faults.items() if fault}
            answers |= {i: {"id": own[i].id, "error": reason} for i, reason in bad.items()}
            attempts = [_attempt(own[i], p) for i, p in zip(own, problems, strict=True) if i not in bad]
            own = {i: request for i, request in own.items() if i not in bad}
            judged = domain.judge(attempts, executor)
        for (i, request), result in zip(own.items(), judged, strict=True):
            reward = student_reward(result.verdict)
            answers[i] = {
                "id": request.id,
                "verdict": str(result.verdict),
                "reason": result.reason,
                "reward": reward,
            }
    return answers


def _code_answer(request: AnswerRequest) -> Answer:
    given = (request.program or "", request.input, request.output, request.hidden)
    return Answer(request.problem_type, request.completion, request.truncated, *given)


def _as_proposal(domain: Domain, request: AnswerRequest) -> Proposal:
    """The problem of a request as a teacher would write it."""
    name, program = request.problem_type, request.program or ""
    inputs = () if request.input is None else (request.input,)
    text = domain.proposal_text(Problem(name, program, inputs, (), request.message))
    return Proposal(name, text, program if name in domain.borrowing else None, False)


def _fault(request: AnswerRequest, made: Validated) -> str:
    """Why a request holds no problem, "" where it does."""
    if made.status is not Status.OK:
        return f"program: {made.reason}"
    if request.output is not None and request.output != made.outputs[0]:
        return f"output: expected {made.outputs[0][:40]!r}, found {request.output[:40]!r}"
    return ""


def _attempt(request: AnswerRequest, made: Validated) -> Attempt:
    problem = Problem(request.problem_type, made.program, made.inputs, made.outputs, made.message)
    return Attempt(problem, request.completion, request.truncated)


def _by_domain(requests: dict[int, Q]) -> dict[Domain, dict[int, Q]]:
    parts: dict[Domain, dict[int, Q]] = {}
    for i, request in requests.items():
        parts.setdefault(domain_of_type(request.problem_type), {})[i] = request
    return parts


def _runs(requests: dict[int, RunRequest], executor: Executor) -> dict[int, Response]:
    answers: dict[int, Response] = {}
    jobs: dict[int, Job] = {}
    for i, request in requests.items():
        try:
            inputs = request.inputs
            if request.profile is Profile.TRAINING:
                check_program(request.program)
                inputs = tuple(canonical_arguments(parse_arguments(text)) for text in inputs)
            jobs[i] = Job(request.program, inputs, check_determinism=True, entry=request.entry)
        except ProgramRejected as error:
            answers[i] = _run_answer(request, error.status, error.reason, ())
        except ValueRejected as error:
            answers[i] = _run_answer(request, Status.BAD_FORMAT, f"input: {error.reason}", ())
    for (i, _), outcome in zip(jobs.items(), executor.run(list(jobs.values())), strict=True):
        answers[i] = _run_answer(requests[i], outcome.status, outcome.reason, outcome.outputs)
    return answers


def _run_answer(request: RunRequest, status: str, reason: str, outputs: tuple[str, ...]) -> Response:
    return {"id": request.id, "status": str(status), "reason": reason, "outputs": outputs}


def _must_parse(name: str, parse: Callable[[str], object], text: str) -> None:
    """Raises ValueError unless `text` is a value or an argument list."""
    try:
        parse(text)
    except ValueRejected as error:
        raise ValueError(f"{name} {text[:40]!r}: {error.reason}") from error
