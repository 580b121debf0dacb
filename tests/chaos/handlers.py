"""Handlers for tests of single processes: they say where they are by making files, and wait for files to go on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from watchbill import App, Retry, RetryAfter, Skip, Snooze, current_job

app = App(name="handlers")
SOON = Retry(max_attempts=5, backoff="fixed", base=0.05)


def _note(directory: str, name: str) -> None:
    Path(directory, f"{name}-{current_job().id}-{current_job().fence}").write_text(str(os.getpid()))


def _may_go_on(directory: str) -> bool:
    return Path(directory, "go-on").exists()


@app.task(type="nothing")
async def nothing() -> None: ...


@app.task(type="hold", retry=SOON)
async def hold(directory: str) -> str:
    _note(directory, "held")
    while not _may_go_on(directory):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return "went on"


@app.task(type="hold_thread", retry=SOON)
def hold_thread(directory: str) -> str:
    _note(directory, "held")
    while not _may_go_on(directory):
        time.sleep(0.01)
    return "went on"


@app.task(type="hold_process", retry=SOON, executor="process")
def hold_process(directory: str) -> str:
    _note(directory, "held")
    while not _may_go_on(directory):
        time.sleep(0.01)
    return "went on"


@app.task(type="block_loop", retry=SOON, timeout=1)
async def block_loop(directory: str, suspend: bool) -> str:
    """Holds the event loop at its first run."""
    if list(Path(directory).glob("held-*")):  # noqa: ASYNC240
        return "ran"
    _note(directory, "held")
    if suspend:
        await asyncio.sleep(0)
    time.sleep(120)  # noqa: ASYNC251
    return "never"


@app.task(type="deaf_thread", retry=SOON, timeout=0.2, executor="thread")
def deaf_thread(directory: str) -> str:
    """Does not return from its time-out, at its first run."""
    if list(Path(directory).glob("held-*")):
        return "ran"
    _note(directory, "held")
    time.sleep(120)
    return "never"


@app.task(type="grandchildren", retry=Retry(max_attempts=1), timeout=3, executor="process")
def grandchildren(directory: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
    Path(directory, "grandchild").write_text(str(child.pid))
    _note(directory, "held")
    time.sleep(120)


@app.task(type="suicide", retry=Retry(max_attempts=1), executor="process")
def suicide() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(type="where", retry=SOON, executor="process")
def where() -> int:
    return os.getpid()


@app.task(type="say", retry=SOON, executor="process")
def say(word: str) -> str:
    """Each of the ways to end, in a child process."""
    if current_job().attempt == 1:
        match word:
            case "snooze" if not _been_here(current_job().id):
                raise Snooze(0.05)
            case "retry":
                raise RetryAfter(0.05, "not yet")
            case "skip":
                raise Skip("no need")
            case "fail":
                raise _Unpicklable(1, 2)
    return word


class _Unpicklable(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__("an exception with arguments of its own")


def _been_here(job: object) -> bool:
    mark = Path(os.environ["CHAOS_JOURNAL"], f"been-{job}")
    seen = mark.exists()
    mark.touch()
    return seen


@app.task(type="too_slow_to_start", retry=Retry(max_attempts=1), timeout=0.01, executor="process")
def too_slow_to_start() -> None:
    """Its time is up before its child process is there."""
    time.sleep(120)


@app.task(type="deaf", retry=SOON)
async def deaf(directory: str) -> None:
    """Swallows every cancellation."""
    _note(directory, "held")
    while True:
        try:
            await asyncio.sleep(120)
        except asyncio.CancelledError:
            continue


@app.task(type="deaf_to_its_timeout", retry=SOON, timeout=0.2)
async def deaf_to_its_timeout(directory: str) -> str:
    """The same, at its first run."""
    if not list(Path(directory).glob("held-*")):  # noqa: ASYNC240
        await deaf.function(directory)
    return "ran"


@app.task(type="hold_beside", retry=SOON)
async def hold_beside(directory: str) -> str:
    """In a thread of asyncio's, which nobody can stop."""
    return await asyncio.to_thread(hold_thread.function, directory)


@app.task(type="exit_in_task", retry=SOON)
async def exit_in_task() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_exit())


async def _exit() -> None:
    sys.exit(0)
