"""The last slots of a schedule as squares: the newest at the right, what is normal quiet, what is not full colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from watchbill.dashboard.charts.drawing import PATTERNS, Value, draw, name_shape, picture, swatch

SQUARES = 30
_STEP = 12
_KNOCKS = {"dead": "M{0} 6l4 4m0-4l-4 4", "overdue": "M{1} 5v3.6M{1} 10.6v.1"}
_STATE_OF_OUTCOME = {
    "succeeded": "succeeded",
    "retried": "failed",
    "dead": "dead",
    "overdue": "paused",
    "running": "running",
    "waiting": "queued",
    "skipped": "canceled",
    "missed": "canceled",
    "canceled": "canceled",
}
_WORDS = {"retried": "after retries", "clock": "clock changed"}


@dataclass(frozen=True)
class Square:
    """`outcome` is a key of the legend; `is_clock_change` says that the clocks changed since the slot before."""

    outcome: str
    title: str
    is_clock_change: bool = False


def slot_squares(label: str, squares: Sequence[Square], *, most: int = SQUARES) -> Markup:
    """`squares` from the oldest to the newest. A phone shows those at the right."""
    shown = squares[-most:]
    shapes = [
        draw("rect", cls="track", x=-_STEP * (most - index) + 5.5, y=6.5, width=3, height=3, rx=1.5)
        for index in range(most - len(shown))
    ]
    for index, square in enumerate(shown):
        shapes.append(_draw_square(square, 2 - _STEP * (len(shown) - index), 3))
    inner = draw("svg", *(shapes or [Markup(" ")]), x="100%", overflow="visible")
    return picture(label, inner, cls="slots", height=16)


def explain_squares(outcomes: Sequence[str]) -> Markup:
    """The legend. `clock` stands for a change of the clocks."""
    return Markup("").join(
        swatch(
            _WORDS.get(outcome, outcome),
            _draw_square(Square("succeeded" if outcome == "clock" else outcome, "", outcome == "clock"), 1, 1),
        )
        for outcome in outcomes
    )


def _draw_square(square: Square, x: int, y: int) -> Markup:
    state = _STATE_OF_OUTCOME[square.outcome]
    title = [name_shape(square.title)] if square.title else []
    place: dict[str, Value] = {"x": x, "y": y, "width": 10, "height": 10, "rx": 2}
    hollow: dict[str, Value] = {
        "cls": "open",
        "x": x + 0.5,
        "y": y + 0.5,
        "width": 9,
        "height": 9,
        "rx": 2,
    }
    if square.outcome == "succeeded":
        shapes = [draw("rect", *title, cls="calm", **{**place, "height": 8 if square.is_clock_change else 10})]
    elif square.outcome == "retried":
        shapes = [draw("rect", *title, fill=PATTERNS["failed"], **place)]
    elif square.outcome in _KNOCKS:
        knock = draw("path", cls="knock", d=_KNOCKS[square.outcome].format(x + 3, x + 5))
        shift = {"transform": f"translate(0 {y - 3})"} if y != 3 else {}
        shapes = [draw("rect", *title, cls="solid", **place), draw("g", knock, **shift)]
    elif square.outcome == "running":
        arrow = draw("path", cls="solid", d=f"M{x + 3.5:g} {y + 2.5:g}v5l4-2.5z")
        shapes = [draw("rect", *title, **hollow), arrow]
    else:
        dash = {"missed": "2 1.5"}.get(square.outcome)
        shapes = [draw("rect", *title, stroke_dasharray=dash, **hollow)]
    if square.is_clock_change:
        shapes.append(draw("path", cls="solid", d=f"M{x + 2} {y + 12}h6l-3-2.6z"))
    return draw("g", *shapes, cls=state)
