"""Names that configuration and command line share; importing this imports nothing else."""

from typing import Literal

EstimatorName = Literal["none", "grpo", "tic", "tic_zero", "gmc", "gspo", "cispo", "tis", "mis"]
ScheduleName = Literal["lockstep", "overlap"]
EngineName = Literal["hf", "vllm", "vllm-server"]
