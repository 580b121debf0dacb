"""Cuts SQL text into statements, for what must run one at a time (CREATE INDEX CONCURRENTLY and the like)."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Everything in which a semicolon does not end a statement, longest forms first. Block comments nest, so they are only
# recognised here and followed by hand.
_TOKEN = re.compile(
    r"""
      (?P<line_comment> --[^\n]* )
    | (?P<block_comment> /\* )
    | (?P<dollar> \$ (?P<tag> (?:[^\W\d]\w*)? ) \$ .*? \$ (?P=tag) \$ )
    | (?P<escape_string> (?<!\w) [eE] ' (?: [^'\\] | \\. | '' )* ' )
    | (?P<string> ' (?: [^'] | '' )* ' )
    | (?P<identifier> " (?: [^"] | "" )* " )
    | (?P<word> \w [\w$]* )
    | (?P<open> \( )
    | (?P<close> \) )
    | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def split(text: str) -> Iterator[str]:
    """The statements of `text`, without their semicolons; comments stay with the statement that follows them."""
    start = position = depth = 0
    substance = False
    while token := _TOKEN.search(text, position):
        kind = token.lastgroup or ""
        substance = substance or bool(text[position : token.start()].strip())
        position = _comment_end(text, token.start()) if kind == "block_comment" else token.end()
        depth += {"open": 1, "close": -1}.get(kind, 0)
        if kind == "end" and depth == 0:
            if substance:
                yield text[start : token.start()].strip()
            start, substance = position, False
        elif kind not in {"line_comment", "block_comment"}:
            substance = True
    if substance or text[position:].strip():
        yield text[start:].strip()


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
