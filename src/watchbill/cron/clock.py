"""The times of a day that a pattern names, as seconds since midnight."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from watchbill.cron.bits import bits
from watchbill.cron.calendar import DAY
from watchbill.cron.pattern import Fields


class TimesOfDay:
    """The times of a day, kept as two sorted lists: the minutes of the day, and the seconds within each minute.
    Together they have at most 1,500 numbers."""

    def __init__(self, fields: Fields) -> None:
        self._minutes = [hour * 3600 + minute * 60 for hour in bits(fields.hours) for minute in bits(fields.minutes)]
        self._seconds = bits(fields.seconds)
        self._first_second = self._seconds[0]
        self._last_second = self._seconds[-1]
        self.window = self._make_window()

    def after(self, second: int) -> int:
        """Returns the first time of day after `second`, which must be earlier than the last time of day."""
        index = bisect_right(self._minutes, second)
        if index:
            minute = self._minutes[index - 1]
            if second - minute < self._last_second:
                return minute + self._seconds[bisect_right(self._seconds, second - minute)]
        return self._minutes[index] + self._first_second

    def before(self, second: int) -> int:
        """Returns the last time of day before `second`, which must be later than the first time of day."""
        index = bisect_left(self._minutes, second) - 1
        minute = self._minutes[index]
        if second - minute > self._first_second:
            return minute + self._seconds[bisect_left(self._seconds, second - minute) - 1]
        return self._minutes[index - 1] + self._last_second

    def _make_window(self) -> tuple[int, list[int]]:
        """Returns a window of times that callers may cache: its length, and the times in it. The window is a minute if
        a minute has several times, and otherwise a day."""
        if len(self._seconds) > 1:
            return 60, self._seconds
        return DAY, [minute + self._first_second for minute in self._minutes]
