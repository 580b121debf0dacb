"""What we ship for your tests: a real queue that is empty when a test starts, and a clock that a test can move.

With pytest there is nothing to set up: ask for the fixture `watchbill`. docs/howto/testing.md shows what it can do.

    plugin.py       the fixtures and options; loaded in every pytest run, so it imports nothing else
    fixture.py      Watchbill, the object that a test is given
    database.py     a database for one process's tests: on the embedded server, or one that was named
    schema.py       the schema in it: made, marked test, emptied before each test
    stage.py        all Apps of the process on that database
    connections.py  connections that outlive a test's event loop
    draining.py     runs what is ready, here and now
    worker.py       the worker that does so
    runs.py         what was run, and what the test is told of it
    timetable.py    the clock moves from slot to slot, and schedules fire
    enqueued.py     finds jobs by task and payload, and tells what there is when none fits
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchbill.testing.database import Database
    from watchbill.testing.fixture import Watchbill
    from watchbill.testing.runs import DrainFailed, NeverEnding, Ran

__all__ = ["Database", "DrainFailed", "Watchbill", "NeverEnding", "Ran"]

_HOMES = {
    "Database": "watchbill.testing.database",
    "DrainFailed": "watchbill.testing.runs",
    "Watchbill": "watchbill.testing.fixture",
    "NeverEnding": "watchbill.testing.runs",
    "Ran": "watchbill.testing.runs",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: the plugin is loaded in every pytest run on the machine."""
    if name not in _HOMES:
        raise AttributeError(f"module 'watchbill.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
