"""What the verifier says: the status of a proposal and the verdict on an attempt, never a bare bool."""

from enum import StrEnum


class Status(StrEnum):
    """How the run of a program, or the check of a proposal, ended."""

    OK = "ok"
    BAD_FORMAT = "bad_format"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    TOO_LARGE = "too_large"
    UNSUPPORTED_VALUE = "unsupported_value"
    NONDETERMINISTIC = "nondeterministic"
    DENIED = "denied"
    INFRASTRUCTURE = "infrastructure"


class Verdict(StrEnum):
    """The word on a student's attempt; from RAISED to DENIED it is about the student's program or input."""

    CORRECT = "correct"
    WRONG = "wrong"
    RAISED = "raised"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"
    TOO_LARGE = "too_large"
    UNSUPPORTED_VALUE = "unsupported_value"
    DENIED = "denied"
    BAD_FORMAT = "bad_format"
    INFRASTRUCTURE = "infrastructure"
