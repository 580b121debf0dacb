"""The steps of a job as lanes on one scale of time: bars for what ran, pale bars for what waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from markupsafe import Markup, escape

from watchbill.dashboard.charts.drawing import Value, data_table, draw, fill, name_shape, picture, write
from watchbill.dashboard.charts.scales import label_instant, seconds, write_instant

_LANE, _BAR = 28, 14
_LEAST_SHARE = 0.006  # of the width, so that a short step is seen
_LABEL_SHARE = 0.8  # a bar that ends later has no room for its length on its right
_MOST_STEPS = 100


@dataclass(frozen=True)
class StepLane:
    """`end` is None while it runs or waits; then `until` is when that ends at the latest, if it is known."""

    name: str
    state: str  # of the picture: succeeded, failed, dead, queued, paused, running
    icon: str
    begin: datetime
    end: datetime | None
    waits: bool
    note: str
    until: datetime | None = None


def step_lanes(title: str, lanes: Sequence[StepLane], now: datetime, zone: tzinfo = UTC) -> Markup:
    """The first lane is on top. Only the first hundred are drawn."""
    shown = lanes[:_MOST_STEPS]
    begin = min((lane.begin for lane in shown), default=now)
    end = max([lane.end or now for lane in shown], default=now)
    span = max(end - begin, timedelta(milliseconds=1))
    labels = [draw("li", _icon(lane), draw("span", escape(lane.name))) for lane in shown]
    shapes = [
        draw("line", cls="grid", x1=0, x2="100%", y1=_LANE * place, y2=_LANE * place) for place in range(len(shown) + 1)
    ]
    for place, lane in enumerate(shown):
        shapes += _draw_lane(lane, (lane.begin - begin) / span, ((lane.end or now) - begin) / span, place)
    bottom = _LANE * len(shown)
    for share, cls in ((0.0, None), (1.0, "end")):
        words = label_instant(begin + span * share, zone, span)
        shapes.append(write(words, cls=cls, x=f"{100 * share:.4g}%", y=bottom + 16))
    plot = picture(f"{title}: {len(shown)} steps", *shapes, cls="plot", width="100%", height=bottom + 24)
    rows = [
        (
            lane.name,
            lane.note,
            write_instant(lane.begin, zone, span),
            seconds(((lane.end or now) - lane.begin).total_seconds()),
        )
        for lane in shown
    ]
    table = data_table(title, ["Step", "State", "Began", "Took"], rows)
    box = draw("div", draw("div", draw("ol", *labels, cls="labs"), plot, cls="gantt"), cls="pan", tabindex=0,
               role="region", aria_label=title)  # fmt: skip
    return draw("div", box, table)


def _icon(lane: StepLane) -> Markup:
    return draw("svg", draw("use", href=f"#i-{lane.icon}"), cls=f"i {lane.state}", aria_hidden="true")


def _draw_lane(lane: StepLane, begin: float, end: float, place: int) -> list[Markup]:
    begin = min(begin, 1 - _LEAST_SHARE)
    width = max(end - begin, _LEAST_SHARE)
    how: dict[str, Value] = {"cls": "pale"} if lane.waits else fill(lane.state)
    bar = draw("rect", name_shape(f"{lane.name}, {lane.note}"), **how, x=f"{100 * begin:.4g}%", y=_LANE * place + 7,
               width=f"{100 * width:.4g}%", height=_BAR, rx=3)  # fmt: skip
    is_late = begin + width > _LABEL_SHARE and begin >= 1 - _LABEL_SHARE
    is_wide = begin + width > _LABEL_SHARE and not is_late
    side: dict[str, Value] = {"cls": "ink halo end", "dx": -8} if is_late else {"cls": "ink halo", "dx": 8}
    x = f"{100 * (begin if is_late or is_wide else begin + width):.4g}%"  # of a wide bar the word stands in it
    return [draw("g", bar, cls=lane.state), write(lane.note, **side, x=x, y=_LANE * place + 18)]
