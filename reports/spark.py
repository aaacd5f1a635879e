"""A run's reward curve as a small inline SVG."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from reports.cards import Card
from reports.cards.blocks import RunItem, Runs

WIDTH, HEIGHT, MARGIN = 160, 44, 3


@dataclass(frozen=True)
class Scale:
    """Limits of the reward that all curves of a page share, so that they can be compared."""

    low: float
    high: float

    @classmethod
    def of(cls, cards: tuple[Card, ...]) -> Scale:
        rewards = [
            value
            for card in cards
            for block in card.blocks
            if isinstance(block, Runs)
            for group in block.groups
            for item in group.items
            for _, value in item.curve
        ]
        return cls(min(rewards, default=0.0), max(rewards, default=1.0))

    def height(self, value: float) -> float:
        """Distance from the top."""
        span = (self.high - self.low) or 1.0
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (value - self.low) / span


def spark(item: RunItem, scale: Scale) -> Markup:
    """Reward against L, from 0 to the run's own last L, with the onset shaded. Colours are the page's."""
    head = Markup('<svg class="spark" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        WIDTH, HEIGHT, f"Trial {item.trial}: {item.curve_text}"
    )
    if not item.curve:
        return head + Markup('<text x="{}" y="{}">no curve</text></svg>').format(MARGIN, HEIGHT / 2 + 4)
    last = item.curve[-1][0] or 1.0
    stretch = (WIDTH - 2 * MARGIN) / last
    places = [(MARGIN + stretch * total, scale.height(value)) for total, value in item.curve]
    line = " ".join(f"{x:.0f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return (
        head
        + _onset(item, stretch)
        + Markup('<polyline points="{}"/><circle cx="{:.0f}" cy="{:.1f}" r="2.2"/></svg>').format(line, x, y)
    )


def _onset(item: RunItem, stretch: float) -> Markup:
    if item.onset is None:
        return Markup("")
    left, right = (min(MARGIN + stretch * total, WIDTH) for total in item.onset)
    return Markup('<rect x="{:.1f}" y="0" width="{:.1f}" height="{}"/>').format(
        left, max(right - left, 1.5), HEIGHT
    )
