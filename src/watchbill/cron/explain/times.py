"""The time of day in English.

Only a schedule that follows elapsed time is described with the word *every*, or with *by elapsed time* where *every*
does not fit. So it never reads like one that follows the wall clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from watchbill.cron.bits import bits
from watchbill.cron.calendar import DAY
from watchbill.cron.explain.english import count_of, duration, even_step, every, join, ordinal, plural, spans
from watchbill.cron.pattern import Fields

_FEW = 5
_HOUR = 3_600


def times(fields: Fields) -> str:
    hours, minutes, seconds = bits(fields.hours), bits(fields.minutes), bits(fields.seconds)
    if not fields.by_interval:
        return _by_clock(hours, minutes, seconds)
    text = _by_interval(hours, minutes, seconds)
    return text if "every" in text else f"{text} by elapsed time"


def _by_clock(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    if len(hours) * len(minutes) * len(seconds) <= _FEW:
        return f"at {join(_all(hours, minutes, seconds))}"
    pace = _pace(hours, minutes, seconds)
    if pace is None and len(minutes) * len(seconds) == 1:
        return _at_hours(hours, minutes[0] * 60 + seconds[0])
    if pace is None:
        return _nested([_listed(hours, "hour"), _listed(minutes, "minute"), _listed(seconds, "second")], seconds)
    first, step, last = pace
    if step == _HOUR:
        return f"hourly {_from_to(first, last)}"
    return f"{_from_to(first, last)} in steps of {duration(step)}"


def _at_hours(hours: Sequence[int], past: int) -> str:
    items = spans(hours, lambda hour: _clock(hour * _HOUR + past))
    return f"{'at' if len(items) == len(hours) else 'hourly at'} {join(items)}"


def _by_interval(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> str:
    if len(hours) * len(minutes) * len(seconds) == 1:
        return f"at {_clock(hours[0] * _HOUR + minutes[0] * 60 + seconds[0])}"
    pace = _pace(hours, minutes, seconds)
    if pace is not None:
        return _every(*pace)
    within_hour = _pace([0], minutes, seconds)
    if within_hour and within_hour[0] == 0 and within_hour[1] + within_hour[2] == _HOUR:
        return f"{every(within_hour[1])} of {_stepped(hours, 'hour', 24)}"
    pieces = [_stepped(hours, "hour", 24), _stepped(minutes, "minute", 60), _stepped(seconds, "second", 60)]
    return _nested(pieces, seconds)


def _every(first: int, step: int, last: int) -> str:
    if first + DAY - last != step:
        return f"{every(step)} {_from_to(first, last)}"
    if first == 0:
        return every(step)
    if step in (60, _HOUR):
        return f"at {_past(first)} past {every(step)}"
    return f"{every(step)} from {_clock(first)}"


def _past(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    parts = [count_of(count, noun) for count, noun in ((minutes, "minute"), (seconds, "second")) if count]
    return " ".join(parts)


def _nested(pieces: list[str], seconds: Sequence[int]) -> str:
    """`at seconds 0 and 30 of minute 5 of hours 9 to 17`. Second 0 and every hour are left out."""
    hour, minute, second = pieces
    if list(seconds) == [0]:
        return f"at {minute} of {hour}"
    if minute == "every minute" and hour == "every hour":
        return f"at {second} of {minute}"
    return f"at {second} of {minute} of {hour}"


def _listed(values: Sequence[int], noun: str) -> str:
    return f"{plural(len(values), noun)} {join(spans(values))}"


def _stepped(values: Sequence[int], noun: str, size: int) -> str:
    if len(values) == size:
        return f"every {noun}"
    step = even_step(values)
    if step is not None and step > 1:
        return f"every {ordinal(step)} {noun} from {values[0]} to {values[-1]}"
    return _listed(values, noun)


def _pace(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> tuple[int, int, int] | None:
    """First, step and last of times that are evenly spaced."""
    all_times = [hour * _HOUR + minute * 60 + second for hour in hours for minute in minutes for second in seconds]
    if len(all_times) == 2:
        return all_times[0], all_times[1] - all_times[0], all_times[1]
    step = even_step(all_times)
    return None if step is None else (all_times[0], step, all_times[-1])


def _all(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> list[str]:
    return [_clock(hour * _HOUR + minute * 60 + second) for hour in hours for minute in minutes for second in seconds]


def _from_to(first: int, last: int) -> str:
    precise = first % 60 > 0 or last % 60 > 0
    return f"from {_clock(first, precise=precise)} to {_clock(last, precise=precise)}"


def _clock(seconds: int, *, precise: bool = False) -> str:
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02}:{minutes % 60:02}"
    return f"{text}:{second:02}" if second or precise else text
