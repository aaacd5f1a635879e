"""Content of `recommendation.json`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from calibrator.laws.types import Estimate, Finding

Rule = Literal["stable", "conservative", "budget-limited"]
Objective = Literal["time", "progress"]
Origin = Literal["measured", "derived", "assumed"]


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


class SuggestionRow(_Record):
    """What the recorded ratios say about one pair (G, epsilon)."""

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
    extrapolated: bool
    """G above the recorded group size: groups were completed by resampling."""


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
    sync_interval: Annotated[int, Field(ge=1)]
    max_lag: int
    schedule: str
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    group_size: Annotated[int, Field(ge=2)] | None
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    estimator: str
    """One of the trainer's, unless the runs are somebody else's."""
    horizon: Annotated[int, Field(ge=1)]
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
    crossover_interval: Estimate | None = None
    """S_eff at which eta_max = B/T: below it the budget is the smaller limit, above it the boundary."""
    confirmation: Confirmation | None = None
    findings: list[Finding] = []
    valid_for: ValidFor | None = None
