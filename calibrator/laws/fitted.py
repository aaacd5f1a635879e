"""A fitted stratum, apart from how it is fitted: what reads a fit need not load what makes one."""

from __future__ import annotations

from dataclasses import dataclass

from calibrator.laws.posterior import Posterior
from calibrator.laws.types import Run, StratumFit


@dataclass(frozen=True)
class FittedStratum:
    """A fit with what it rests on; `posterior` is None where no boundary can be given."""

    summary: StratumFit
    posterior: Posterior | None
    runs: tuple[Run, ...]
