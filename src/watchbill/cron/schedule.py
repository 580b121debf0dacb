"""`Cron`: a schedule that gives its instants as datetimes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import NamedTuple, NoReturn

from watchbill.cron.calendar import DAY
from watchbill.cron.compiler import Compiled, Policy, check_schedule, compile_schedule
from watchbill.cron.errors import InvalidInstant
from watchbill.cron.instants import EARLIEST, LATEST
from watchbill.cron.pattern import AtStart, Pattern

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_stamp = datetime.fromtimestamp


class Window(NamedTuple):
    """A trigger, and the instant to which an `E` or `S` modifier moves it: the end or start of a period."""

    trigger: datetime
    end: datetime

    @property
    def duration(self) -> timedelta:
        return self.end.astimezone(UTC) - self.trigger.astimezone(UTC)


class Cron:
    """A schedule: a pattern, the time zone of the pattern, and a policy for clock changes. Immutable and hashable.

    Takes aware datetimes of any zone, and returns datetimes in its own zone. To make an equal Cron again is cheap,
    because compiled schedules are cached.
    """

    pattern: str
    tz: str
    dst: Policy
    anchor: datetime  # `@every` counts from this instant, in whole seconds

    def __init__(self, pattern: str, tz: str = "UTC", dst: Policy = "default", anchor: datetime = EPOCH) -> None:
        if not all(isinstance(text, str) for text in (pattern, tz)):
            raise TypeError(f"pattern and tz are strings, not {pattern!r} and {tz!r}")
        check_schedule(pattern, tz, dst)
        _seconds(anchor)
        self.__dict__.update(pattern=pattern, tz=tz, dst=dst, anchor=anchor)  # because __setattr__ refuses every change

    @cached_property
    def _compiled(self) -> Compiled:
        """The compiled schedule. It is compiled at its first use, because many schedules are only checked."""
        return compile_schedule(self.pattern, self.tz, self.dst, _seconds(self.anchor))

    def next(self, after: datetime) -> datetime | None:
        """Returns the first instant later than `after`; None if there is none."""
        try:  # repeats the code of `_seconds`, because a call of it would cost time, and this method is called often
            elapsed = after - EPOCH
        except TypeError:
            raise _make_naive_error(after) from None
        second = elapsed.days * DAY + elapsed.seconds
        find_next, info, first, last = self._compiled.for_next
        at = find_next(second) if second >= first else find_next(max(_seconds(after), first - 1))
        if at is None or at > last:
            _seconds(after)  # raises if `after` is out of range
            return None
        return _stamp(at, info)

    def prev(self, before: datetime) -> datetime | None:
        """Returns the last instant earlier than `before`; None if there is none."""
        compiled = self._compiled
        at = compiled.instants.prev(min(_round_up_to_seconds(before), compiled.last + 1))
        return None if at is None or at < compiled.first else compiled.zone.stamp(at)

    def matches(self, at: datetime) -> bool:
        """Whether the schedule fires at exactly this instant."""
        second = _seconds(at)
        compiled = self._compiled
        return (
            at.microsecond == 0
            and compiled.first <= second <= compiled.last
            and compiled.instants.prev(second + 1) == second
        )

    def upcoming(self, count: int, after: datetime) -> list[datetime]:
        """Returns the next `count` instants after `after`; fewer if the schedule ends before."""
        found: list[datetime] = []
        at = self.next(after)
        while at is not None and len(found) < count:
            found.append(at)
            at = self.next(at)
        return found

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yields the instants from `start` on, up to and not including `end`."""
        first, last = _round_up_to_seconds(start), _round_up_to_seconds(end)
        return self._between(first, last)

    def window(self, after: datetime) -> Window | None:
        """Returns the next instant as `end`, together with its trigger: the instant from which a modifier has moved it.

        Without a modifier, both are the same.
        """
        compiled = self._compiled
        second = _seconds(after)
        span = compiled.next_with_trigger(max(second, compiled.first - 1))
        if span is None or span.result > compiled.last:
            return None
        zone = compiled.zone
        if span.trigger <= second:  # only a modifier without fields has such a trigger: it counts from `after`
            return Window(after.astimezone(zone.info), zone.stamp(span.result))
        return Window(zone.stamp(min(span.trigger, compiled.last)), zone.stamp(span.result))

    def time_until_next(self, now: datetime) -> timedelta | None:
        at = self.next(now)
        return None if at is None else at.astimezone(UTC) - now.astimezone(UTC)

    @property
    def at_start(self) -> bool:
        """Whether the schedule also fires when the cluster starts: it contains `@reboot`."""
        return any(isinstance(part.body, AtStart) for part in self._parsed.parts)

    def explain(self) -> str:
        """Describes the schedule in English, in a text that is short enough for a tooltip."""
        from watchbill.cron.explain import explain

        return explain(self._parsed, self.tz, self.dst, self.anchor)

    def frequency(self) -> str:
        """Says in a word how often the schedule runs: `daily`, `every-5-minutes`, `rare`."""
        from watchbill.cron.frequency import frequency

        return frequency(self._compiled.instants)

    @property
    def _parsed(self) -> Pattern:
        return check_schedule(self.pattern, self.tz, self.dst)

    def _between(self, first: int, end: int) -> Iterator[datetime]:
        compiled = self._compiled
        at = compiled.instants.next(max(first, compiled.first) - 1)
        while at is not None and at < end and at <= compiled.last:
            yield compiled.zone.stamp(at)
            at = compiled.instants.next(at)

    def _identity(self) -> tuple[str, str, Policy, datetime]:
        return self.pattern, self.tz, self.dst, self.anchor

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, Cron) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        given = [repr(self.pattern)]
        given += [f"{name}={value!r}" for name, value, default in self._options() if value != default]
        return f"Cron({', '.join(given)})"

    def _options(self) -> tuple[tuple[str, object, object], ...]:
        return ("tz", self.tz, "UTC"), ("dst", self.dst, "default"), ("anchor", self.anchor, EPOCH)

    def __str__(self) -> str:
        return self.pattern

    def __reduce__(self) -> tuple[type[Cron], tuple[str, str, Policy, datetime]]:
        return Cron, self._identity()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Cron does not change; build another with the {name} that you want")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Cron does not change; its {name} stays")


def _seconds(moment: datetime) -> int:
    """Returns an instant in whole seconds since 1970, rounded down."""
    try:
        elapsed = moment - EPOCH
    except TypeError:
        raise _make_naive_error(moment) from None
    seconds = elapsed.days * DAY + elapsed.seconds
    if not EARLIEST <= seconds <= LATEST:
        raise InvalidInstant(f"{moment.isoformat()} lies outside the years 1 to 9999 in UTC")
    return seconds


def _round_up_to_seconds(moment: datetime) -> int:
    """Returns an instant in whole seconds since 1970, rounded up."""
    return _seconds(moment) + (moment.microsecond > 0)


def _make_naive_error(moment: object) -> Exception:
    if not isinstance(moment, datetime):
        return TypeError(f"a datetime is needed, not {moment!r}")
    hint = "Say in which zone it is meant: datetime.now(UTC), or moment.replace(tzinfo=ZoneInfo('Europe/Paris'))."
    return InvalidInstant(f"{moment!r} is naive: give it a time zone.", hint=hint)
