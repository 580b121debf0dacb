"""Parses a filter: terms that must all hold, such as `state:failed type:mail.* payload.user.id:42 -queue:bulk run>5s`.

An error names the column, and says what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from difflib import get_close_matches

from watchbill.filters.condition import Condition, FilterError
from watchbill.filters.fields import FIELDS, WITH_PATH, Term, Word, WrongValue, looks_like_id, make_pattern

MOST_TERMS = 20
MOST_CHARACTERS = 1000
MOST_VALUES = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_OPERATOR = re.compile(r"<=|>=|<|>|:")
_PLAIN = re.compile(r'[^\s,"]+')
_SEGMENT = re.compile(r'[^\s.:<>"]+')
_TERM = re.compile(r'(?:"(?:\\.|[^"\\])*"|[^\s"])+', re.DOTALL)


def parse_filter(text: str, now: datetime | None = None) -> tuple[Condition, ...]:
    """Returns the conditions of a filter. A time such as 14:00 is that of `now`'s day."""
    if len(text) > MOST_CHARACTERS:
        hint = f"Write at most {MOST_CHARACTERS:,} characters."
        raise FilterError(f"it has {len(text):,} characters", text, MOST_CHARACTERS + 1, hint)
    return tuple(_Parser(text, now or datetime.now().astimezone()).read_terms())


def split_terms(text: str) -> list[str]:
    """Returns the terms of a valid filter as they are written, to show them or to leave one out."""
    return _TERM.findall(text)


class _Parser:
    def __init__(self, text: str, now: datetime) -> None:
        self._text, self._now, self._place = text, now, 0

    def read_terms(self) -> Iterator[Condition]:
        for place, each in enumerate(self._text):
            if not each.isprintable() and each not in "\t\n\r":
                raise FilterError("it has a character that cannot be shown", self._text, place + 1, "Remove it.")
        count = 0
        while self._skip_space():
            count += 1
            if count > MOST_TERMS:
                raise self._refuse("it has too many terms", f"Write at most {MOST_TERMS} terms.")
            try:
                yield self._read_term()
            except WrongValue as error:
                raise FilterError(error.problem, self._text, error.column, error.hint) from None
            if self._peek() and not self._peek().isspace():
                raise self._refuse("a space is missing after the value", 'Quote a text that contains ": key:"a b".')

    def _skip_space(self) -> bool:
        while self._place < len(self._text) and self._text[self._place].isspace():
            self._place += 1
        return self._place < len(self._text)

    def _read_term(self) -> Condition:
        is_negated = self._take("-")
        start = self._place
        name = self._match(_NAME)
        if name:
            path = self._read_path() if name in WITH_PATH else ()
            operator_column = self._place + 1
            if operator := self._match(_OPERATOR):
                return self._read_field(start, name, path, operator, operator_column, is_negated)
            if path:
                raise self._refuse(f"{name} needs an operator", f"Write {FIELDS[name].example}.")
        self._place = start
        return self._read_word(is_negated)

    def _read_field(
        self, start: int, name: str, path: tuple[str, ...], operator: str, operator_column: int, is_negated: bool
    ) -> Condition:
        if name not in FIELDS:
            near = get_close_matches(name, FIELDS, n=1)
            hint = f"Did you mean {near[0]}? " if near else ""
            raise WrongValue(f"there is no field {name!r}", start + 1, f"{hint}The fields are {', '.join(FIELDS)}.")
        if name in WITH_PATH and not path:
            raise WrongValue(f"{name} needs a path", operator_column, f"Write {FIELDS[name].example}.")
        words = [self._read_value(name)]
        while self._take(","):
            words.append(self._read_value(name))
        if operator != ":" and len(words) > 1:
            hint = f"Write one value after {operator}."
            raise WrongValue(f"{name}{operator} takes one value", words[1].column, hint)
        if len(words) > MOST_VALUES:
            raise WrongValue("it has too many values", words[MOST_VALUES].column, f"Write at most {MOST_VALUES}.")
        term = Term(name, path, operator, operator_column, words, is_negated, self._now)
        return FIELDS[name].read(term)

    def _read_path(self) -> tuple[str, ...]:
        segments = []
        while self._take("."):
            column = self._place + 1
            segment = self._read_quoted() if self._peek() == '"' else self._match(_SEGMENT)
            if not segment:
                raise WrongValue("a name is missing in the path", column, f"Write {FIELDS['payload'].example}.")
            segments.append(segment)
        return tuple(segments)

    def _read_word(self, is_negated: bool) -> Condition:
        """Reads a word without a field: the beginning of an id, or a part of a type."""
        word = self._read_value("this term")
        if self._peek() == ",":
            raise self._refuse("only the values of a field are separated by commas", "Write type:mail,sms.")
        if not word.is_quoted and looks_like_id(word.text):
            return FIELDS["id"].read(Term("id", (), ":", word.column, [word], is_negated, self._now))
        pattern = make_pattern(word)
        return Condition("type", "like", (pattern if word.has_star else f"%{pattern}%",), is_negated)

    def _read_value(self, what: str) -> Word:
        column = self._place + 1
        if self._peek() == '"':
            return Word(self._read_quoted(), column, is_quoted=True)
        text = self._match(_PLAIN)
        if not text:
            raise self._refuse(
                f"{what} needs a value", 'Write a value, such as type:mail.*, or a quoted text: key:"a b".'
            )
        return Word(text, column)

    def _read_quoted(self) -> str:
        """Reads a text between quotes, in which a backslash stands before a quote or a backslash."""
        start, found = self._place, []
        self._place += 1
        while self._place < len(self._text) and self._text[self._place] != '"':
            self._place += self._text[self._place] == "\\" and self._place + 1 < len(self._text)
            found.append(self._text[self._place])
            self._place += 1
        if not self._take('"'):
            raise WrongValue("a quote is not closed", start + 1, 'Write "..." around the text.')
        return "".join(found)

    def _peek(self) -> str:
        return self._text[self._place : self._place + 1]

    def _take(self, character: str) -> bool:
        is_there = self._peek() == character
        self._place += is_there
        return is_there

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._place)
        self._place = found.end() if found else self._place
        return found[0] if found else ""

    def _refuse(self, problem: str, hint: str) -> FilterError:
        return FilterError(problem, self._text, self._place + 1, hint)
