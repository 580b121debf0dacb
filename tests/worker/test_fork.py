"""After a fork, as with `gunicorn --preload` or multiprocessing: the child has an App whose pool is its parent's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import asyncio, os, sys, traceback
from watchbill import App

app = App(sys.argv[1])


@app.task
def work(number: int) -> int:
    return number + 1


@app.task
async def awork(number: int) -> int:
    return number + 1


def backends() -> list[int]:
    with app.client.connection() as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()").fetchall()
    return [pid for (pid,) in rows]


def in_child(function) -> None:
    """Ends without tidying up, as a web server's child may."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def blocking() -> None:
    with app.node():
        assert work.enqueue(1).result(timeout=30) == 2


def asynchronous() -> None:
    """Ten at once, and none of them on a connection of the parent's."""

    async def run() -> None:
        await asyncio.gather(*(awork.aenqueue(0) for _ in range(10)))
        async with app.aclient.connection() as connection:
            assert connection.pgconn.backend_pid not in parents
        async with app.node():
            assert await (await awork.aenqueue(1)).aresult(timeout=30) == 2

    asyncio.run(run())


def collected() -> None:
    """What the child has of its parent is thrown away; that must not end the parent's sessions."""
    import gc

    work.enqueue(1)
    app.client.close()
    app.producer.replace_runtime(None)
    gc.collect()


work.enqueue(0)  # opens the parent's pool
asyncio.run(awork.aenqueue(0))
parents = backends()
with app.client.connection() as used:  # in the midst of a transaction while we fork, but of no statement: a child of a
    # process whose other threads are inside the C library may hang, whatever we do
    with used.transaction():
        used.execute("SELECT 1")
        for function in (blocking, asynchronous, collected, blocking):
            in_child(function)
        used.execute("SELECT 1")
app.client.close()
with app.client._opening:  # another thread is about to open the pool
    in_child(blocking)
for _ in range(5):
    work.enqueue(0)
with app.node():
    assert work.enqueue(10).result(timeout=30) == 11
app.close()
print("all is well")
'''


def test_app_works_in_parent_and_forked_children(schema_database: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py", schema_database], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all is well\n"
