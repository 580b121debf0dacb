"""Days, months, years and weeks in English."""

from __future__ import annotations

from watchbill.cron.bits import bits
from watchbill.cron.days import ALL_WEEKDAYS, LastDay, MonthDays, NearestWorkday, NthWeekday, RowWeekday, WeekDays
from watchbill.cron.explain.english import (
    MONTHS,
    NTH,
    WEEKDAYS,
    even_step,
    join,
    ordinal,
    plural,
    spans,
    within,
)
from watchbill.cron.fields import YEAR
from watchbill.cron.pattern import ALL_MONTHS, Fields


def days(fields: Fields) -> str:
    """With what leads up to it: ` on the 1st of every month`, `, Monday to Friday`. Every day may be left out."""
    rule, months = fields.days, fields.months
    if rule.of_month is None and rule.of_week is None:
        return ("" if fields.by_interval else " every day") + _in_months(months)
    if rule.of_month is not None and rule.of_week is not None and rule.both:
        several = rule.of_month.days.bit_count() + len(rule.of_month.specials) > 1
        when = "when the day falls on" if several else "if it falls on"
        return f" {_month_days(rule.of_month, months)} {when} {_condition(rule.of_week)}"
    if rule.of_month is None and rule.of_week is not None and not rule.of_week.specials:
        return _plain_days(rule.of_week.weekdays, months)
    phrases = [_month_days(rule.of_month, months)] if rule.of_month is not None else []
    phrases += [_week_days(rule.of_week, months)] if rule.of_week is not None else []
    return f" {' and '.join(phrases)}"


def years(mask: int | None) -> str:
    if mask is None:
        return ""
    named = [YEAR.low + bit for bit in bits(mask)]
    step = even_step(named)
    if step is not None and step > 1 and len(named) > 4:
        return f"in every {ordinal(step)} year from {named[0]} to {named[-1]}"
    return within(spans(named))


def weeks(mask: int | None) -> str:
    if mask is None:
        return ""
    named = bits(mask)
    return f"in ISO {plural(len(named), 'week')} {join(spans(named))}"


def _in_months(mask: int) -> str:
    return "" if mask == ALL_MONTHS else f" {within(_month_names(mask))}"


def _of_months(mask: int) -> str:
    if mask == ALL_MONTHS:
        return "of every month"
    names = _month_names(mask)
    return f"of every month from {names[0]}" if len(names) == 1 and " to " in names[0] else f"of {join(names)}"


def _month_names(mask: int) -> list[str]:
    return spans(bits(mask), lambda month: MONTHS[month - 1])


def _month_days(field: MonthDays, months: int) -> str:
    """`on the 1st of every month`, `from the 1st to the 7th of March`."""
    items = _plain_month_days([bit + 1 for bit in bits(field.days)])
    is_run = len(items) == 1 and not field.specials and " to the " in items[0] and not items[0].startswith("every")
    items += [_describe_month_special(special) for special in field.specials]
    return f"{'from' if is_run else 'on'} {join(items)} {_of_months(months)}"


def _plain_month_days(named: list[int]) -> list[str]:
    step = even_step(named)
    if step is not None and step > 1 and len(named) > 4:
        return [f"every {ordinal(step)} day from the {ordinal(named[0])} to the {ordinal(named[-1])}"]
    return spans(named, lambda day: f"the {ordinal(day)}")


def _describe_month_special(special: LastDay | NearestWorkday) -> str:
    if isinstance(special, NearestWorkday):
        return f"the working day nearest to the {ordinal(special.day)}"
    if special.before == 0:
        return "the last working day" if special.workday else "the last day"
    day = f"the {ordinal(special.before + 1)} to last day"
    return f"the working day nearest to {day}" if special.workday else day


def _week_days(field: WeekDays, months: int) -> str:
    """`on Mondays`, `from Monday to Friday`, `on the second Monday of March`."""
    phrases = []
    if field.weekdays:
        phrases = [_plain_weekdays(field.weekdays) + _in_months(months)]
    if field.specials:
        phrases += [f"on {join([_describe_week_special(special) for special in field.specials])} {_of_months(months)}"]
    return " and ".join(phrases)


def _plain_days(weekdays: int, months: int) -> str:
    """Weekdays alone, where a run of them reads best after a comma."""
    text = _plain_weekdays(weekdays)
    if not text.startswith("from "):
        return f" {text}{_in_months(months)}"
    return f", {text.removeprefix('from ')}{',' if months != ALL_MONTHS else ''}{_in_months(months)}"


def _plain_weekdays(mask: int) -> str:
    run = _run_of_weekdays(mask)
    if run is not None:
        return f"from {WEEKDAYS[run[0]]} to {WEEKDAYS[run[1]]}"
    return f"on {join([f'{WEEKDAYS[day]}s' for day in _from_monday(mask)])}"


def _condition(field: WeekDays) -> str:
    """What a day of the month must be, too: `a Monday or a Friday`, `the last Friday of the month`."""
    run = _run_of_weekdays(field.weekdays)
    if run is not None:
        items = [f"a day from {WEEKDAYS[run[0]]} to {WEEKDAYS[run[1]]}"]
    else:
        items = [f"a {WEEKDAYS[day]}" for day in _from_monday(field.weekdays)]
    return join(items + [f"{_describe_week_special(special)} of the month" for special in field.specials], "or")


def _run_of_weekdays(mask: int) -> tuple[int, int] | None:
    """First and last of three or more weekdays in a row, over the weekend if need be."""
    count = mask.bit_count()
    if count < 3:
        return None
    for first in (1, 2, 3, 4, 5, 6, 0):
        run = sum(1 << (first + day) % 7 for day in range(count))
        if run == mask:
            return first, (first + count - 1) % 7
    return None


def _from_monday(mask: int) -> list[int]:
    return sorted(bits(mask & ALL_WEEKDAYS), key=lambda day: (day - 1) % 7)


def _describe_week_special(special: NthWeekday | RowWeekday) -> str:
    day = WEEKDAYS[special.weekday]
    if isinstance(special, RowWeekday):
        return f"the {day} in the {NTH[special.row - 1]} calendar row"
    if special.nth > 0:
        return f"the {NTH[special.nth - 1]} {day}"
    return f"the last {day}" if special.nth == -1 else f"the {NTH[-special.nth - 1]} to last {day}"
