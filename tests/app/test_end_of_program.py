"""What is left of an App when its program ends."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import atexit, sys, threading
atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))  # the first to register is the last
import watchbill
app = watchbill.App(sys.argv[1])
@app.task
def count(n: int) -> None: ...
count.enqueue(1)
"""


def test_program_that_never_closes_its_app_leaves_no_threads(schema_database: str) -> None:
    """From Python 3.13 on, a pool whose threads are still there then is waited for in vain, 20 seconds long."""
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, schema_database], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("['MainThread']\n", "", 0)
