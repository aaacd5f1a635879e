"""Entry of a trial's process, importable without torch: only the process itself loads it."""


def trial_process(folder: str) -> None:
    """Run the trial in `folder`, see `calibrator.sweep.trial`."""
    from calibrator.sweep import trial

    trial.trial_process(folder)
