"""What a child process imports."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import multiprocessing
import os
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from watchbill import App, Batch, BatchFailed, Skip, current_job

app = App()

FORKS: dict[str, Callable[[], int]] = {"os": os.fork, "libc": ctypes.CDLL(None).fork}
said = 0


@app.task(executor="process")
def whoami() -> int:
    return os.getpid()


@app.task(executor="process")
def skip() -> list[int]:
    raise Skip("nothing to do", result=[0])


@app.task(executor="process")
def die(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


@app.task(executor="process")
def fork_and_die(way: str) -> None:
    """Its fork has all that it had, and lives on."""
    if FORKS[way]() == 0:
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def fork_and_return() -> int:
    """Twice, since it forgets to end its fork, which is the first to do so."""
    if fork := os.fork():
        os.waitpid(fork, 0)
    return os.getpid()


@app.task(executor="process")
def write_to_every_socket(size: int) -> None:
    """As a program does that takes the number of a descriptor for another's."""
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.stat().st_mode):
                os.write(int(path.name), b"x" * size)


@app.task(executor="process")
def write_to_every_socket_later() -> int:
    """When this job has ended."""
    threading.Timer(0.2, write_to_every_socket, kwargs={"size": 20}).start()
    return os.getpid()


@app.task(executor="process")
def leave_a_thread() -> None:
    """Which tells of progress when this job has ended."""
    job = current_job()

    def speak() -> None:
        global said
        while True:
            job.progress("of one that has ended")
            said += 1
            time.sleep(0.001)

    threading.Thread(target=speak, daemon=True).start()


@app.task(executor="process")
def listen_to_it() -> None:
    heard = said
    while said < heard + 2:
        time.sleep(0.001)


@app.task(executor="process")
def show_what_cannot_be_sent() -> None:
    current_job().progress(lambda: None)


@app.task(executor="process")
def is_canceled() -> bool:
    return current_job().canceled


@app.task(executor="process")
def terminate_what_it_starts() -> list[int]:
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    interrupted = subprocess.Popen(["sleep", "60"])
    interrupted.send_signal(signal.SIGINT)
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    return [program.wait(), interrupted.wait(), process.exitcode or 0]


@app.task(executor="process")
def directory() -> str:
    return str(Path.cwd())


@app.task(executor="process", batch=Batch(size=10))
def square_all(numbers: list[int]) -> list[int]:
    if numbers == [0]:
        os.kill(os.getpid(), signal.SIGKILL)
    failed: dict[int, BaseException] = {n: ValueError(f"{n} is bad") for n, each in enumerate(numbers) if each < 0}
    if failed:
        raise BatchFailed(failed, results=[each * each for each in numbers])
    return [each * each for each in numbers]


@app.task(executor="process", batch=Batch(size=10))
def wait_for_cancels(numbers: list[int]) -> list[bool]:
    """Returns which of its jobs were canceled, once one was."""
    jobs = current_job().batch
    while not any(job.canceled for job in jobs):
        time.sleep(0.01)
    return [job.canceled for job in jobs]


@app.task(executor="process")
def sleep() -> None:
    time.sleep(60)


@app.task(executor="process")
def log(lines: int) -> None:
    for number in range(lines):
        logging.getLogger("shop").warning("line %d", number)
