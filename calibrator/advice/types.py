"""Content of `recommendation.json`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrator.laws.types import Estimate, Finding
from trainer.names import ScheduleName

Rule = Literal["stable", "conservative", "budget-limited"]
Objective = Literal["time", "progress"]
Origin = Literal["measured", "derived", "assumed"]
Basis = Literal["recorded", "probe", "extrapolated"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FrontierRow(_Record):
    """What one sync interval allows."""

    sync_interval: int
    max_learning_rate: float
    """Largest eta that the rule allows at this interval."""
    learning_rate: float
    """eta that would be recommended here: the same, rounded down to two digits."""
    eta_max: Estimate
    """Fitted boundary, where half of the runs are prone."""
    collapse_probability: Estimate
    """P(collapse by the horizon) at `learning_rate`."""
    seconds_per_update: float | None
    """Null where no seconds were ever measured."""
    progress_per_second: float | None
    """eta times updates per second, LR per second."""
    useful: bool
    """False when eta lies below the floor: the run would learn nothing useful in the horizon."""
    limits: dict[Rule, float] = {}
    """Largest eta that each of the three rules allows at this interval."""
    floor_learning_rate: float | None = None
    """The floor under eta at this interval's horizon; null when no gain was measured."""
    horizon: int | None = None
    """Updates of the intended run at this interval: they differ between intervals when the horizon is in hours."""
    cumulative_lr: float | None = None
    """L at the horizon at `learning_rate`: progress on the clock L, LR x updates."""
    hours: float | None = None
    """Hours to the horizon; null where no seconds were ever measured."""
    price: float | None = None
    """Hours times the price of an hour; null without a price."""

    def merit(self, objective: Objective) -> float:
        """Progress on the clock L per second, or per update where that is asked for or no seconds were measured."""
        by_time = objective == "time" and self.progress_per_second is not None
        return (self.progress_per_second if by_time else self.learning_rate) or 0.0


class SuggestionRow(_Record):
    """What the recorded ratios say about one estimator with one pair (G, epsilon)."""

    estimator: str = "gmc"
    group_size: int
    epsilon: float
    cap_activation: float
    """Share of groups (`gmc`) or trajectories (`tic`, `tic_zero`) on which the cap acts."""
    lost_mass: float
    """E[r - omega]: E[(mean r - 1 - epsilon)_+] for `gmc`, E[(r - 1 - epsilon)_+] for `tic`, and all of
    E[r; r > 1 + epsilon] for `tic_zero`."""
    second_moment: float
    """E[omega^2], a proxy for the variance that the weights add."""
    ess: float
    """Effective sample size of the weights as a share of the batch."""
    signal: float
    """Share of groups with both good and bad completions."""
    signal_per_rollout: float | None = None
    """Share of the rollouts that count: signal x ess x (1 - 1/G), at an equal number of rollouts an update."""
    bound: float | None = None
    """Bound on `lost_mass` from the measured second moment of the ratios, see docs/group-size.md."""
    intervals: dict[str, tuple[float, float]] = {}
    """90 % intervals by field name; none where nothing was seen, such as a cap that never acted."""
    basis: Basis | None = None
    """`recorded` groups cut smaller, a `probe` of larger groups, or groups completed by resampling."""
    extrapolated: bool
    """G above the recorded group size and no probe: groups were completed by resampling."""


class Suggested(_Record):
    group_size: int
    epsilon: float
    reason: str
    table: list[SuggestionRow] = []


class Confirmation(_Record):
    """A run at the final four numbers."""

    trials: list[int]
    sync_interval: int
    verdicts: list[str]
    learning_rate: float
    updates: int
    cumulative_lr: float
    """L that all of these runs reached."""
    held_out_before: float
    held_out_after: list[float | None]
    """Null where the run diverged."""


class ValidFor(_Record):
    """Digests of what the recommendation rests on; `train` warns outside."""

    model: str
    task: str
    setting: str
    code: str
    longest_cumulative_lr: float
    sync_intervals: list[int]


class Recommendation(_Record):
    """The four numbers and what they rest on. `null` where nothing can be said."""

    schema_version: int = 1
    sync_interval: Annotated[int, Field(ge=1, le=10**9)]
    max_lag: Annotated[int, Field(ge=0)]
    schedule: ScheduleName
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    group_size: Annotated[int, Field(ge=2)] | None
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    estimator: str
    """One of the trainer's, unless the runs are somebody else's."""
    horizon: Annotated[int, Field(ge=1, le=10**9)]
    """T in updates; where it was given in another unit, as converted."""
    risk: float
    rule: Rule
    objective: Objective
    collapse_probability: Estimate
    extrapolation: float
    """eta x horizon over the longest observed L: above 1 the answer reaches beyond what was seen."""
    suggested: Suggested | None = None
    origin: dict[str, Origin]
    frontier: list[FrontierRow] = []
    floor_learning_rate: float | None = None
    """eta below which the run would not learn anything useful within the horizon."""
    horizon_asked: str | None = None
    """The horizon as it was asked for, where that was not in updates: `48h`, `5e8tokens`, `3epochs`."""
    price_per_hour: float | None = None
    crossover_interval: Estimate | None = None
    """S_eff at which eta_max = B/T: below it the budget is the smaller limit, above it the boundary."""
    confirmation: Confirmation | None = None
    findings: list[Finding] = []
    valid_for: ValidFor | None = None
