"""The supervisor of several processes, with children that only count their starts."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import until

SUPERVISOR = """
import sys
from watchbill.cli.supervisor import Supervisor
sys.exit(Supervisor([sys.executable, "-c", *sys.argv[1:]], 2).run())
"""
CHILD = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
directory, refused = Path(sys.argv[1]), sys.argv[2].split()
number = os.environ["_WATCHBILL_CHILD_NUMBER"]
(directory / f"{number}-{os.getpid()}").touch()
while number == "2" and "slow" in refused and len(list(directory.glob("1-*"))) < 2:
    time.sleep(0.01)
if len(list(directory.glob(f"{number}-*"))) <= refused.count(number):
    sys.exit(3)
signal.pause()
"""
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Of the children each is refused as often as its number stands in `refused`. With `slow`, the second child waits
    until the first is started for the second time."""
    running: list[subprocess.Popen[bytes]] = []

    def start(refused: str) -> subprocess.Popen[bytes]:
        running.append(subprocess.Popen([sys.executable, "-c", SUPERVISOR, CHILD, str(tmp_path), refused]))
        return running[-1]

    yield start
    for process in running:
        process.terminate()
        process.wait(30)


def test_supervisor_exits_if_no_child_process_can_start(start: Start) -> None:
    assert start("1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2").wait(60) == 3


def test_supervisor_exits_if_children_are_refused_one_after_the_other(start: Start) -> None:
    assert start("slow 1 1 1 1 1 1 1 1 2 2 2 2 2 2 2 2").wait(60) == 3


def test_supervisor_restarts_a_child_process_that_could_not_start(start: Start, tmp_path: Path) -> None:
    """The server may have been away for just that moment."""
    supervisor = start("1")
    until(lambda: len(list(tmp_path.glob("1-*"))) == 2 and list(tmp_path.glob("2-*")))
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(60) == 0
