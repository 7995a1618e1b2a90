"""Faults that the user can mend: each is one message and exit code 2."""


class ConfigError(ValueError):
    """A config or command line that cannot be run; the message names key, expectation and finding."""


class ArtifactError(ValueError):
    """A file that cannot be used; the message names the file, what was expected and what was found."""


class SandboxUnavailable(RuntimeError):
    """The verifier cannot run on this machine; the message says what is missing."""


USER_FAULTS = (ConfigError, ArtifactError, SandboxUnavailable)


def explained(error: BaseException) -> str | None:
    """The message of a fault that the user can mend, None for any other.

    An operating system's refusal of a path (no such file, no space, read-only, no directory...) is one of them.
    """
    if isinstance(error, USER_FAULTS):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return f"{' -> '.join(name if len(name) < 300 else name[:300] + '...' for name in names)}: {error.strerror}"
    return None
