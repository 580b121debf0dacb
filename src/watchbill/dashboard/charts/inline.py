"""Small pictures in tiles, tables and lists: sparklines, heat rows, meters, shares. The number stands beside them, so
their label is all that a reader who does not see them needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from watchbill.dashboard.charts.drawing import draw, fill, line, name_shape, picture, split_at_gaps

HEAT_STEPS = 7
HEAT_CELLS = 60


def sparkline(
    label: str, values: Sequence[float | None], state: str = "queued", *, width: int = 160, height: int = 32
) -> Markup:
    """The trend of one figure, from 0 to its highest value."""
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    last = max(len(values) - 1, 1)
    xs = [width * index / last for index in range(len(values))]
    shapes = []
    for run in split_at_gaps(xs, values):
        points = [(x, height - 1 - (height - 2) * value / most) for x, value in run]
        outline = [(points[0][0], float(height)), *points, (points[-1][0], float(height))]
        shapes += [draw("path", cls="ar", d=line(outline) + "Z"), draw("path", cls="ln", d=line(points))]
    return picture(label, *shapes, cls=f"spark {state}", viewBox=f"0 0 {width} {height}", preserveAspectRatio="none")


def spark_bars(
    label: str, values: Sequence[float], state: str = "failed", *, width: int = 96, height: int = 20
) -> Markup:
    """Counts per period, for what is rare: a foot where there is none."""
    most = max(values, default=0) or 1
    step = width / max(len(values), 1)
    shapes = []
    for index, value in enumerate(values):
        tall = max((height - 1) * value / most, 2.0) if value else 0.8
        cls = "calm" if value else "track"
        shapes.append(draw("rect", cls=cls, x=index * step, y=height - tall, width=step * 0.63, height=tall))
    return picture(label, *shapes, cls=f"spark {state}", viewBox=f"0 0 {width} {height}", preserveAspectRatio="none")


def heat_row(label: str, values: Sequence[float | None], *, most: float | None = None) -> Markup:
    """A cell per minute, in seven steps between none and `most`, such as the most in seven days."""
    shown = _shrink(values, HEAT_CELLS)
    highest = most or max((value for value in shown if value is not None), default=0.0)
    width = 5 * len(shown)
    cells = [
        draw("rect", cls=f"h{choose_heat(value, highest)}", x=5 * index, width=4, height=14, rx=1)
        for index, value in enumerate(shown)
        if value is not None
    ]
    return picture(
        label,
        *cells,
        cls="heat",
        width=width or 1,
        height=14,
        viewBox=f"0 0 {width or 1} 14",
        preserveAspectRatio="none",
    )


def choose_heat(value: float, most: float) -> int:
    """The step of a value: 1 for none, 7 for the most. Logarithmic, so that a usual value is in the middle."""
    if value <= 0 or most <= 0:
        return 1
    share = math.log1p(min(value, most)) / math.log1p(most)
    return min(HEAT_STEPS, 2 + int(share * (HEAT_STEPS - 1.01)))


def meter(part: float, whole: float | None, state: str = "running", *, width: int = 80, label: str = "") -> Markup:
    """How much of the whole is used. Without a whole, an empty track."""
    share = min(max(part / whole, 0.0), 1.0) if whole else 0.0
    said = label or (f"{part:,.0f} of {whole:,.0f}" if whole else f"{part:,.0f}")
    track = draw("rect", cls="track", width=width, height=6, rx=3)
    used = [draw("rect", cls="solid", width=max(width * share, 3.0), height=6, rx=3)] if share else []
    return picture(said, track, *used, cls=f"meter {state}", width=width, height=6)


def share_bar(label: str, shares: Sequence[tuple[str, str, float]]) -> Markup:
    """One bar cut into parts: name, state and value of each."""
    whole = sum(value for _, _, value in shares)
    shapes, x = [], 0.0
    for name, state, value in shares:
        width = 100 * value / whole if whole else 0.0
        if width >= 0.05:
            part = draw(
                "rect",
                name_shape(f"{name}, {width:.3g} %"),
                **fill(state),
                x=f"{x:.4g}%",
                width=f"{max(width - 0.2, 0.3):.4g}%",
                height=16,
                rx=2,
            )
            shapes.append(draw("g", part, cls=state))
        x += width
    return picture(label, *(shapes or [Markup(" ")]), cls="plot", width="100%", height=16)


def _shrink(values: Sequence[float | None], cells: int) -> list[float | None]:
    """At most so many values, each the highest of those that it stands for."""
    if len(values) <= cells:
        return list(values)
    found: list[float | None] = []
    for index in range(cells):
        part = values[index * len(values) // cells : (index + 1) * len(values) // cells]
        found.append(max((value for value in part if value is not None), default=None))
    return found
