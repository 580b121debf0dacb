"""Reads single keys from the terminal, without waiting for Enter and without showing them."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from collections import deque
from importlib.util import find_spec
from typing import Any, Self

HAS_KEYS = find_spec("termios") is not None
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;]*[ -/]*[@-~]|O[@-~])|.", re.DOTALL)
_NAMES = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down", "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\t": "tab", "\x1b[Z": "back tab",
    "\x7f": "backspace", "\b": "backspace",
}  # fmt: skip


class Keyboard:
    """Inside its `with` block, `read()` returns keys one by one."""

    def __init__(self) -> None:
        self._file = sys.stdin.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._keys: deque[str] = deque()
        self._mode: list[Any] | None = None

    def __enter__(self) -> Self:
        import termios  # missing on Windows
        import tty

        self._mode = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        return self

    def __exit__(self, *_: object) -> None:
        import termios

        if self._mode is not None:
            termios.tcsetattr(self._file, termios.TCSADRAIN, self._mode)

    def read(self, seconds: float) -> str | None:
        """Returns the next key: a character, or a name such as `up` or `enter`. Waits for so many seconds; None if no
        key is pressed. Raises EOFError if the terminal is gone."""
        if not self._keys and select.select([self._file], [], [], seconds)[0]:
            read = os.read(self._file, 1024)
            if not read:
                raise EOFError
            self._keys.extend(name_keys(self._decoder.decode(read)))
        return self._keys.popleft() if self._keys else None


def name_keys(text: str) -> list[str]:
    """Splits what a terminal sends into keys. An unknown escape sequence is left out."""
    found = [_NAMES.get(word, word) for word in _SEQUENCE.findall(text)]
    return [key for key in found if key in _NAMES.values() or key.isprintable()]
