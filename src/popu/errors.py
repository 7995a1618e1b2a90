"""Faults that the user can mend: each is one message and exit code 2."""


class ConfigError(ValueError):
    """A config or command line that cannot be run; the message names key, expectation and finding."""


class ArtifactError(ValueError):
    """A file that cannot be used; the message names the file, what was expected and what was found."""


class SandboxUnavailable(RuntimeError):
    """The verifier cannot run on this machine; the message says what is missing."""


USER_FAULTS = (ConfigError, ArtifactError, SandboxUnavailable)
