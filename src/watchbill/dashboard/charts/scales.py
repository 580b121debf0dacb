"""Scales and the words on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_DAY = timedelta(days=1)
_TIME_STEPS_SECONDS = (1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


@dataclass(frozen=True)
class Scale:
    """Places values between `bottom` (the lowest) and `top`, in pixels from above."""

    low: float
    high: float
    bottom: float
    top: float
    ticks: tuple[float, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, self.low))
        share = (value - low) / (high - low)
        return self.bottom - min(max(share, 0.0), 1.0) * (self.bottom - self.top)


def choose_linear(most: float, *, bottom: float, top: float, lines: int = 3) -> Scale:
    """From 0 to the first round number above `most`."""
    step = _round_up(most / lines) if most > 0 else 1.0
    high = step * max(1, math.ceil(most / step - 1e-9))
    ticks = tuple(step * index for index in range(round(high / step) + 1))
    return Scale(0.0, high, bottom, top, ticks)


def choose_seconds(most: float, *, bottom: float, top: float, lines: int = 3) -> Scale:
    """As `choose_linear`, with steps that are round as times: 15 min, 1 h."""
    if most <= 60:
        return choose_linear(most, bottom=bottom, top=top, lines=lines)
    step = next((float(step) for step in _TIME_STEPS_SECONDS if step * lines >= most), _DAY.total_seconds())
    while step * lines < most:
        step *= 2
    ticks = tuple(step * index for index in range(math.ceil(most / step) + 1))
    return Scale(0.0, ticks[-1], bottom, top, ticks)


def choose_log(values: Iterable[float], *, bottom: float, top: float) -> Scale:
    """Whole decades around the values, at least two, for seconds from a millisecond up."""
    found = [value for value in values if value > 0]
    low = max(math.floor(math.log10(min(found))), -3) if found else -3
    high = max(math.ceil(math.log10(max(found)) - 1e-9), low + 2) if found else 0
    ticks = tuple(10.0**power for power in range(low, high + 1))
    return Scale(ticks[0], ticks[-1], bottom, top, ticks, is_log=True)


def label_count(value: float) -> str:
    """For an axis: 0, 350, 1 k, 2.5 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def label_decade(value: float) -> str:
    """For a logarithmic axis of seconds: 1 ms, 0.1 s, 100 s, 10 k s."""
    return f"{value * 1000:.3g} ms" if value < 0.1 else f"{label_count(value)} s"


def count(value: float) -> str:
    """For a sentence: 12,400; 0.25."""
    return f"{value:,.0f}" if value == round(value) or value >= 100 else f"{value:,.3g}"


def seconds(value: float) -> str:
    """1.2 s, 7 min 53 s, 3 h 5 min, 2 d 4 h."""
    if value < 0.1:
        return f"{value * 1000:.3g} ms"
    if value < 60:
        return f"{value:.3g} s"
    parts, rest = [], round(value)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if rest >= size:
            parts.append(f"{rest // size} {unit}")
            rest %= size
        elif parts:
            break
    return " ".join(parts[:2])


def label_instant(instant: datetime, zone: tzinfo, span: timedelta) -> str:
    """For an axis that covers `span`."""
    local = instant.astimezone(zone)
    if span <= timedelta(minutes=3):
        return f"{local:%H:%M:%S}"
    if span <= 2 * _DAY:
        return f"{local:%H:%M}"
    return f"{local.day} {local:%b}"


def write_instant(instant: datetime, zone: tzinfo, span: timedelta) -> str:
    """For a data table about `span`: the day if more than one can be meant."""
    local = instant.astimezone(zone)
    clock = f"{local:%H:%M:%S}" if span <= timedelta(minutes=10) else f"{local:%H:%M}"
    return clock if span < _DAY else f"{local.day} {local:%b} {clock}"


def spread(places: Sequence[float], distance: float) -> list[float]:
    """Moves labels apart that are closer than `distance`, as little as needed, in their order."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [places[index] for index in order]
    for _ in range(len(places)):
        for index in range(1, len(moved)):
            lacking = distance - (moved[index] - moved[index - 1])
            if lacking > 0:
                moved[index - 1] -= lacking / 2
                moved[index] += lacking / 2
    result = [0.0] * len(places)
    for index, place in zip(order, moved, strict=True):
        result[index] = place
    return result


def _round_up(value: float) -> float:
    size = 10.0 ** math.floor(math.log10(value))
    return size * next(step for step in _STEPS if step * size >= value * (1 - 1e-9))
