"""The estimators: g = (1/N) sum_i omega_i A_i grad log pi(tau_i), one short module each."""

from trainer.algorithms.cispo import cispo
from trainer.algorithms.gmc import gmc
from trainer.algorithms.grpo import grpo
from trainer.algorithms.gspo import gspo
from trainer.algorithms.mis import mis
from trainer.algorithms.none import none
from trainer.algorithms.tic import tic
from trainer.algorithms.tic_zero import tic_zero
from trainer.algorithms.tis import tis
from trainer.algorithms.types import Estimator, RatioBatch, Surrogate
from trainer.names import EstimatorName

ESTIMATORS: dict[EstimatorName, Estimator] = {
    "none": none,
    "grpo": grpo,
    "tic": tic,
    "tic_zero": tic_zero,
    "gmc": gmc,
    "gspo": gspo,
    "cispo": cispo,
    "tis": tis,
    "mis": mis,
}

__all__ = ["ESTIMATORS", "Estimator", "RatioBatch", "Surrogate"]
