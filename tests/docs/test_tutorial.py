"""docs/tutorial.md, read aloud: files are written, commands run, and what the page shows is seen."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.docs.programs import DOCS, environment
from tests.waiting import until
from watchbill.postgres.embedded import find_running_url

PATIENCE = 120
_BLOCK = re.compile(r"```(\w+)\n(?:# (\w+\.py)\n)?(.*?)```", re.DOTALL)


class Terminal:
    """A command that runs on, and how far its output has been read."""

    def __init__(self, command: str, directory: Path) -> None:
        *variables, words = (
            command.split(" watchbill ", 1) if " watchbill " in command else [command.removeprefix("watchbill ")]
        )
        self.log = Path(tempfile.mkstemp(dir=directory, suffix=".log")[1])
        more = dict(each.split("=", 1) for each in " ".join(variables).split())
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "watchbill.cli", *shlex.split(words)],
                cwd=directory,
                env=environment(more),
                stdout=log,
                stderr=log,
            )
        self._read = 0

    def shows(self, expected: str) -> None:
        """Each of these lines in its turn."""
        for line in expected.splitlines():
            until(lambda line=line: self._found(line) or self.process.poll() is not None, PATIENCE)  # type: ignore[misc]
            assert self._found(line), f"no {line!r} in\n{self.log.read_text()}"
            self._read = self._position(line)

    def _found(self, line: str) -> bool:
        return self._position(line) > 0

    def _position(self, line: str) -> int:
        lines = self.log.read_text().splitlines()
        return next((n + 1 for n, said in enumerate(lines) if n >= self._read and matches(said, line)), 0)


def matches(said: str, shown: str) -> bool:
    """`...` stands for anything."""
    pattern = "*".join(re.sub(r"([\[*?])", r"[\1]", piece) for piece in shown.rstrip().split("..."))
    return fnmatchcase(said.rstrip(), pattern)


class Reader:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.terminals: list[Terminal] = []

    def read(self, language: str, file: str, text: str) -> None:
        if language == "python":
            (self.directory / file).write_text(text)
        elif language == "text":
            self.terminals[0].shows(text)
        else:
            for command, shown in zip(*[iter(re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:])] * 2, strict=True):
                self.type(command, shown)

    def type(self, command: str, shown: str) -> None:
        if command.startswith(("mkdir", "python3 -m venv", "pip")):  # what the test is made of
            return
        if re.search(r"watchbill (up|worker) ", command):
            self.terminals.append(Terminal(command, self.directory))
            self.terminals[-1].shows(shown)
        elif "kill -9 SECOND" in command:
            many = self.run(command.partition(" &")[0])
            self.terminals[1].shows("... succeeded ... shop.pack ...")
            os.kill(self.terminals[1].process.pid, signal.SIGKILL)
            self.check(command, many, shown)
        else:
            self.check(command, self.run(command), shown)

    def run(self, command: str) -> subprocess.Popen[str]:
        words = shlex.split(command)
        program = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "watchbill.cli"]
        return subprocess.Popen(
            [*program, *words[1:]],
            cwd=self.directory,
            env=environment({}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def check(self, command: str, running: subprocess.Popen[str], shown: str) -> None:
        said, _ = running.communicate(timeout=PATIENCE)
        lines = iter(said.splitlines())
        for line in shown.splitlines():
            assert any(matches(each, line) for each in lines), f"{command}: no {line!r} in\n{said}"
        assert running.returncode == 0, said

    def close(self) -> None:
        for terminal in reversed(self.terminals):
            if terminal.process.poll() is None:
                terminal.process.send_signal(signal.SIGINT)
            terminal.process.wait(PATIENCE)
        until(lambda: find_running_url(self.directory) is None, PATIENCE)


@pytest.fixture
def reader() -> Iterator[Reader]:
    """Open to all: a server started by root runs as another user, who must get in."""
    directory = Path(tempfile.mkdtemp(prefix="watchbill-tutorial-"))
    directory.chmod(0o755)
    (directory / "pyproject.toml").touch()
    reading = Reader(directory)
    yield reading
    reading.close()
    shutil.rmtree(directory)


@pytest.mark.timeout(600)
def test_tutorial_commands_print_what_the_page_shows(reader: Reader) -> None:
    blocks = _BLOCK.findall((DOCS / "tutorial.md").read_text())
    assert len(blocks) > 15
    for language, file, text in blocks:
        reader.read(language, file, text)
