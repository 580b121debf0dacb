"""Reads the filter of a page or a request, and refuses a search that would reveal what is hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from watchbill.errors import WatchbillError
from watchbill.filters.condition import Condition
from watchbill.filters.fields import WITH_PATH
from watchbill.filters.parser import parse_filter
from watchbill.redaction import Redaction

_PLAIN = re.compile(r'[^\s,"*]+')
_TEXTS_OF_ERRORS = ("error", "message")


class HiddenSearch(WatchbillError):
    """A filter asks for a value that is hidden here."""

    exit_code = 2


def read_search(text: str, redaction: Redaction, now: datetime) -> tuple[Condition, ...]:
    """Returns the conditions of a filter. Raises FilterError or HiddenSearch."""
    conditions = parse_filter(text, now)
    refuse_hidden(conditions, redaction)
    return conditions


def quote_value(text: str) -> str:
    """A value as a filter takes it: `type:mail.send`, or `type:"a b"`."""
    if _PLAIN.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def refuse_hidden(conditions: Iterable[Condition], redaction: Redaction) -> None:
    """Matches tell the value, so a hidden one cannot be searched. Where patterns hide parts of texts, a text can be
    searched only as a whole: with a star, it could be guessed letter by letter."""
    conditions = list(conditions)
    types = _find_types(conditions)
    for each in conditions:
        if each.field in WITH_PATH:
            _refuse_paths([(each.field, *each.path)], types, redaction)
        elif each.field in _TEXTS_OF_ERRORS:
            names = [("error", "message")] + [("error", "type"), ("error", "kind")] * (each.field == "error")
            _refuse_paths(names, types, redaction)
        else:
            continue
        if redaction.patterns and (each.operator in ("like", "has") or _has_hidden_text(each, redaction)):
            raise HiddenSearch(
                f"A part of {_name(each)} cannot be searched, because some texts are hidden here.",
                hint="Search for the whole value.",
            )


def _find_types(conditions: Sequence[Condition]) -> list[str]:
    """The types to which the filter is limited; none for any."""
    return next(
        (list(each.values) for each in conditions if (each.field, each.operator) == ("type", "=")
         and not each.is_negated), [],
    )  # fmt: skip


def _refuse_paths(paths: Iterable[Sequence[str]], types: Sequence[str], redaction: Redaction) -> None:
    for path in paths:
        if redaction.hides(path, types=types):
            raise HiddenSearch(f"{'.'.join(path)} is hidden here, so it cannot be searched.", hint="Leave it out.")


def _has_hidden_text(condition: Condition, redaction: Redaction) -> bool:
    return any(redaction.hide("payload", value, type=None) != value for value in condition.values)


def _name(condition: Condition) -> str:
    return ".".join((condition.field, *condition.path))
