"""What the judge is told about a run, and the thresholds of its rules, each with its reason."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

# --- how far a fall must go ------------------------------------------------------------------------
# The lost fraction is (reference - level) / (reference - floor), so it has no unit and no scale.
FALLEN = 0.5
"""A policy that lost half of what lies between its own reference and the floor has fallen. Falling back to
the level of the base policy loses 0.4 to 0.6 of the range in typical runs; swings of healthy runs lose
less."""
RECOVERED = 1 / 3
"""A level that lost less than this is good again. The gap up to FALLEN keeps noise from toggling the
state."""
DEEP = 0.8
"""Beyond this the policy is near the floor, where few groups carry signal and recoveries are rare and
quick."""
DRY = 0.995
"""Beyond this a batch of a hundred holds less than one success: no advantage, hence no gradient."""

# --- how long it must last, in updates and in policy versions --------------------------------------
PERSIST_VERSIONS = 3
"""Versions that must be seen fallen: one can be an unlucky sync, two an overshoot that the next sync
undoes."""
PERSIST_SPAN = 32
"""Two versions further apart than this, in updates, are enough, too: no overshoot lasts so long."""
DEEP_UPDATES, DEEP_SYNCS = 8, 1
"""Shortest deep fall at the end of a complete log: longer than any one batch, and past a synchronization."""
PARTIAL_UPDATES, PARTIAL_SYNCS = 40, 1.5
"""Shortest partial fall at the end of a log: dips of 25 to 40 updates recover, and spend part of that time above half
of the level."""
DRY_ROWS = 48
"""Rollout rows without reward after which one version is enough: momentum has decayed by then, and what is
never rewarded is never reinforced."""
STEADY_ROWS = 16
"""Rows without signal from which a stuck policy is suspected, and rows before them in which the signal must have
been steady."""
STEADY_SHARE = 0.5
"""Share of those rows that must have had signal: a weak policy that is rewarded rarely has dry stretches, too."""
CERTAIN_DEEP_UPDATES, CERTAIN_DEEP_SYNCS = 40, 1.5
"""Online, a deep fall is certain after this. A dead run is then ended within max(3 S, 64) updates of its onset, of
which up to S pass before rollouts show it and up to 20 until the level has halved and somebody looks."""
CERTAIN_PARTIAL_UPDATES, CERTAIN_PARTIAL_SYNCS = 40, 1.5
"""Online, a partial fall is certain after this, unless it is recovering."""
CERTAIN_DEEP_AGE, CERTAIN_PARTIAL_AGE = 2.0, 2.5
"""Online, synchronizations that must have passed since the last good version: where probes tell the onset early, one
can wait for the next policies, since runs with long intervals swing for a sync or two and come back."""
USUAL_VERSIONS, USUAL_UPDATES = 2, 16
"""Online, versions and updates that must show the level from which a partial fall is measured."""
RISING = 0.2
"""A partial fall whose last quarter has won back this much from its deepest one is on its way up: not certain yet."""

# --- slow or sudden --------------------------------------------------------------------------------
LASTING_UPDATES, LASTING_SYNCS = 48, 3
"""Shortest decline, and stretch before a fall that shows the usual level."""
CLIFF_UPDATES, CLIFF_SYNCS, CLIFF_SHARE = 64, 3, 0.15
"""A partial fall is a cliff when good and fallen lie no further apart than the largest of: updates, syncs,
share of the run. Slower ones are `degraded`."""
DECLINED = 0.15
"""Share of the best level that must be lost at the end for `degraded`. Runs near their ceiling wander by
0.1."""
SWINGS = 2.0
"""A decline must exceed this multiple of the deepest valley that the run came out of, else it merely swings."""

# --- noise -----------------------------------------------------------------------------------------
SIGMAS = 4.0
"""A difference counts beyond this many standard errors: 3e-5 for one look, about 1 % over 300 looks."""
SPLIT_SIGMAS = 4.5
"""The means before and after a version differ beyond this; the largest over all versions is taken, which white noise
brings to 4.5 in fewer than one run of a thousand."""
TREND_SIGMAS = 3.0
"""A rank correlation of level and version counts as movement beyond so many of its standard errors."""
ONSET_SIGMAS = 2.0
"""A version counts as good or bad for the onset when it lies so far from the half-way level of the fall."""
SMOOTH_ROWS = 5
"""Rows behind one level: single batches scatter by factors of 1.4 to 3.6 even at a learning rate of 0."""
SPARSE_UPDATES = 8
"""Rows further apart than this are evaluations: five of them last longer than a dip."""
SMOOTH_NOISE = 1 / 8
"""Levels are averaged until their noise is at most this share of the range: then FALLEN is four sigmas
away."""
EXCESS_NOISE = 3.0
"""Measured noise counts up to this multiple of the stated standard error."""
REFERENCE_ROWS, REFERENCE_PROBES = 8, 3
"""Length of a level that counts as sustained, in rollout rows and in probes."""
CHANCE = 0.01
"""A lasting fall is no chance when rows that are down as often as before would end the log so seldom; how long it must
last is asked apart."""
CHANCE_ALIKE = 1e-4
"""The same where all good rows are alike and all fallen ones, too, as right and wrong single answers are: the gap
then says nothing."""
GAP_SIGMAS = 2.0
"""Between good and fallen rows nothing lies within so many standard deviations of the good ones: the two halves of one
broad distribution are not so far apart."""
SPIKE_SIGMAS = 6.0
"""Single observations further than this from the median of their seven neighbours are cut back to it."""

# --- enough to say something -----------------------------------------------------------------------
MIN_VERSIONS = 3
"""Fewer policies than this show no course."""
MIN_ROWS = 8
"""Fewer rows than this show no level."""
MOVED_LOG_RATIO = 0.05
"""Mean size of a trajectory's log-ratio to its own behaviour policy from which the learner clearly moves: a
twentieth of all probability mass each cycle is more than any numerical mismatch."""
FLAT_UPDATES = 64
"""A reward that has not moved for fewer updates than this may simply be too young."""

# --- witnesses -------------------------------------------------------------------------------------
COSINE_ALARM = 0.5
"""Cosine between consecutive gradients above which the policy drifts in one direction."""
WITNESS_SIGMAS = 8.0
"""A witness speaks when its running median leaves its early level by so many robust deviations, either
way."""


class JudgeSettings(BaseModel):
    """What a log does not say about its run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reward_floor: float = Field(default=0.0, allow_inf_nan=False)
    """Reward of a policy that fails always, on the scale of the log."""
    full_marks: float | None = Field(default=None, allow_inf_nan=False)
    """Largest reward of a completion; None when not known: then a stuck policy cannot be told from a perfect one."""
    sync_interval: int = Field(default=1, ge=1)
    """S, in updates."""
    horizon: int | None = Field(default=None, ge=1)
    """Planned updates; None when not known: the log is then taken as complete unless `ended` says
    otherwise."""
    ended: Literal["finished", "killed", "stopped"] = "finished"
    """finished by itself; killed by machine or signal; stopped on purpose before the horizon."""
    series_floors: dict[str, float] = {}
    """Floors of the further series by name; else 0 where no value is below 0, else their lowest level."""
