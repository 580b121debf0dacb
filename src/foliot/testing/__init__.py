"""What we ship for your tests: a real queue that is empty when a test starts, and a clock that a test can move.

With pytest there is nothing to set up: ask for the fixture `foliot`. docs/howto/testing.md shows what it can do.

    plugin.py       the fixtures and options; loaded in every pytest run, so it imports nothing else
    fixture.py      Foliot, the object that a test is given
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
    from foliot.testing.database import Database
    from foliot.testing.fixture import Foliot
    from foliot.testing.runs import DrainFailed, NeverEnding, Ran

__all__ = ["Database", "DrainFailed", "Foliot", "NeverEnding", "Ran"]

_HOMES = {
    "Database": "foliot.testing.database",
    "DrainFailed": "foliot.testing.runs",
    "Foliot": "foliot.testing.fixture",
    "NeverEnding": "foliot.testing.runs",
    "Ran": "foliot.testing.runs",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: the plugin is loaded in every pytest run on the machine."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foliot.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
