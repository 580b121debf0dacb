"""The timeline of the nodes: a lane for each, with bars for long runs and a strip for the short ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from markupsafe import Markup, escape

from watchbill.dashboard.charts.drawing import Value, data_table, draw, fill, name_shape, picture, write
from watchbill.dashboard.charts.inline import choose_heat
from watchbill.dashboard.charts.scales import label_instant, seconds, write_instant

MOST_SHAPES = 2000
_BAR_SHARE = 0.01  # a run that is shorter than this part of the window is in the strip only
_ROW, _BAR, _STRIP = 12, 9, 12
_MOST_ROWS = 8
_CELLS = 90
_GRID_PARTS = 3


@dataclass(frozen=True)
class Run:
    """`end` is None while it runs. `outcome`: running, succeeded, failed, dead, canceled."""

    begin: datetime
    end: datetime | None
    outcome: str
    title: str


@dataclass(frozen=True)
class Lane:
    """One node. `at_once` are the jobs that ran at once, over the window, from samples of any number; empty to count
    them from `runs`."""

    name: str
    state: str
    icon: str
    note: str
    runs: Sequence[Run]
    drains_since: datetime | None = None
    lost_at: datetime | None = None
    lost_text: str = ""
    at_once: Sequence[float | None] = ()


@dataclass(frozen=True)
class Window:
    since: datetime
    until: datetime
    zone: tzinfo = UTC

    @property
    def span(self) -> timedelta:
        return self.until - self.since

    def share(self, instant: datetime) -> float:
        return min(max((instant - self.since) / self.span, 0.0), 1.0)


def node_timeline(
    title: str, lanes: Sequence[Lane], window: Window, *, read_since: datetime | None = None
) -> Markup:  # fmt: skip
    """A lane per node. Long runs beyond `MOST_SHAPES` are left to the strips, the shortest first. Nothing is known of
    runs that ended before `read_since`, so the strips begin there."""
    kept = _choose_bars(lanes, window)
    parts = [Markup("<span></span>"), _write_times(window)]
    for lane, runs in zip(lanes, kept, strict=True):
        parts += [_label(lane), _draw_lane(lane, runs, window, read_since)]
    rows = [
        (
            lane.name,
            run.title,
            run.outcome,
            write_instant(run.begin, window.zone, window.span),
            seconds(((run.end or window.until) - run.begin).total_seconds()),
        )
        for lane, runs in zip(lanes, kept, strict=True)
        for run in runs[-100:]
    ]
    table = data_table(title, ["Node", "Type", "Outcome", "Began", "Ran"], rows)
    box = draw("div", draw("div", *parts, cls="lanes"), cls="pan new", tabindex=0, role="region", aria_label=title)
    return draw("div", box, table)


def count_short_runs(lanes: Sequence[Lane], window: Window) -> int:
    """How many runs the strips alone show."""
    return sum(len(lane.runs) for lane in lanes) - sum(map(len, _choose_bars(lanes, window)))


def _choose_bars(lanes: Sequence[Lane], window: Window) -> list[list[Run]]:
    def length(run: Run) -> timedelta:
        return min(run.end or window.until, window.until) - max(run.begin, window.since)

    shapes_left = MOST_SHAPES - len(lanes) * (_CELLS + 10)
    long = [run for lane in lanes for run in lane.runs if length(run) >= window.span * _BAR_SHARE]
    shortest = sorted((length(run) for run in long), reverse=True)[:shapes_left][-1] if long else timedelta(0)
    bound = max(window.span * _BAR_SHARE, shortest)
    return [sorted((run for run in lane.runs if length(run) >= bound), key=lambda run: run.begin) for lane in lanes]


def _write_times(window: Window) -> Markup:
    words = []
    for part in range(_GRID_PARTS + 1):
        instant = window.since + window.span * part / _GRID_PARTS
        cls = {0: None, _GRID_PARTS: "end"}.get(part, "mid")
        x = f"{100 * part / _GRID_PARTS:.4g}%"
        words.append(write(label_instant(instant, window.zone, window.span), cls=cls, x=x, y=12))
    return draw("svg", *words, cls="plot", width="100%", height=16, aria_hidden="true")


def _label(lane: Lane) -> Markup:
    icon = draw("svg", draw("use", href=f"#i-{lane.icon}"), cls="i", aria_hidden="true")
    name = draw("span", icon, escape(lane.name), cls=f"st {lane.state}")
    return draw("div", name, draw("span", escape(lane.note), cls="muted small"), cls="lab")


def _draw_lane(lane: Lane, runs: Sequence[Run], window: Window, read_since: datetime | None) -> Markup:
    rows = _place_in_rows(runs)
    shown = [(row, run) for row, run in zip(rows, runs, strict=True) if row < _MOST_ROWS]
    used_rows = max((row for row, _ in shown), default=-1) + 1
    strip_at = 4 + _ROW * max(used_rows, 1) + (4 if used_rows else 0)
    height = strip_at + _STRIP + 2
    shapes = [
        draw("line", cls="grid", x1=x, x2=x, y1=0, y2=height)
        for x in (f"{100 * part / _GRID_PARTS:.4g}%" for part in range(_GRID_PARTS + 1))
    ]
    if lane.drains_since:
        drained = 100 * window.share(lane.drains_since)
        shapes.append(
            draw(
                "rect",
                cls="track",
                x=f"{drained:.4g}%",
                width=f"{100 - drained:.4g}%",
                height=height,
                rx=2,
                opacity=".6",
            )
        )
    for row, run in shown:
        begin, end = window.share(run.begin), window.share(run.end or window.until)
        place: dict[str, Value] = {
            "x": f"{100 * begin:.4g}%",
            "y": 4 + _ROW * row,
            "width": f"{100 * max(end - begin, 0.002):.4g}%",
            "height": _BAR,
            "rx": 2,
        }
        said = f"{run.title}, {'runs' if run.end is None else run.outcome}"
        bar = draw("rect", name_shape(said), **fill(run.outcome, quiet=run.outcome != "running"), **place)
        shapes.append(draw("g", bar, cls=run.outcome))
    shapes += _draw_strip(lane, window, strip_at, read_since)
    if lane.drains_since:
        x = f"{100 * window.share(lane.drains_since):.4g}"
        shapes.append(draw("line", cls="mark", x1=f"{x}%", x2=f"{x}%", y1=0, y2=height))
    if lane.lost_at:
        shapes += _draw_loss(lane, window, height)
    said = f"{lane.name}: {len(runs)} long runs; running jobs as a strip"
    return picture(said, *shapes, cls="plot", width="100%", height=height)


def _place_in_rows(runs: Sequence[Run]) -> list[int]:
    """The first row in which the run before has ended. `runs` are in the order of their beginnings."""
    ends: list[datetime | None] = []
    found = []
    for run in runs:
        row = next((row for row, end in enumerate(ends) if end is not None and end <= run.begin), len(ends))
        if row == len(ends):
            ends.append(run.end)
        else:
            ends[row] = run.end
        found.append(row)
    return found


def _draw_strip(lane: Lane, window: Window, y: int, read_since: datetime | None) -> list[Markup]:
    counted = list(lane.at_once) or _count_at_once(lane.runs, window)
    if read_since is not None:
        unknown = math.ceil(window.share(read_since) * len(counted))
        counted[:unknown] = [None] * unknown
    most = max((value for value in counted if value is not None), default=0.0)
    width = 100 / len(counted)
    end = window.share(lane.lost_at) if lane.lost_at else 1.0
    counted = counted[: math.ceil(end * len(counted))]
    return [
        draw(
            "rect",
            cls=f"h{choose_heat(value, most)}",
            x=f"{width * index:.4g}%",
            y=y,
            width=f"{width * 0.87:.4g}%",
            height=_STRIP,
        )
        for index, value in enumerate(counted)
        if value is not None
    ]


def _count_at_once(runs: Sequence[Run], window: Window) -> list[float | None]:
    """How many jobs ran at once, on average, in each cell."""
    cell = window.span / _CELLS
    sums = [0.0] * _CELLS
    for run in runs:
        begin, end = max(run.begin, window.since), min(run.end or window.until, window.until)
        for index in range(int((begin - window.since) / cell), min(int((end - window.since) / cell), _CELLS - 1) + 1):
            edge = window.since + cell * index
            sums[index] += max((min(end, edge + cell) - max(begin, edge)) / cell, 0.0)
    return list(sums)


def _draw_loss(lane: Lane, window: Window, height: int) -> list[Markup]:
    share = window.share(lane.lost_at or window.until)
    x = f"{100 * share:.4g}%"
    cross = draw(
        "svg",
        draw("circle", cls="solid", r=7),
        draw("path", cls="knock", d="M-2.6-2.6l5.2 5.2m0-5.2l-5.2 5.2"),
        x=x,
        y=height / 2,
        cls="dead",
        overflow="visible",
    )
    side: dict[str, Value] = {"cls": "ink end", "dx": -14} if share > 0.6 else {"cls": "ink", "dx": 14}
    word = write(lane.lost_text, **side, x=x, y=height / 2 + 4)
    edge = draw("line", cls="ln dead", x1=x, x2=x, y1=0, y2=height, stroke="currentColor")
    return [edge, cross, *([word] if lane.lost_text else [])]
