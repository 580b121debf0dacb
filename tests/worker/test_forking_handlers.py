"""Handlers that fork the worker: the worker goes on undisturbed, and no fork goes on as a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psycopg

PROGRAM = '''
import asyncio, multiprocessing, os, sys
from watchbill import App, AsyncConnection, Connection, Retry

app = App(sys.argv[1])
ONCE = Retry(max_attempts=1)


def fork() -> int | None:
    """In the parent the exit code of the fork, and None in the fork."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if (pid := os.fork()) else None


@app.task(retry=ONCE)
async def returns() -> int | None:
    return fork()


@app.task(retry=ONCE)
async def awaits() -> int | None:
    code = fork()
    await asyncio.sleep(0)
    return code


@app.task(retry=ONCE)
async def awaits_before() -> int | None:
    await asyncio.sleep(0)
    return fork()


@app.task(retry=ONCE)
async def awaits_before_and_after() -> int | None:
    await asyncio.sleep(0)
    code = fork()
    await asyncio.sleep(0.01)
    return code


@app.task(retry=ONCE)
async def raises() -> int | None:
    code = fork()
    if code is None:
        raise SystemExit(0)
    return code


@app.task(retry=ONCE)
async def in_its_own_task() -> int | None:
    async def work() -> int | None:
        return fork()

    return await asyncio.create_task(work())


@app.task(retry=ONCE)
def in_a_thread() -> int | None:
    return fork()


@app.task(retry=ONCE)
async def in_a_transaction(connection: AsyncConnection) -> int | None:
    await connection.execute("INSERT INTO effects VALUES (1)")
    return fork()


@app.task(retry=ONCE)
def in_a_blocking_transaction(connection: Connection) -> int | None:
    connection.execute("INSERT INTO effects VALUES (2)")
    return fork()


@app.task(retry=ONCE)
async def by_multiprocessing() -> int | None:
    process = multiprocessing.get_context("fork").Process(target=sys.exit, args=(1,))
    process.start()
    process.join()
    return process.exitcode


@app.task(retry=ONCE)
async def plain(n: int) -> int:
    return n


FORKING = [returns, awaits, awaits_before, awaits_before_and_after, raises, in_its_own_task, in_a_thread,
    in_a_transaction, in_a_blocking_transaction, by_multiprocessing]


async def main() -> None:
    async with app.node():
        for task in FORKING:
            job = await task.aenqueue()
            assert await job.aresult(timeout=30) == 1, task
            jobs = await app.aenqueue_many([plain.bind(n) for n in range(20)])
            assert [await job.aresult(timeout=30) for job in jobs] == list(range(20)), task
    await app.aclose()


asyncio.run(main())
try:
    os.waitpid(-1, os.WNOHANG)
    print("a fork lives on")
except ChildProcessError:
    print("all is well")
'''


def test_worker_goes_on_alone_when_a_handler_forks(schema_database: str, tmp_path: Path) -> None:
    with psycopg.connect(schema_database) as connection:
        connection.execute("CREATE TABLE effects (n int)")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", schema_database]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as program:
        try:
            output, errors = program.communicate(timeout=100)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)  # with its forks
    assert program.returncode == 0, errors
    assert output == "all is well\n"
    with psycopg.connect(schema_database) as connection:
        assert connection.execute("SELECT n FROM effects ORDER BY n").fetchall() == [(1,), (2,)]
        rows = connection.execute("SELECT DISTINCT state, attempt FROM watchbill.finished_jobs").fetchall()
    assert rows == [("succeeded", 1)]
