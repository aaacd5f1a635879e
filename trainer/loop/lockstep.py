"""The deterministic schedule: refresh the behaviour weights every S updates, draw the whole cycle, learn from it."""

from __future__ import annotations

from trainer.engines import make_engine
from trainer.errors import NonFiniteError
from trainer.loop.group_probe import probed_update
from trainer.loop.mismatch import fresh_behaviour
from trainer.loop.sampling import draw_rollouts
from trainer.loop.session import FINISHED, Session


def lockstep(session: Session) -> tuple[int, str]:
    """Cycles of S updates from the last checkpoint on. Returns the updates made and how the run ended."""
    config = session.config
    engine = make_engine(session.policy, config)
    try:
        update, probed = session.start, probed_update(config)
        while update < config.updates:
            session.checkpoint_when_due(update)
            with session.recorder.clock.phase("synchronize"):
                engine.update_weights(session.weights, update)
            try:
                cycle = draw_rollouts(
                    engine,
                    session.task,
                    session.policy,
                    config,
                    first=update,
                    updates=min(config.sync_interval, config.updates - update),
                    clock=session.recorder.clock,
                )
            except NonFiniteError:
                return update + 1, session.undrawable(update, version=engine.version)
            cycle, measured = fresh_behaviour(
                session.policy, cycle, config, first=update, clock=session.recorder.clock
            )
            for start in range(0, len(cycle), session.batch_size):
                if update == probed:
                    session.probe_groups(engine, update)
                ended = session.update(update, cycle.rows(start, start + session.batch_size), measured)
                measured = {}
                update += 1
                if ended is not None:
                    return update, ended
        return update, FINISHED
    finally:
        engine.close()
