"""Pieces of a pattern that know their position, so that every error can point at its cause."""

from __future__ import annotations

import re
from typing import NamedTuple

from watchbill.cron.errors import InvalidPattern

Group = int | str  # number or name of a group in a regular expression


class Token(NamedTuple):
    text: str
    position: int
    pattern: str

    def split(self, separator: str) -> list[Token]:
        if separator not in self.text:
            return [self]
        pieces, position = [], self.position
        for text in self.text.split(separator):
            pieces.append(Token(text, position, self.pattern))
            position += len(text) + len(separator)
        return pieces

    def words(self) -> list[Token]:
        words, position = [], self.position
        for text in self.text.replace("\t", " ").split(" "):
            if text:
                words.append(Token(text, position, self.pattern))
            position += len(text) + 1
        return words

    def after(self, prefix: str) -> Token:
        """Returns the rest of the token behind a prefix. The text must begin with the prefix."""
        return Token(self.text[len(prefix) :], self.position + len(prefix), self.pattern)

    def part(self, match: re.Match[str], group: Group) -> Token:
        """Returns the part of this token that a group of the match has caught. The match is one on its text."""
        return Token(match[group], self.position + match.start(group), self.pattern)

    def error(self, field: str, reason: str, suggestion: str | None = None) -> InvalidPattern:
        """Makes an error that points at this token. `field` names the invalid part of the pattern, such as `hour`."""
        return InvalidPattern(reason, self.pattern, self.position, len(self.text), field, suggestion)
