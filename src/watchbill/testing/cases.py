"""WatchbillTestCase: gives tests with unittest, and so with Django's own test runner, a queue.

A test uses `self.watchbill`, which is the same as pytest's fixture `watchbill`. The class is the only base of a test,
or the first one: `class Orders(WatchbillTestCase, TestCase)`.

Without Django, all tests of the process share one database, which is dropped at the end of the process. A framework
that makes a database for its tests (`find_test_database`) drops it itself, so each test closes its connections there.
"""

from __future__ import annotations

import atexit
import os
import unittest
from contextlib import ExitStack

from watchbill.app.application import living_apps
from watchbill.settings import TEST_VARIABLE
from watchbill.testing.database import existing_database, open_database
from watchbill.testing.fixture import Watchbill, find_open_connection
from watchbill.testing.session import TestSession

_sessions: dict[int, TestSession] = {}  # by process id, because after a fork the child needs connections of its own


class WatchbillTestCase(unittest.TestCase):
    """A test with a real queue, which is empty when the test starts. Call `super().setUp()` in a setUp of your own."""

    watchbill: Watchbill
    watchbill_tenant: str | None = None  # the tenant for which the tests of the class act

    def setUp(self) -> None:
        with ExitStack() as stack:
            session = self._enter_session(stack)
            if find_open_connection() is None:  # with an open connection, Django rolls the test's transaction back
                session.empty_database()
                stack.callback(session.empty_database)  # so that tests of other classes find an empty database
            stack.enter_context(session.active(self.watchbill_tenant))
            self.watchbill = Watchbill(session)
            self.addCleanup(stack.pop_all().close)
        super().setUp()

    def _enter_session(self, stack: ExitStack) -> TestSession:
        for app in living_apps():
            if (found := app.producer.find_test_database(self)) is not None:
                session = TestSession(existing_database(*found))
                stack.callback(session.close)
                return session
        return _get_shared_session()


def _get_shared_session() -> TestSession:
    """Returns the session that all tests of this process share, and makes it at the first call."""
    if os.getpid() not in _sessions:
        stack = ExitStack()
        database = stack.enter_context(open_database(os.environ.get(TEST_VARIABLE) or None))
        session = _sessions[os.getpid()] = TestSession(database)
        stack.callback(session.close)
        atexit.register(stack.close)
    return _sessions[os.getpid()]
