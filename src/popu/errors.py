"""Faults of the input: each is one message for the user and exit code 2."""


class ConfigError(ValueError):
    """A config or command line that cannot be run; the message names key, expectation and finding."""


class ArtifactError(ValueError):
    """A file that cannot be used; the message names the file, what was expected and what was found."""
