"""Describes days, months, years and weeks in English."""

from __future__ import annotations

from watchbill.cron.bits import bits
from watchbill.cron.days import ALL_WEEKDAYS, LastDay, MonthDays, NearestWorkday, NthWeekday, RowWeekday, WeekDays
from watchbill.cron.explain.english import (
    MONTHS,
    NTH,
    WEEKDAYS,
    add_preposition,
    find_even_step,
    format_ordinal,
    join_words,
    pluralize,
    shorten_runs,
)
from watchbill.cron.fields import YEAR
from watchbill.cron.pattern import ALL_MONTHS, Fields


def describe_days(fields: Fields) -> str:
    """Returns the days as a text to append to the time, with a space or a comma in front: ` on the 1st of every month`,
    `, Monday to Friday`.

    The text is empty for a schedule by elapsed time that runs on every day.
    """
    rule, months = fields.days, fields.months
    if rule.of_month is None and rule.of_week is None:
        return ("" if fields.by_interval else " every day") + _describe_months(months)
    if rule.of_month is not None and rule.of_week is not None and rule.both:
        several = rule.of_month.days.bit_count() + len(rule.of_month.specials) > 1
        when = "when the day falls on" if several else "if it falls on"
        return f" {_describe_month_days(rule.of_month, months)} {when} {_describe_condition(rule.of_week)}"
    if rule.of_month is None and rule.of_week is not None and not rule.of_week.specials:
        return _describe_weekdays_alone(rule.of_week.weekdays, months)
    phrases = [_describe_month_days(rule.of_month, months)] if rule.of_month is not None else []
    phrases += [_describe_week_days(rule.of_week, months)] if rule.of_week is not None else []
    return f" {' and '.join(phrases)}"


def describe_years(mask: int | None) -> str:
    if mask is None:
        return ""
    named = [YEAR.low + bit for bit in bits(mask)]
    step = find_even_step(named)
    if step is not None and step > 1 and len(named) > 4:
        return f"in every {format_ordinal(step)} year from {named[0]} to {named[-1]}"
    return add_preposition(shorten_runs(named))


def describe_weeks(mask: int | None) -> str:
    if mask is None:
        return ""
    named = bits(mask)
    return f"in ISO {pluralize(len(named), 'week')} {join_words(shorten_runs(named))}"


def _describe_months(mask: int) -> str:
    """Returns a text such as ` in March` or ` from March to May`; empty if all months are named."""
    return "" if mask == ALL_MONTHS else f" {add_preposition(_name_months(mask))}"


def _describe_months_of_days(mask: int) -> str:
    """Returns the text that follows a day: `of every month`, `of March and May`."""
    if mask == ALL_MONTHS:
        return "of every month"
    names = _name_months(mask)
    return f"of every month from {names[0]}" if len(names) == 1 and " to " in names[0] else f"of {join_words(names)}"


def _name_months(mask: int) -> list[str]:
    return shorten_runs(bits(mask), lambda month: MONTHS[month - 1])


def _describe_month_days(field: MonthDays, months: int) -> str:
    """Returns a text such as `on the 1st of every month` or `from the 1st to the 7th of March`."""
    items = _describe_numbered_days([bit + 1 for bit in bits(field.days)])
    is_run = len(items) == 1 and not field.specials and " to the " in items[0] and not items[0].startswith("every")
    items += [_describe_month_special(special) for special in field.specials]
    return f"{'from' if is_run else 'on'} {join_words(items)} {_describe_months_of_days(months)}"


def _describe_numbered_days(named: list[int]) -> list[str]:
    step = find_even_step(named)
    if step is not None and step > 1 and len(named) > 4:
        return [
            f"every {format_ordinal(step)} day from the {format_ordinal(named[0])} to the {format_ordinal(named[-1])}"
        ]
    return shorten_runs(named, lambda day: f"the {format_ordinal(day)}")


def _describe_month_special(special: LastDay | NearestWorkday) -> str:
    if isinstance(special, NearestWorkday):
        return f"the working day nearest to the {format_ordinal(special.day)}"
    if special.before == 0:
        return "the last working day" if special.workday else "the last day"
    day = f"the {format_ordinal(special.before + 1)} to last day"
    return f"the working day nearest to {day}" if special.workday else day


def _describe_week_days(field: WeekDays, months: int) -> str:
    """Returns a text such as `on Mondays`, `from Monday to Friday` or `on the second Monday of March`."""
    phrases = []
    if field.weekdays:
        phrases = [_describe_weekdays(field.weekdays) + _describe_months(months)]
    if field.specials:
        specials = join_words([_describe_week_special(special) for special in field.specials])
        phrases += [f"on {specials} {_describe_months_of_days(months)}"]
    return " and ".join(phrases)


def _describe_weekdays_alone(weekdays: int, months: int) -> str:
    """Returns the weekdays of a pattern that names no days of the month: ` on Mondays`, `, Monday to Friday`."""
    text = _describe_weekdays(weekdays)
    if not text.startswith("from "):
        return f" {text}{_describe_months(months)}"
    return f", {text.removeprefix('from ')}{',' if months != ALL_MONTHS else ''}{_describe_months(months)}"


def _describe_weekdays(mask: int) -> str:
    run = _find_weekday_run(mask)
    if run is not None:
        return f"from {WEEKDAYS[run[0]]} to {WEEKDAYS[run[1]]}"
    return f"on {join_words([f'{WEEKDAYS[day]}s' for day in _sort_from_monday(mask)])}"


def _describe_condition(field: WeekDays) -> str:
    """Returns which weekday a day of the month must be: `a Monday or a Friday`, `the last Friday of the month`."""
    run = _find_weekday_run(field.weekdays)
    if run is not None:
        items = [f"a day from {WEEKDAYS[run[0]]} to {WEEKDAYS[run[1]]}"]
    else:
        items = [f"a {WEEKDAYS[day]}" for day in _sort_from_monday(field.weekdays)]
    specials = [f"{_describe_week_special(special)} of the month" for special in field.specials]
    return join_words(items + specials, "or")


def _find_weekday_run(mask: int) -> tuple[int, int] | None:
    """Returns first and last of three or more weekdays in a row, such as Friday to Monday; None if they are not in a
    row."""
    count = mask.bit_count()
    if count < 3:
        return None
    for first in (1, 2, 3, 4, 5, 6, 0):
        run = sum(1 << (first + day) % 7 for day in range(count))
        if run == mask:
            return first, (first + count - 1) % 7
    return None


def _sort_from_monday(mask: int) -> list[int]:
    return sorted(bits(mask & ALL_WEEKDAYS), key=lambda day: (day - 1) % 7)


def _describe_week_special(special: NthWeekday | RowWeekday) -> str:
    day = WEEKDAYS[special.weekday]
    if isinstance(special, RowWeekday):
        return f"the {day} in the {NTH[special.row - 1]} calendar row"
    if special.nth > 0:
        return f"the {NTH[special.nth - 1]} {day}"
    return f"the last {day}" if special.nth == -1 else f"the {NTH[-special.nth - 1]} to last {day}"
