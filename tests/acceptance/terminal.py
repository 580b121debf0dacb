"""A terminal of a given width for a command: what a person sees, and Ctrl-C as the keyboard sends it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import until

PATIENCE = 60
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """A command that runs in a terminal of its own."""

    def __init__(self, process: subprocess.Popen[bytes], keyboard: int) -> None:
        self.process, self._keyboard = process, keyboard
        self._output = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """All that it has shown, without colours."""
        return _COLOURS.sub("", self._output.decode(errors="replace")).replace("\r\n", "\n")

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.text or self.process.poll() is not None, PATIENCE)
        assert words in self.text, self.text

    def press(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def wait(self) -> int:
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def _read(self) -> None:
        while True:
            try:
                read = os.read(self._keyboard, 65536)
            except OSError:  # the last process of the terminal has ended
                return
            if not read:
                return
            self._output += read


@contextmanager
def terminal(command: list[str], directory: Path, environment: Mapping[str, str], width: int) -> Iterator[Terminal]:
    keyboard, screen = pty.openpty()
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=directory,
        env={**environment, "TERM": "xterm", "COLUMNS": "", "LINES": ""},
        preexec_fn=lambda: os.login_tty(screen),
    )
    os.close(screen)
    shown = Terminal(process, keyboard)
    try:
        yield shown
    finally:
        if process.poll() is None:
            shown.press("\x03")
            shown.wait()
        os.close(keyboard)
