"""Makes text that comes from jobs, schedules and databases safe to print.

A terminal obeys escape sequences, and a line break in a name starts what looks like another line of the log. So
whatever we print for people has its control characters replaced by visible escapes, such as `\\x1b`.
"""

from __future__ import annotations

_C0, _DELETE, _C1 = range(0x20), (0x7F,), range(0x80, 0xA0)
_SEPARATORS = (0x2028, 0x2029)  # separators of lines and paragraphs, at which some programs break the line
# Characters that change the direction of text.
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SURROGATES = range(0xD800, 0xE000)  # halves of characters, which cannot be encoded alone


def _escape_character(code: int) -> str:
    named = {0x09: "\\t", 0x0A: "\\n", 0x0D: "\\r"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}")


_LINE = {
    code: _escape_character(code)
    for codes in (_C0, _DELETE, _C1, _SEPARATORS, _DIRECTIONS, _SURROGATES)
    for code in codes
}
_LINES = {code: escaped for code, escaped in _LINE.items() if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Returns the text on one line, with visible escapes for control characters."""
    return text if text.isprintable() else text.translate(_LINE)


def printable_lines(text: str) -> str:
    """Returns the text with visible escapes for control characters, but keeps its line breaks and tabs."""
    return text if text.isprintable() else text.translate(_LINES)
