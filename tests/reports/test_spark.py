"""The small curve of a run."""

import xml.etree.ElementTree as ET

from reports.cards.blocks import RunItem
from reports.spark import HEIGHT, WIDTH, Scale, spark

SCALE = Scale(0.0, 1.0)


def item(**changes: object) -> RunItem:
    content: dict[str, object] = {
        "trial": 3, "verdict": "collapsed", "facts": (), "details": (), "evidence": (),
        "curve": ((0.0, 0.4), (0.1, 0.9), (0.2, 0.0)), "onset": (0.1, 0.15),
    }  # fmt: skip
    return RunItem(**(content | changes))  # type: ignore[arg-type]


def test_the_curve_ends_at_the_right_and_a_better_reward_is_higher() -> None:
    root = ET.fromstring(spark(item(), SCALE))  # noqa: S314
    line = root.find("polyline")
    assert line is not None
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert len(points) == 3
    assert points[-1][0] > 0.9 * WIDTH
    assert points[1][1] < points[0][1] < points[2][1] < HEIGHT
    shade = root.find("rect")
    assert shade is not None
    assert points[1][0] - 1 <= float(shade.attrib["x"]) <= points[1][0] + 1


def test_said_in_words() -> None:
    root = ET.fromstring(spark(item(), SCALE))  # noqa: S314
    assert root.get("role") == "img"
    said = "Trial 3: reward from 0.4 to 0 over L = 0.2, fell between L = 0.1 and 0.15"
    assert root.get("aria-label") == said


def test_without_a_log_there_is_no_line() -> None:
    root = ET.fromstring(spark(item(curve=(), onset=None), SCALE))  # noqa: S314
    assert root.find("polyline") is None
    assert "no curve" in "".join(root.itertext())


def test_all_runs_share_the_scale() -> None:
    assert Scale(0.0, 2.0).height(1.0) > SCALE.height(1.0)
    assert Scale(0.5, 0.5).height(0.5) > 0  # a study in which nothing moved
