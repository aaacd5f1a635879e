"""`calibrate recommend`: a study's answer to another question, or S and eta from finished runs of any origin."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calibrator.advice.bounds import refused
from calibrator.advice.horizon import Horizon, Measured, updates_of
from calibrator.advice.recommend import recommend
from calibrator.advice.request import AdviceRequest
from calibrator.advice.types import Objective, Recommendation, Rule
from calibrator.cli.printing import print_record
from calibrator.errors import ExitCode, NothingToSayError, StudyConfigError
from calibrator.handoff.conclude import Intent
from calibrator.laws.evidence import evidence, realised_intervals
from calibrator.laws.fitted import FittedStratum
from calibrator.laws.types import FitResult, Run
from calibrator.study.store import is_study
from trainer.names import ScheduleName

REPLACED = ("recommendation.json", "trainer.toml", "report.html", "report.md", "fit.json")
"""Files of a study that a new recommendation replaces; the old ones go to previous/<n>/."""


@dataclass(frozen=True)
class Wish:
    """Options of the command; None keeps the study's own value, or the default where there is no study."""

    horizon: Horizon | None = None
    risk: float | None = None
    rule: Rule | None = None
    objective: Objective | None = None
    schedule: ScheduleName | None = None
    max_lag: int | None = None
    price_per_hour: float | None = None

    def advice(self) -> dict[str, Any]:
        """The given ones among the keys of [advice]."""
        keys = ("risk", "rule", "objective")
        given = {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
        if self.horizon is not None and self.horizon.unit == "updates":
            given["horizon"] = int(self.horizon.amount)
        return given

    def intent(self) -> Intent:
        """What [advice] has no key for."""
        other = self.horizon is not None and self.horizon.unit != "updates"
        return Intent(
            self.schedule or "lockstep", self.max_lag, self.horizon if other else None, self.price_per_hour
        )


def print_recommendation(
    paths: Sequence[Path],
    wish: Wish,
    *,
    settings: Path | None,
    only: Sequence[str],
    dry_run: bool,
    as_json: bool,
) -> ExitCode:
    """Recommend from a study folder or from runs, and print it. INCONCLUSIVE where nothing can be recommended."""
    if wish.risk is not None and not 0 < wish.risk < 0.5:
        raise StudyConfigError(f"--risk {wish.risk:g}: give a probability above 0 and below 0.5")
    if wish.price_per_hour is not None and not 0 <= wish.price_per_hour < float("inf"):
        raise StudyConfigError(f"--price-per-hour {wish.price_per_hour:g}: give a price of 0 or more")
    if len(paths) == 1 and is_study(paths[0]):
        if only or settings is not None:
            raise StudyConfigError(
                "--only and --settings are for tables and logs; a study has its own settings"
            )
        from calibrator.cli.reconsider import reconsider

        return reconsider(paths[0], wish, dry_run=dry_run, as_json=as_json)
    # What reads logs and makes a fit is loaded only where there is no study that has done so.
    from calibrator.cli.inputs import gather
    from calibrator.laws.fit import fit_runs

    fitted = chosen_stratum(fit_runs(selected(gather(paths, settings), only)))
    try:
        advice = recommend(fitted, request(fitted, wish))
    except NothingToSayError as error:
        if as_json:
            print_json(None, str(error), fitted)
        else:
            _print_tested(paths, fitted)
        raise
    if as_json:
        print_json(advice, None)
    else:
        _print_text(paths, fitted, advice)
    return ExitCode.RECOMMENDED


def selected(runs: Sequence[Run], only: Sequence[str]) -> list[Run]:
    """The runs whose settings are those in `only`, each KEY=VALUE. Raises StudyConfigError."""
    kept = list(runs)
    for text in only:
        key, separator, value = text.partition("=")
        if not separator:
            raise StudyConfigError(f"--only {text}: give KEY=VALUE, for example estimator=gmc")
        kept = [run for run in kept if _settings(run).get(key) == value]
        if not kept:
            raise StudyConfigError(f"--only {text}: no run has that setting")
    return kept


def chosen_stratum(fitted: Sequence[FittedStratum]) -> FittedStratum:
    """The only stratum. Raises StudyConfigError naming the settings that differ."""
    if len(fitted) == 1:
        return fitted[0]
    settings = [_settings(stratum.runs[0]) for stratum in fitted]
    keys = dict.fromkeys(key for each in settings for key in each)
    differing = {key: sorted({each.get(key, "(none)") for each in settings}) for key in keys}
    listed = "; ".join(f"{key}: {', '.join(values)}" for key, values in differing.items() if len(values) > 1)
    raise StudyConfigError(
        f"the runs are of {len(fitted)} settings, which are never pooled ({listed}): choose one with --only KEY=VALUE"
    )


def request(fitted: FittedStratum, wish: Wish) -> AdviceRequest:
    """What is asked about runs that no study made. G and epsilon are known where they are columns of the table."""
    if wish.horizon is None:
        raise StudyConfigError("--horizon is missing: say how many updates the intended run shall have")
    if wish.price_per_hour is not None:
        raise StudyConfigError(
            "--price-per-hour: tables and logs hold no seconds per update, from which the cost would follow; leave it "
            "out, or ask a study folder"
        )
    updates = updates_of(wish.horizon, Measured())
    realised = realised_intervals(evidence(fitted.runs).used)
    lockstep = all(effective == S for S, effective in realised.items())
    as_run = wish.schedule is None and not lockstep
    strata = fitted.summary.strata
    return AdviceRequest(
        **({"rule": "stable", "objective": "progress"} | wish.advice() | {"horizon": updates}),
        sync_intervals=tuple(sorted(set(realised.values()))) or (1,),
        realised={effective: S for S, effective in reversed(realised.items())} if as_run else {},
        schedule=wish.schedule or ("overlap" if as_run else "lockstep"),
        max_lag=wish.max_lag,
        group_size=_number(strata, ("G", "group_size"), least=2, whole=True),
        epsilon=_number(strata, ("epsilon",), least=0),
        cost=None,
    )


def print_json(
    advice: Recommendation | None, refusal: str | None, fitted: FittedStratum | None = None
) -> None:
    """Content of recommendation.json, or why there is none and what the tested points show all the same."""
    if advice is not None:
        print_record(advice)
    else:
        shown = {} if fitted is None else refused(fitted).model_dump(mode="json")
        print_record({"recommendation": None, "refusal": refusal, **shown})


def keep_previous(root: Path) -> Path | None:
    """Copy what the study handed over to previous/<n>/, n counting up. None where there was nothing."""
    files = [root / name for name in REPLACED if (root / name).is_file()]
    if not files:
        return None
    number = 1 + max(
        (int(old.name) for old in (root / "previous").glob("*") if old.name.isdecimal()), default=0
    )
    folder = root / "previous" / str(number)
    folder.mkdir(parents=True)
    for file in files:
        shutil.copy2(file, folder)
    return folder


def _settings(run: Run) -> dict[str, str]:
    return {"estimator": run.estimator, **run.strata}


def _number(strata: dict[str, str], names: Sequence[str], *, least: float, whole: bool = False) -> Any:
    """A setting that is a column of the table; None where it is none, or no number."""
    text = next((strata[name] for name in names if name in strata), "")
    try:
        value = float(text)
    except ValueError:
        return None
    if not least <= value < float("inf") or value == 0 or (whole and value != int(value)):
        return None
    return int(value) if whole else value


def _print_tested(paths: Sequence[Path], fitted: FittedStratum) -> None:
    """What the runs show without a boundary, above all P(collapse) at each tested point."""
    from calibrator.cli.console import AnswerConsole
    from reports.cards.fit import fit_cards
    from reports.terminal import render_cards

    title = f"No recommendation from {', '.join(str(path) for path in paths)}"
    render_cards(title, fit_cards(FitResult(strata=[fitted.summary])), AnswerConsole())


def _print_text(paths: Sequence[Path], fitted: FittedStratum, advice: Recommendation) -> None:
    from calibrator.cli.console import AnswerConsole
    from reports.cards.fit import advice_cards
    from reports.terminal import render_cards

    fit = FitResult(strata=[fitted.summary])
    title = f"Recommendation from {', '.join(str(path) for path in paths)}"
    render_cards(title, advice_cards(fit, advice), AnswerConsole())
