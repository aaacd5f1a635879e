"""Entry point of the `calibrate` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from calibrator.advice.horizon import MOST_UPDATES
from calibrator.cli.errors import answers_errors
from calibrator.cli.options import (
    Folder,
    Horizon,
    Json,
    LogFields,
    MaxUpdates,
    Objective,
    Only,
    Risk,
    Rule,
    Sources,
    Study,
    StudyFile,
    Workers,
)
from trainer.names import EngineName, ScheduleName

app = typer.Typer(
    name="calibrate",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("grpo-calibrator"))
        raise typer.Exit


@app.callback()
def calibrate(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Calibrates asynchronous GRPO before the big run: S, eta, G and epsilon from a sweep of short real runs."""


@app.command()
@answers_errors
def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("study.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file if it exists.")] = False,
    preset: Annotated[
        str | None,
        typer.Option("--preset", help="A study of this model, for example qwen3-0.6b.", show_default=False),
    ] = None,
) -> None:
    """Write a commented study.toml to start from."""
    from calibrator.cli.init import write_template

    write_template(path, force=force, preset=preset)


@app.command()
@answers_errors
def plan(study: StudyFile = None) -> None:
    """Print what a study would need (runs, tokens, memory)."""
    from calibrator.cli.plan import print_plan
    from calibrator.cli.source import load_source

    print_plan(load_source(study))


@app.command()
@answers_errors
def run(
    study: StudyFile = None,
    folder: Folder = None,
    max_updates: MaxUpdates = None,
    workers: Workers = None,
) -> None:
    """Make or continue the sweep; print the recommendation."""
    from calibrator.cli.run import run_study
    from calibrator.cli.source import load_source

    code = run_study(load_source(study, folder=folder, max_updates=max_updates, workers=workers))
    raise typer.Exit(code)


@app.command()
@answers_errors
def status(study: Study) -> None:
    """Tell where a study stands."""
    from calibrator.cli.status import print_status

    print_status(study)


@app.command(short_help="Make the report of a study anew.")
@answers_errors
def report(
    study: Study,
    form: Annotated[
        Literal["html", "markdown", "json", "terminal"] | None,
        typer.Option(
            "--format",
            help="html, markdown, json or terminal; to stdout, html to report.html.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="File to write instead; without --format its suffix tells.", show_default=False
        ),
    ] = None,
) -> None:
    """Make the report of a study anew: report.html, report.md and the short form that is printed."""
    from calibrator.cli.report import report_study

    report_study(study, form, out)


@app.command(short_help="Ask whether early stopping would have changed a verdict.")
@answers_errors
def replay(
    study: Study,
    as_json: Json = False,
) -> None:
    """Ask on finished curves whether early stopping would have changed a verdict."""
    from calibrator.cli.replay import print_replay

    print_replay(study, as_json=as_json)


@app.command(short_help="Fit the laws to finished runs.")
@answers_errors
def fit(
    sources: Sources,
    settings: LogFields = None,
    horizon: Horizon = None,
    risk: Risk = 0.05,
    rule: Annotated[
        Rule,
        typer.Option("--rule", help="Which limit of eta is shown."),
    ] = "stable",
    only: Only = None,
    as_json: Json = False,
) -> None:
    """Fit the laws to finished runs: RUNS.csv, a study folder, or logs of any framework."""
    from calibrator.cli.fit import Question, print_fit

    question = Question(horizon=horizon, risk=risk, rule=rule)
    raise typer.Exit(print_fit(sources, question, settings=settings, only=only or [], as_json=as_json))


