"""Errors that the trainer raises on purpose. Every message names the key or file and the remedy."""


class TrainerError(Exception):
    """Base of the errors below; the command line prints its text without a traceback."""


class ConfigError(TrainerError):
    """The configuration or an input file is wrong: the user has to change something (exit code 2)."""


class EnvironmentFailedError(TrainerError):
    """The machine failed: disk full, folder not writable, device gone (exit code 5)."""


class NonFiniteError(TrainerError):
    """Nothing can be sampled, since the logits are NaN. Once training has begun the run ends as diverged instead."""
