"""The fields of the filter language, and how the values of each kind are read.

`Words` are the values of one term, as they were written. A reader returns the operator and the values of its condition,
or raises `WrongValue` with the place of the value that is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any, NamedTuple

from watchbill.filters.condition import Condition
from watchbill.model import durations
from watchbill.model.ids import id_range
from watchbill.model.states import STATES, WAITS

COMPARISONS = ("<", "<=", ">", ">=")
TIME_EXAMPLES = "-1h, 14:00, 2026-03-29 or 2026-03-29T02:30+01:00"
_AGO = re.compile(r"([+-])(.+)")
_CLOCK = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_ID = re.compile(r"[0-9a-fA-F-]+")
_JSON_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d{1,3})?")
_JSON_WORDS = {"true": True, "false": False, "null": None}
_MOST_DIGITS = 38


class Word(NamedTuple):
    """A value as it was written, and its column. A star in a quoted text is only a star."""

    text: str
    column: int
    is_quoted: bool = False

    @property
    def has_star(self) -> bool:
        return "*" in self.text and not self.is_quoted


class WrongValue(Exception):
    def __init__(self, problem: str, column: int, hint: str) -> None:
        super().__init__(problem)
        self.problem, self.column, self.hint = problem, column, hint


class Term(NamedTuple):
    """A term of a filter. `operator` is `:` or one of COMPARISONS, and `now` the time at which it is read."""

    field: str
    path: tuple[str, ...]
    operator: str
    operator_column: int
    words: Sequence[Word]
    is_negated: bool
    now: datetime

    def make(self, operator: str, values: Sequence[Any]) -> Condition:
        return Condition(self.field, operator, tuple(values), self.is_negated, self.path)


@dataclass(frozen=True)
class Field:
    """A field: how its term is read, what it means, and an example for documents and errors."""

    read: Callable[[Term], Condition]
    meaning: str
    example: str


def _refuse_comparison(term: Term) -> None:
    if term.operator != ":":
        hint = f"Write {FIELDS[term.field].example}."
        raise WrongValue(f"{term.field} cannot be compared with {term.operator}", term.operator_column, hint)


def _require_comparison(term: Term) -> None:
    if term.operator == ":":
        raise WrongValue(
            f"{term.field} needs <, <=, > or >=", term.operator_column, f"Write {FIELDS[term.field].example}."
        )


def _read_state(term: Term) -> Condition:
    _refuse_comparison(term)
    known = (*STATES, *WAITS) if term.field == "state" else ("blocked", *WAITS)
    for word in term.words:
        if word.text not in known:
            what = "state" if term.field == "state" else "wait"
            raise WrongValue(f"there is no {what} {word.text!r}", word.column, f"It is one of {', '.join(known)}.")
    return term.make("=", [word.text for word in term.words])


def _read_text(term: Term) -> Condition:
    _refuse_comparison(term)
    if any(word.has_star for word in term.words):
        return term.make("like", [make_pattern(word) for word in term.words])
    return term.make("=", [word.text for word in term.words])


def _read_part(term: Term) -> Condition:
    _refuse_comparison(term)
    return term.make("has", [word.text for word in term.words])


def make_pattern(word: Word) -> str:
    """Returns a pattern for LIKE, in which only the stars of the user mean anything."""
    escaped = re.sub(r"([\\%_])", r"\\\1", word.text)
    return escaped.replace("*", "%") if word.has_star else escaped


def _read_id(term: Term) -> Condition:
    _refuse_comparison(term)
    return term.make("=", [_find_range(word) for word in term.words])


def _find_range(word: Word) -> list[str]:
    if not _ID.fullmatch(word.text) or len(word.text.replace("-", "")) > 32:
        raise WrongValue(f"{word.text!r} is not the beginning of an id", word.column, "Copy it from a list of jobs.")
    return [str(bound) for bound in id_range(word.text)]


def _read_number(term: Term) -> Condition:
    return term.make("=" if term.operator == ":" else term.operator, [_find_number(word) for word in term.words])


def _find_number(word: Word) -> int | float:
    number = _parse_number(word.text)
    if number is None:
        raise WrongValue(f"{word.text!r} is not a number", word.column, "Write a number such as 5, -5 or 0.5.")
    return number


def _parse_number(text: str) -> int | float | None:
    if not _JSON_NUMBER.fullmatch(text) or len(text) >= _MOST_DIGITS:
        return None
    number: int | float = json.loads(text)
    # The database writes such a number with all its digits.
    return number if abs(number) < 2**63 and (number == 0 or abs(number) > 1e-12) else None


def _read_duration(term: Term) -> Condition:
    _require_comparison(term)
    (word,) = term.words
    try:
        return term.make(term.operator, [_check_length(durations.seconds(word.text), word)])
    except ValueError:
        raise WrongValue(f"{word.text!r} is not a duration", word.column, "Write 500ms, 30s, 5m or 1h30m.") from None


def _check_length(seconds: float, word: Word) -> float:
    if seconds >= 1e10:
        raise WrongValue(f"{word.text!r} is too long", word.column, "Write less than 300 years.")
    return seconds


def _read_time(term: Term) -> Condition:
    _require_comparison(term)
    (word,) = term.words
    return term.make(term.operator, [_find_time(word, term.now)])


def _find_time(word: Word, now: datetime) -> str | float:
    """Returns seconds from now, which the database adds to its own clock, or an instant in UTC."""
    try:
        if ago := _AGO.fullmatch(word.text):
            seconds = _check_length(durations.seconds(ago[2]), word)
            return -seconds if ago[1] == "-" else seconds
        if _CLOCK.fullmatch(word.text):
            moment = datetime.combine(now.date(), time.fromisoformat(word.text.zfill(5))).astimezone()
        else:
            moment = datetime.fromisoformat(word.text)
        if not 2 <= moment.year <= 9998:
            raise ValueError
        return moment.astimezone(UTC).isoformat(timespec="microseconds")
    except (OverflowError, ValueError):
        raise WrongValue(f"{word.text!r} is not a time", word.column, f"Write {TIME_EXAMPLES}.") from None


def _read_json(term: Term) -> Condition:
    if term.operator != ":":
        return term.make(term.operator, [_find_number(word) for word in term.words])
    if any(word.has_star for word in term.words):
        return term.make("like", [make_pattern(word) for word in term.words])
    alternatives = [each for word in term.words for each in _find_json_values(word)]
    return term.make("=", [_nest(term.path, value) for value in alternatives])


def _find_json_values(word: Word) -> list[Any]:
    """Returns what a word may stand for: 42 is the number and the text, "42" is only the text."""
    values: list[Any] = [word.text]
    if not word.is_quoted and word.text in _JSON_WORDS:
        values.append(_JSON_WORDS[word.text])
    elif not word.is_quoted and (number := _parse_number(word.text)) is not None:
        values.append(number)
    return values


def _nest(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


FIELDS = {
    "state": Field(_read_state, "the state, or what a job waits for", "state:failed,dead"),
    "waits": Field(_read_state, "what an unfinished job waits for", "waits:limited"),
    "type": Field(_read_text, "the type of the job", "type:mail.*"),
    "queue": Field(_read_text, "the queue", "queue:mail"),
    "tenant": Field(_read_text, "the tenant", "tenant:acme"),
    "node": Field(_read_text, "the name of the node that runs or last ran it", "node:web-1*"),
    "schedule": Field(_read_text, "the schedule that made it", "schedule:nightly"),
    "error": Field(_read_part, "a part of its last error: kind, colon, message", "error:TimeoutError"),
    "message": Field(_read_text, "the whole message of its last error", 'message:"out of memory"'),
    "failure": Field(_read_number, "the group of its last error, as `dead groups --json` has it", "failure:-4711"),
    "id": Field(_read_id, "the id, or its beginning", "id:01a2c0de"),
    "seq": Field(_read_number, "the sequence number", "seq:4711"),
    "key": Field(_read_text, "the idempotency key", "key:order-17"),
    "route": Field(_read_text, "the key that routes it", "route:acme"),
    "order": Field(_read_text, "the key within which jobs run in order", "order:*"),
    "limit": Field(_read_text, "one of its limit keys", "limit:key:crm"),
    "by": Field(_read_text, "who enqueued it", "by:web"),
    "priority": Field(_read_number, "the priority", "priority>=5"),
    "attempt": Field(_read_number, "how many attempts are used", "attempt>3"),
    "lane": Field(_read_number, "the lane", "lane:0"),
    "version": Field(_read_number, "the version of the payload", "version:2"),
    "created": Field(_read_time, "when it was enqueued", "created>-1h"),
    "due": Field(_read_time, "when it is or was due", "due<14:00"),
    "started": Field(_read_time, "when its last run started", "started>-10m"),
    "finished": Field(_read_time, "when it ended", "finished>2026-03-29"),
    "run": Field(_read_duration, "how long its last run took, or takes until now", "run>5s"),
    "wait": Field(_read_duration, "how long it waited after it was due, or waits until now", "wait>1m"),
    "payload": Field(_read_json, "a value in the payload", "payload.user.id:42"),
    "meta": Field(_read_json, "a value in meta", "meta.request:a7"),
}
WITH_PATH = ("payload", "meta")


def looks_like_id(text: str) -> bool:
    """Says whether a word without a field is the beginning of an id rather than a part of a type."""
    digits = text.replace("-", "")
    return bool(_ID.fullmatch(text)) and 8 <= len(digits) <= 32 and any(each.isdigit() for each in digits)