@app.command(short_help="Recommend S and eta from finished runs.")
@answers_errors
def recommend(
    sources: Sources,
    settings: LogFields = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            "--horizon",
            metavar="T",
            help="Length of the intended run: 5000 (updates), 5e8tokens, 48h or 3epochs [the study's].",
            show_default=False,
        ),
    ] = None,
    risk: Annotated[
        float | None,
        typer.Option(
            "--risk", help="Accepted probability of a collapse [the study's, or 0.05].", show_default=False
        ),
    ] = None,
    rule: Annotated[
        Rule | None,
        typer.Option(
            "--rule",
            help="Which limit of eta is kept [the study's, or stable].",
            show_default=False,
        ),
    ] = None,
    schedule: Annotated[
        ScheduleName | None,
        typer.Option(
            "--schedule",
            help="Schedule of the intended run; S is converted [lockstep].",
            show_default=False,
        ),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option(
            "--max-lag",
            min=0,
            help="Largest lag in updates that the intended run may have.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        Objective | None,
        typer.Option(
            "--objective",
            help="Most progress per second, or per update (progress) [the study's].",
            show_default=False,
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option("--price-per-hour", help="What an hour of the machine costs.", show_default=False),
    ] = None,
    only: Only = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print only; a study's files stay.")] = False,
    as_json: Json = False,
) -> None:
    """Recommend from finished runs: a study for another question, or S and eta from tables and logs."""
    from calibrator.advice.horizon import parse_horizon
    from calibrator.cli.recommend import Wish, print_recommendation

    asked = None if horizon is None else parse_horizon(horizon)
    wish = Wish(asked, risk, rule, objective, schedule, max_lag, price_per_hour)
    code = print_recommendation(
        sources, wish, settings=settings, only=only or [], dry_run=dry_run, as_json=as_json
    )
    raise typer.Exit(code)


@app.command()
@answers_errors
def explain(
    sources: Sources,
    sync_interval: Annotated[
        int, typer.Option("--sync-interval", min=1, max=MOST_UPDATES, help="S of the point.")
    ],
    learning_rate: Annotated[float, typer.Option("--learning-rate", help="eta of the point.")],
    horizon: Horizon = None,
    settings: LogFields = None,
    only: Only = None,
    as_json: Json = False,
) -> None:
    """Tell why a pair (S, eta) is safe or not, and which runs say so."""
    from calibrator.cli.explain import Asked, print_explanation

    asked = Asked(sync_interval, learning_rate, horizon)
    code = print_explanation(sources, asked, settings=settings, only=only or [], as_json=as_json)
    raise typer.Exit(code)


@app.command(short_help="Set two studies side by side.")
@answers_errors
def compare(
    first: Study,
    second: Study,
    as_json: Json = False,
) -> None:
    """Set two studies side by side: settings, laws and recommendations, and what really differs."""
    from calibrator.cli.compare import print_comparison

    print_comparison(first, second, as_json=as_json)


@app.command(short_help="Set what the study predicts beside what happens.")
@answers_errors
def confirm(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="Study folder with a recommendation.")],
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=64, help="Runs of each setting.")] = 5,
    unsafe_factor: Annotated[
        float | None,
        typer.Option(
            "--unsafe-factor",
            help="Unsafe eta over the recommended one [the least that is sure to collapse].",
            show_default=False,
        ),
    ] = None,
    unsafe_learning_rate: Annotated[
        float | None,
        typer.Option("--unsafe-learning-rate", help="The unsafe eta itself.", show_default=False),
    ] = None,
    max_updates: MaxUpdates = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run the recommended numbers and an unsafe eta; set predicted beside observed (exit 3: not as predicted)."""
    from calibrator.cli.confirm import CheckWish
    from calibrator.cli.confirm import confirm as run_confirmation

    wish = CheckWish(seeds, unsafe_factor, unsafe_learning_rate, workers, max_updates)
    raise typer.Exit(run_confirmation(study, wish, as_json=as_json))


@app.command()
@answers_errors
def train(
    source: Annotated[
        Path,
        typer.Option(
            "--from", metavar="STUDY", help="Study folder with a recommendation, or a file like trainer.toml."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the run [STUDY/train/seed-N].", show_default=False),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(
            "--horizon", min=1, help="Updates, instead of the recommended horizon.", show_default=False
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", help="eta, instead of the recommended one.", show_default=False),
    ] = None,
    sync_interval: Annotated[
        int | None,
        typer.Option("--sync-interval", min=1, help="S, instead of the recommended one.", show_default=False),
    ] = None,
    group_size: Annotated[
        int | None,
        typer.Option("--group-size", min=2, help="G, instead of the recommended one.", show_default=False),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", help="epsilon, instead of the recommended one.", show_default=False),
    ] = None,
    schedule: Annotated[
        ScheduleName | None,
        typer.Option(
            "--schedule",
            help="overlap: generation and learning at the same time; S is converted.",
            show_default=False,
        ),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option(
            "--max-lag", min=0, help="Bound on the lag in updates, overlap only.", show_default=False
        ),
    ] = None,
    engine: Annotated[
        EngineName | None,
        typer.Option("--engine", help="What generates.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the run.")] = 0,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Do not end the run when it has certainly collapsed.")
    ] = False,
    processes: Annotated[
        int,
        typer.Option("--processes", min=1, help="Processes that share the learner's weights, one a GPU."),
    ] = 1,
) -> None:
    """Train with the recommended settings."""
    from calibrator.cli.train import Overrides, train_from

    changes = Overrides(
        updates=horizon,
        learning_rate=learning_rate,
        sync_interval=sync_interval,
        group_size=group_size,
        epsilon=epsilon,
        schedule=schedule,
        max_lag=max_lag,
        engine=engine,
    )
    raise typer.Exit(
        train_from(source, out=out, changes=changes, seed=seed, keep_going=keep_going, processes=processes)
    )


@app.command(short_help="Judge a log: whether and when the run collapsed.")
@answers_errors
def judge(
    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="Log of a run, or a folder of TensorBoard event files.")
    ],
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings", help="JSON file with the options by name; options win.", show_default=False
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option("--framework", help="What wrote the log [guessed, and said].", show_default=False),
    ] = None,
    updates_per_row: Annotated[
        int | None,
        typer.Option("--updates-per-row", help="Optimizer updates of one logged row.", show_default=False),
    ] = None,
    sync_interval: Annotated[
        int | None,
        typer.Option("--sync-interval", help="S: updates between two refreshes.", show_default=False),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option("--max-lag", help="Largest lag in updates [the log's, else S - 1].", show_default=False),
    ] = None,
    reward_column: Annotated[
        str | None, typer.Option("--reward-column", help="Column of the reward.", show_default=False)
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate", help="Rate at every update, instead of the log's.", show_default=False
        ),
    ] = None,
    reward_floor: Annotated[
        float | None,
        typer.Option("--reward-floor", help="Reward of a policy that always fails [0].", show_default=False),
    ] = None,
    full_marks: Annotated[
        float | None,
        typer.Option("--full-marks", help="Largest reward of a completion.", show_default=False),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option("--horizon", help="Planned updates; a shorter log was interrupted.", show_default=False),
    ] = None,
    append: Annotated[
        Path | None,
        typer.Option("--append", metavar="RUNS.csv", help="Add the run to this table.", show_default=False),
    ] = None,
    run_name: Annotated[
        str | None, typer.Option("--run", help="Name of the run [of its file].", show_default=False)
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option("--estimator", help="Estimator of the run [unknown].", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of the run [0].", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, as verdict.json.")] = False,
) -> None:
    """Judge the log of a run of any framework: whether and when it collapsed."""
    from calibrator.cli.judge import judge_and_print

    options = {
        "framework": framework,
        "updates_per_row": updates_per_row,
        "sync_interval": sync_interval,
        "max_lag": max_lag,
        "reward_column": reward_column,
        "learning_rate": learning_rate,
        "reward_floor": reward_floor,
        "full_marks": full_marks,
        "horizon": horizon,
        "run": run_name,
        "estimator": estimator,
        "seed": seed,
    }
    judge_and_print(log, settings=settings, options=options, append=append, as_json=as_json)


def main() -> None:
    """Run the command line."""
    app()
