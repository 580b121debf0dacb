"""However an item is spelt, SQL reads it as Python does, be it known by heart or not."""

from __future__ import annotations

import random

import pytest

from tests.store.cron_sql import Connection, compiled_by_python, compiled_by_sql
from tests.store.test_cron_errors import in_python, in_sql, sql
from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.fields import DAY_OF_MONTH, DAY_OF_WEEK, HOUR, MINUTE, MONTH, SECOND, WEEK, YEAR, Field

__all__ = ["sql"]
FIELDS = (SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK, YEAR)
WRONG = """x 1--2 -5 5- *-5 5-* 1/ /5 1/2/3 1-2-3 */* *5/2 5*/2 MONDAY mon1 1mon é ١ + */2-4 1/2-4 0L LL -3W L-3w
    #1""".split()  # noqa: SIM905  as a list it would fill the page
BATCH = 500


class Speller:
    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def pattern(self) -> str:
        """One field has a list, the others are plain."""
        chosen = self._draw.choice((*FIELDS, WEEK))
        words = [self._list(field) if field is chosen else self._plain(field) for field in FIELDS]
        return " ".join(words) + (f" WOY:{self._list(WEEK)}" if chosen is WEEK else "")

    def _plain(self, field: Field) -> str:
        return "*" if field in (DAY_OF_MONTH, DAY_OF_WEEK, YEAR) else str(field.low)

    def _list(self, field: Field) -> str:
        return ",".join(self._item(field) for _ in range(self._draw.choice([1, 1, 2, 3, 9])))

    def _item(self, field: Field) -> str:
        if self._draw.random() < 0.02:
            return self._draw.choice(["", "*", "?", *WRONG])
        value, other, step = self._value(field), self._value(field), self._number(1, self._draw.choice([9, 62, 1100]))
        kinds = [value, f"{value}-{other}", f"{value}/{step}", f"{value}-{other}/{step}", f"*/{step}"]
        if field is DAY_OF_MONTH:
            kinds += ["L", "LW", f"L-{self._number(1, 30)}", f"L-{self._number(1, 30)}W", f"{self._number(1, 31)}W"]
        if field is DAY_OF_WEEK:
            nth = self._number(1, 5)
            kinds += [f"{value}L", f"{value}#L", f"{value}#{nth}", f"{value}#-{nth}", f"{value}W{nth}"]
        return self._draw.choice(kinds)

    def _value(self, field: Field) -> str:
        if field.names and self._draw.random() < 0.5:
            name = self._draw.choice(field.names)
            return self._draw.choice([name, name.lower(), name.title(), name.swapcase(), name[0] + name[1:].lower()])
        return self._number(field.low, field.high)

    def _number(self, low: int, high: int) -> str:
        """Seldom one too low or too high."""
        number = self._draw.randint(low, high) + self._draw.choice([0] * 40 + [-1, 1])
        return self._draw.choice(["", "", "", "0", "00", "0" * 12]) + str(max(number, 0))


@pytest.mark.parametrize("count", [1_000, pytest.param(300_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_sql_and_python_read_every_spelling_alike(sql: Connection, count: int) -> None:
    speller = Speller(random.Random(count))
    accepted = 0
    for _ in range(count // BATCH):
        patterns = [speller.pattern() for _ in range(BATCH)]
        for pattern, verdict in zip(patterns, in_sql(sql, patterns), strict=True):
            assert verdict == in_python(pattern), pattern
        right = [pattern for pattern in patterns if is_right(pattern)]
        parsed = sql.execute("SELECT jcron.parse_cron(p)::bigint[] FROM unnest(%s::text[]) p", (right,)).fetchall()
        for pattern, (numbers,) in zip(right, parsed, strict=True):
            assert compiled_by_sql(numbers) == compiled_by_python(pattern), pattern
        accepted += len(right)
    assert count * 0.3 < accepted < count * 0.95


def is_right(pattern: str) -> bool:
    try:
        Cron(pattern)
    except InvalidPattern:
        return False
    return True
