"""Values over time: stacked areas, percentile lines, and bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from markupsafe import Markup, escape

from watchbill.dashboard.charts.drawing import (
    PATTERNS,
    Value,
    data_table,
    draw,
    fill,
    line,
    name_shape,
    picture,
    split_at_gaps,
    swatch,
    swatch_of_state,
    write,
)
from watchbill.dashboard.charts.scales import (
    Scale,
    choose_linear,
    choose_log,
    choose_seconds,
    count,
    label_count,
    label_decade,
    label_instant,
    seconds,
    spread,
    write_instant,
)

_TOP = 14.0  # pixels above the plot, for the words of marks
_BELOW = 20.0  # below it, for the times
_WIDE = 700.0  # of the inner layer, which is stretched
_LABEL_DISTANCE = 14.0
_PERCENTILES = {"p50": "ln thin", "p95": "ln", "p99": "ln dash"}


@dataclass(frozen=True)
class Layer:
    """One state of a stacked area. None where there is no figure."""

    label: str
    state: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Mark:
    """Something that happened, such as a deploy."""

    instant: datetime
    text: str


@dataclass(frozen=True)
class Panel:
    """One of several plots with the same scale: `lines` are p50, p95 and p99 in seconds."""

    caption: str
    lines: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Bar:
    """`value` is None for a bar that is not known yet: it is drawn pale, up to the top."""

    label: str
    value: float | None
    state: str
    title: str


@dataclass(frozen=True)
class Time:
    """The horizontal axis: the instants of the values, and the zone of the words below them."""

    instants: Sequence[datetime]
    zone: tzinfo = UTC

    @property
    def span(self) -> timedelta:
        return self.instants[-1] - self.instants[0] if self.instants else timedelta(0)

    def places(self, width: float) -> list[float]:
        return [width * self.share(instant) for instant in self.instants]

    def share(self, instant: datetime) -> float:
        return (instant - self.instants[0]) / self.span if self.span else 0.0

    def names(self) -> list[str]:
        return [write_instant(instant, self.zone, self.span) for instant in self.instants]


def stacked_area(
    title: str,
    time: Time,
    layers: Sequence[Layer],
    *,
    description: str = "",
    marks: Sequence[Mark] = (),
    height: int = 188,
) -> Markup:
    """How many jobs ended in each state. The first layer is the lowest."""
    stacks = _stack(layers, len(time.instants))
    most = max((value for value in stacks[-1] if value is not None), default=0.0) if stacks else 0.0
    scale = choose_linear(most, bottom=height - _BELOW, top=_TOP)
    xs = time.places(_WIDE)
    areas, lines = [], []
    below: list[float | None] = [0.0 if value is not None else None for value in (stacks[0] if stacks else [])]
    for layer, stack in zip(layers, stacks, strict=True):
        area = _outline(xs, below, stack, scale)
        pattern = PATTERNS.get(layer.state)
        areas.append(draw("path", cls=None if pattern else f"band {layer.state}", fill=pattern, d=area))
        strokes = [draw("path", cls="ln thin", d=_trace(run, scale)) for run in split_at_gaps(xs, stack)]
        lines.append(draw("g", *strokes, cls=layer.state) if strokes else Markup(""))
        below = stack
    said = f"{title}. Stacked: {', '.join(layer.label for layer in layers)}. {description}".strip()
    plot = _plot(said, time, scale, [*areas, *reversed(lines)] if most > 0 else [], marks, height)
    rows = [
        (name, *("-" if value is None else count(value) for value in values))
        for name, values in _newest_first(time, [layer.values for layer in layers])
    ]
    table = data_table(title, ["When", *(layer.label for layer in layers)], rows)
    return _frame(_axis(scale, label_count, height), plot, table)


def explain_layers(layers: Sequence[Layer]) -> Markup:
    """The legend of a stacked area."""
    return Markup("").join(
        swatch_of_state(layer.label, layer.state)
        if layer.state in PATTERNS
        else swatch(layer.label, draw("rect", cls=f"band {layer.state}", width=12, height=12, rx=2))
        for layer in layers
    )


def percentile_lines(
    title: str, time: Time, panels: Sequence[Panel], *, marks: Sequence[Mark] = (), height: int = 168
) -> Markup:
    """Wait and run time side by side, in seconds, on one logarithmic scale."""
    every = [value for panel in panels for values in panel.lines.values() for value in values if value is not None]
    scale = choose_log(every, bottom=height - _BELOW, top=_TOP)
    figures = Markup("").join(_draw_panel(title, panel, time, scale, marks, height) for panel in panels)
    columns = [f"{panel.caption.partition(':')[0]} {name}" for panel in panels for name in panel.lines]
    rows = [
        (name, *("-" if value is None else seconds(value) for value in values))
        for name, values in _newest_first(time, [values for panel in panels for values in panel.lines.values()])
    ]
    facets = draw("div", figures, cls="facets")
    return draw("div", facets, data_table(title, ["When", *columns], rows), data_chart=len(time.instants))


def bars(
    title: str,
    given: Sequence[Bar],
    *,
    unit: str = "seconds",
    limit: tuple[float, str] | None = None,
    height: int = 136,
) -> Markup:
    """A bar per thing, such as the run times of the last slots. `limit` is a line with a word, such as a deadline."""
    most = max([bar.value for bar in given if bar.value is not None] + ([limit[0]] if limit else []), default=0.0)
    choose, word = (choose_seconds, seconds) if unit == "seconds" else (choose_linear, label_count)
    scale = choose(most, bottom=height - _BELOW, top=_TOP, lines=2)
    step = 100 / max(len(given), 1)
    shapes = []
    for index, bar in enumerate(given):
        top = scale.top if bar.value is None else min(scale.place(bar.value), scale.bottom - 1)
        how: dict[str, Value] = {"cls": "pale"} if bar.value is None else fill(bar.state)
        place = {"x": f"{step * index:.4g}%", "width": f"{step * 0.84:.4g}%"}
        tall = scale.bottom - top
        rectangle = draw("rect", name_shape(bar.title), **how, **place, y=top, height=tall, rx=1)
        shapes.append(draw("g", rectangle, cls=bar.state))
    ends = [write(given[0].label, x="0%", y=height - 4)] if given else []
    ends += [write(given[-1].label, cls="end", x="100%", y=height - 4)] if len(given) > 1 else []
    line_at = scale.place(limit[0]) if limit else 0.0
    limits = (
        [
            draw("line", cls="mark", x1="0", x2="100%", y1=line_at, y2=line_at),
            write(limit[1], cls="ink", x=0, y=line_at - 4),
        ]
        if limit
        else []
    )
    plot = picture(title, *_grid(scale), *shapes, _base(scale), *ends, *limits, cls="plot", width="100%", height=height)
    rows = [(bar.label, bar.title) for bar in reversed(given)]
    table = data_table(title, ["When", "What"], rows)
    return _frame(_axis(scale, seconds if unit == "seconds" else word, height), plot, table)


def _draw_panel(title: str, panel: Panel, time: Time, scale: Scale, marks: Sequence[Mark], height: int) -> Markup:
    xs = time.places(_WIDE)
    paths, ends = [], []
    for name, values in panel.lines.items():
        runs = split_at_gaps(xs, values)
        paths += [draw("path", cls=_PERCENTILES.get(name, "ln"), d=_trace(run, scale)) for run in runs]
        if runs:
            ends.append((name, scale.place(runs[-1][-1][1])))
    said = f"{title}, {panel.caption}. {', '.join(panel.lines)}, logarithmic"
    plot = _plot(said, time, scale, paths, marks, height, few=True)
    places = spread([place for _, place in ends], _LABEL_DISTANCE)
    names = [
        write(name, cls="bold" if name == "p95" else "ink", x=0, y=place + 4)
        for (name, _), place in zip(ends, places, strict=True)
    ]
    labels = draw("svg", *names, width=30, height=height, aria_hidden="true")
    chart = draw("div", _axis(scale, label_decade, height), plot, labels, cls="chart")
    return draw("figure", draw("figcaption", escape(panel.caption), cls="small muted"), chart)


def _stack(layers: Sequence[Layer], points: int) -> list[list[float | None]]:
    stacks: list[list[float | None]] = []
    below: list[float | None] = [0.0] * points
    for layer in layers:
        below = [
            None if under is None or value is None else under + value
            for under, value in zip(below, layer.values, strict=True)
        ]
        stacks.append(below)
    return stacks


def _outline(xs: Sequence[float], lower: Sequence[float | None], upper: Sequence[float | None], scale: Scale) -> str:
    both = [None if low is None or high is None else (low, high) for low, high in zip(lower, upper, strict=True)]
    outlines: list[str] = []
    run: list[tuple[float, float, float]] = []
    for x, pair in [*zip(xs, both, strict=True), (0.0, None)]:
        if pair is not None:
            run.append((x, *pair))
        elif run:
            upward = [(x, scale.place(high) - scale.top) for x, _, high in run]
            back = [(x, scale.place(low) - scale.top) for x, low, _ in reversed(run)]
            outlines.append(line([*upward, *back]) + "Z")
            run = []
    return "".join(outlines)


def _trace(run: Sequence[tuple[float, float]], scale: Scale) -> str:
    return line((x, scale.place(value) - scale.top) for x, value in run)


def _plot(
    said: str,
    time: Time,
    scale: Scale,
    shapes: Sequence[Markup],
    marks: Sequence[Mark],
    height: int,
    *,
    few: bool = False,
) -> Markup:
    inner = _stretch(shapes, _WIDE, scale)
    drawn = [shape for mark in marks for shape in _draw_mark(mark, time, scale)]
    if not shapes:
        drawn.append(write("nothing in this time", cls="mid", x="50%", y=(scale.top + scale.bottom) / 2 + 4))
    times = _write_times(time, height - 4, (0, 100) if few else (0, 25, 50, 75, 100))
    return picture(said, *_grid(scale), inner, *drawn, _base(scale), *times, cls="plot", width="100%", height=height)


def _stretch(shapes: Sequence[Markup], width: float, scale: Scale) -> Markup:
    height = scale.bottom - scale.top
    return draw(
        "svg",
        *(shapes or [Markup(" ")]),
        x=0,
        y=scale.top,
        width="100%",
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        preserveAspectRatio="none",
    )


def _grid(scale: Scale) -> list[Markup]:
    return [
        draw("line", cls="grid", x1=0, x2="100%", y1=scale.place(tick), y2=scale.place(tick))
        for tick in scale.ticks[1:]
    ]


def _base(scale: Scale) -> Markup:
    return draw("line", cls="axis", x1=0, x2="100%", y1=scale.bottom, y2=scale.bottom)


def _axis(scale: Scale, word: Callable[[float], str], height: int) -> Markup:
    words = [word(tick) if tick else "0" for tick in scale.ticks]
    width = max(28, 7 * max(map(len, words)))
    return draw(
        "svg",
        *(
            write(text, cls="end", x=width, y=scale.place(tick) + 4)
            for text, tick in zip(words, scale.ticks, strict=True)
        ),
        cls="yax",
        width=width,
        height=height,
        aria_hidden="true",
    )


def _draw_mark(mark: Mark, time: Time, scale: Scale) -> list[Markup]:
    share = time.share(mark.instant) if time.instants else -1.0
    if not 0 <= share <= 1:
        return []
    x = f"{100 * share:.4g}%"
    anchor: dict[str, Value] = {"cls": "ink end", "dx": -5} if share > 0.5 else {"cls": "ink", "dx": 5}
    return [
        draw("line", cls="mark", x1=x, x2=x, y1=scale.top - 6, y2=scale.bottom),
        write(mark.text, **anchor, x=x, y=scale.top - 3),
    ]


def _write_times(time: Time, y: float, places: Sequence[int]) -> list[Markup]:
    if not time.instants:
        return []
    words = []
    for place in places:
        instant = time.instants[0] + time.span * place / 100
        cls = {0: "", 100: "end"}.get(place, "mid" if place == 50 else "mid opt")
        words.append(write(label_instant(instant, time.zone, time.span), cls=cls or None, x=f"{place}%", y=y))
    return words


def _newest_first(time: Time, columns: Sequence[Sequence[float | None]]) -> list[tuple[str, tuple[float | None, ...]]]:
    return list(zip(time.names(), zip(*columns, strict=True), strict=True))[::-1]


def _frame(axis: Markup, plot: Markup, table: Markup) -> Markup:
    return draw("div", draw("div", axis, plot, cls="chart"), table, data_chart="")
