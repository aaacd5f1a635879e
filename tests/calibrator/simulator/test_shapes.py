"""Every odd shape is a function of its seed and a curve that holds together."""

from __future__ import annotations

import numpy as np
import pytest

from calibrator.simulator.shapes import SHAPES, odd


@pytest.mark.parametrize("name", SHAPES)
def test_shape_is_deterministic_and_well_formed(name: str) -> None:
    one, two = odd(name, 1), odd(name, 1)
    np.testing.assert_array_equal(one.curve.rewards.value, two.curve.rewards.value)
    assert one.settings == two.settings
    assert one.curve.learning_rate.shape == (one.curve.updates,)
    assert all(values.shape == (one.curve.updates,) for values in one.curve.witnesses.values())
    assert one.onset is None or 0 <= one.onset <= one.curve.updates
    assert one.onset is None or any(verdict.is_event for verdict in one.allowed)
