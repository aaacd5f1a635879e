"""What a run says of itself at its end. Importing this never imports torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class RunSummary(BaseModel):
    """Content of summary.json: how a run ended, and how stale its rollouts were."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    updates: int
    ended: str
    """`finished`, `stopped` (on request) or `non_finite`."""
    held_out_before: float | None
    held_out_after: float | None
    lag_bound: int
    """Largest lag in updates that the schedule allowed."""
    lag_reached: int
    """Largest lag that a consumed trajectory had."""
    paced: int
    """How often generation waited for new weights because of the bound; 0: the bound never acted."""
    discarded_groups: int
    """Finished groups that no update used, since the run ended early; no other is ever thrown away."""
    discarded_length: float | None
    """Their mean response length in tokens."""
    discarded_pass_rate: float | None
    """Share of their completions with full marks."""
