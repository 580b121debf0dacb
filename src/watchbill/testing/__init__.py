"""For your tests: a real queue that is empty when a test starts, and a clock that a test can move.

With pytest there is nothing to set up: use the fixture `watchbill`. With unittest, and with Django's own runner, derive
your tests from WatchbillTestCase. See docs/howto/testing.md.

    plugin.py       the fixtures and options; loaded in every pytest run, so it imports nothing else
    cases.py        WatchbillTestCase, for unittest and Django
    fixture.py      Watchbill, the value of the fixture; finds jobs by task and payload
    database.py     a database for the tests of one process, with a schema that is emptied before each test
    session.py      puts all Apps of the process on that database, with connections that stay open between tests
    draining.py     runs all jobs that are ready, and returns their runs
    timetable.py    moves the clock from slot to slot, so that schedules fire
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from watchbill.testing.cases import WatchbillTestCase
    from watchbill.testing.database import Database
    from watchbill.testing.draining import DrainFailed, NeverEnding, Ran
    from watchbill.testing.fixture import Watchbill

__all__ = ["Database", "DrainFailed", "NeverEnding", "Ran", "Watchbill", "WatchbillTestCase"]

_HOMES = {
    "Database": "watchbill.testing.database",
    "DrainFailed": "watchbill.testing.draining",
    "Watchbill": "watchbill.testing.fixture",
    "NeverEnding": "watchbill.testing.draining",
    "Ran": "watchbill.testing.draining",
    "WatchbillTestCase": "watchbill.testing.cases",
}


def __getattr__(name: str) -> Any:
    """Imports a name at its first use, because pytest loads the plugin in every run on the machine."""
    if name not in _HOMES:
        raise AttributeError(f"module 'watchbill.testing' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
