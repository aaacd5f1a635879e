"""What each framework's log means: its axis of steps, how it refreshes weights, and what it leaves unsaid."""

from __future__ import annotations

FRAMEWORKS = (
    "calibrate",
    "verl",
    "verl-console",
    "trl",
    "trl-console",
    "prime-rl",
    "tinker",
    "slime",
    "areal",
    "skyrl",
    "nemo-rl",
    "open-instruct",
    "openrlhf",
    "roll",
    "pipelinerl",
    "titanrl",
    "csv",
    "tensorboard",
    "other",
)
