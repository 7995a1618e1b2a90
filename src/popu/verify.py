"""The verifier's black-box door: requests as JSON lines, one JSON object a line as answer, in order.

Three kinds of requests, told apart by `kind`: a teacher's `proposal`, a student's `answer`, a program to `run`. Values
are canonical text. A line that is none of these gets an answer with `error` in place of a verdict.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from popu.problems.check import Answer, Proposal, judge, validate
from popu.problems.static import ProgramRejected, check_program
from popu.problems.types import ProblemType
from popu.problems.values import ValueRejected, canonical_arguments, parse_arguments, parse_value
from popu.rl.rewards import student_reward
from popu.sandbox.executor import Executor, Job, Profile
from popu.sandbox.verdicts import Status

CHUNK = 256  # lines answered together, so that equal runs are made once

Response = dict[str, Any]
Executors = Callable[[Profile], Executor]
Pair = tuple[str, str]
R = TypeVar("R")


class DoorRequest(BaseModel):
    """What a line of any door has: an id of the caller's."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    id: str | int


class ProposalRequest(DoorRequest):
    """A teacher's completion; `program` is the one shown for `code_f`, null for the other types."""

    kind: Literal["proposal"]
    problem_type: ProblemType
    completion: str
    program: str | None = None
    truncated: bool = False

    @model_validator(mode="after")
    def _program_of_code_f(self) -> "ProposalRequest":
        if (self.problem_type == "code_f") != (self.program is not None):
            raise ValueError("program: expected for code_f and for no other type")
        return self


class AnswerRequest(DoorRequest):
    """A student's completion with the problem it answers; `hidden` are the pairs that `code_f` is judged by."""

    kind: Literal["answer"]
    problem_type: ProblemType
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
        needed = {"code_o": ("output",), "code_i": ("program", "output"), "code_f": ("hidden",)}
        for name in needed[self.problem_type]:
            if not getattr(self, name):
                raise ValueError(f"{name}: a {self.problem_type} answer needs it")
        for text in (self.output, *(output for _, output in self.hidden)):
            if text is not None:
                _must_parse("output", parse_value, text)
        for given, _ in self.hidden:
            _must_parse("input", parse_arguments, given)
        return self


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
    proposals = [Proposal(r.problem_type, r.completion, r.program, r.truncated) for r in requests.values()]
    return {
        i: {
            "id": request.id,
            "status": str(result.status),
            "reason": result.reason,
            "program": result.program,
            "inputs": result.inputs,
            "outputs": result.outputs,
        }
        for (i, request), result in zip(requests.items(), validate(proposals, executor), strict=True)
    }


def _judged(requests: dict[int, AnswerRequest], executor: Executor) -> dict[int, Response]:
    answers = [
        Answer(r.problem_type, r.completion, r.truncated, r.program or "", r.input, r.output, r.hidden)
        for r in requests.values()
    ]
    return {
        i: {
            "id": request.id,
            "verdict": str(judged.verdict),
            "reason": judged.reason,
            "reward": student_reward(judged.verdict),
        }
        for (i, request), judged in zip(requests.items(), judge(answers, executor), strict=True)
    }


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
