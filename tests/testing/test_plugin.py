"""The plugin in small projects, each run as its user would: in a process of its own, with warnings as errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLAIN = """
[pytest]
filterwarnings = error
addopts = -p no:randomly -p no:hypothesispytest --strict-markers
"""
CONFIGURATION = f"{PLAIN}asyncio_default_fixture_loop_scope = function\n"
TASKS = """
from watchbill import App

app = App("postgresql://nobody@nowhere.invalid/orders")
sent = []

@app.task
def send(to: str) -> int:
    sent.append(to)
    return len(to)

@app.task
async def asend(to: str) -> int:
    sent.append(to)
    return len(to)
"""
SYNC = """
import pytest
from tasks import app, send

@pytest.mark.parametrize("n", range(4))
def test_it_is_empty_and_works(watchbill, n):
    assert watchbill.jobs() == []
    job = send.enqueue("a@b.c")
    watchbill.assert_enqueued(send, to="a@b.c")
    assert [run.outcome for run in watchbill.drain()] == ["succeeded"]
    assert job.result(timeout=0) == 5
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in ("WATCHBILL_DATABASE_URL", "WATCHBILL_TEST_DATABASE_URL", "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    pytester.makefile(".ini", pytest=CONFIGURATION)
    pytester.makepyfile(tasks=TASKS)
    return pytester


def passed(result: pytest.RunResult, count: int) -> None:
    """xdist and our own outcomes alike; anything else shows the output."""
    assert result.parseoutcomes() == {"passed": count}, result.stdout.str()


def on(url: str) -> str:
    return f"--watchbill-database-url={url}"


def test_plugin_uses_the_embedded_server_by_default(project: pytest.Pytester) -> None:
    """Twice: cold, and with the data of the first time. Durations are shown, not judged."""
    project.makepyfile(test_sync=SYNC)
    for _ in range(2):
        result = project.runpytest_subprocess("--durations=3", "--durations-min=0.01")
        passed(result, 4)
    assert [path.name.split("-")[0] for path in (project.path / ".watchbill").iterdir()] == ["tests"]


def test_each_xdist_process_gets_its_own_database(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_sync=SYNC,
        test_where="""
            import pathlib, pytest

            @pytest.mark.parametrize("n", range(20))
            def test_where(watchbill, worker_id, n):
                pathlib.Path(worker_id).write_text(watchbill.database_url)
        """,
    )
    passed(project.runpytest_subprocess("-n", "2", "--dist", "each"), 48)
    first, second = (project.path / name for name in ("gw0", "gw1"))
    assert first.read_text() != second.read_text()


def test_xdist_leaves_nothing_on_a_named_database(project: pytest.Pytester, given_database: str) -> None:
    project.makepyfile(test_sync=SYNC)
    passed(project.runpytest_subprocess("-n", "2", on(given_database)), 4)
    with psycopg.connect(given_database) as connection:
        left = connection.execute("SELECT count(*) FROM pg_database WHERE datname ~ '_gw[0-9]+$'").fetchone()
        touched = connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'watchbill'").fetchone()
    assert (left, touched) == ((0,), (0,))


@pytest.mark.parametrize("way", ["option", "variable", "ini"])
def test_database_url_can_be_set_in_every_documented_way(
    project: pytest.Pytester, given_database: str, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    project.makepyfile(
        test_where=f"""
            from tasks import send

            def test_where(watchbill, watchbill_database):
                assert watchbill.database_url == watchbill_database.url == {given_database!r}
                send.enqueue("a@b.c")
                watchbill.drain(raising=True)
        """
    )
    if way == "variable":
        monkeypatch.setenv("WATCHBILL_TEST_DATABASE_URL", given_database)
    elif way == "ini":
        project.makefile(".ini", pytest=f"{CONFIGURATION}watchbill_database_url = {given_database}\n")
    passed(project.runpytest_subprocess(*([on(given_database)] if way == "option" else [])), 1)
    assert not (project.path / ".watchbill").exists()


def test_plugin_reads_other_settings_from_the_project(project: pytest.Pytester, given_database: str) -> None:
    (project.path / "watchbill.toml").write_text('schema = "jobs"\ndatabase_url = "postgresql://nowhere.invalid/x"\n')
    project.makepyfile(
        test_schema="""
            from tasks import app, send

            def test_schema(watchbill):
                send.enqueue("a@b.c")
                assert app.settings.schema == watchbill.schema == "jobs"
                assert len(watchbill.drain()) == 1
        """
    )
    passed(project.runpytest_subprocess(on(given_database)), 1)


def test_project_may_override_the_database_url_fixture(project: pytest.Pytester, given_database: str) -> None:
    project.makeconftest(
        f"""
        import pytest

        @pytest.fixture(scope="session")
        def watchbill_database_url():
            return {given_database!r}
        """
    )
    project.makepyfile(test_sync=SYNC)
    passed(project.runpytest_subprocess(), 4)


ASYNC = """
import asyncio
import pytest
from tasks import app, asend, send, sent

{mark}

@pytest.fixture
async def enqueued(watchbill):
    sent.clear()
    return await send.aenqueue("from a fixture")

@pytest.mark.parametrize("n", range(3))
async def test_it_works_on_the_loop(watchbill, enqueued, n):
    jobs = await asyncio.gather(*(asend.aenqueue("x" * n) for _ in range(5)))
    await watchbill.adrain(raising=True)
    assert len(sent) == 6
    assert await jobs[0].aresult(timeout=0) == n
    assert len(await app.jobs.alist()) == 6

def test_a_blocking_one_between(watchbill):
    send.enqueue("a@b.c")
    assert len(watchbill.drain()) == 1
    asyncio.run(asend.aenqueue("x"))
    assert len(watchbill.drain()) == 1
"""


def test_plugin_works_with_pytest_asyncio(project: pytest.Pytester, given_database: str) -> None:
    project.makefile(".ini", pytest=f"{CONFIGURATION}asyncio_mode = auto\n")
    project.makepyfile(test_async=ASYNC.format(mark=""))
    passed(project.runpytest_subprocess(on(given_database)), 4)


@pytest.mark.parametrize("scope", ["function", "session"])
def test_plugin_works_with_pytest_asyncio_in_strict_mode(
    project: pytest.Pytester, given_database: str, scope: str
) -> None:
    text = ASYNC.format(mark="import pytest_asyncio").replace("@pytest.fixture\n", "@pytest_asyncio.fixture\n")
    mark = f'@pytest.mark.asyncio(loop_scope="{scope}")\nasync def test'
    text = text.replace("async def test", mark)
    text = text.replace("@pytest_asyncio.fixture\n", f'@pytest_asyncio.fixture(loop_scope="{scope}")\n')
    project.makepyfile(test_async=text)
    passed(project.runpytest_subprocess(on(given_database)), 4)


def test_plugin_works_with_anyio(project: pytest.Pytester, given_database: str) -> None:
    mark = 'pytestmark = pytest.mark.anyio\n\n@pytest.fixture\ndef anyio_backend():\n    return "asyncio"'
    project.makefile(".ini", pytest=PLAIN)
    project.makepyfile(test_async=ASYNC.format(mark=mark))
    passed(project.runpytest_subprocess("-p", "no:asyncio", on(given_database)), 4)


def test_plugin_works_with_unittest(project: pytest.Pytester, given_database: str) -> None:
    project.makepyfile(
        test_case="""
            import unittest
            import pytest
            from tasks import asend, send

            class TestMail(unittest.TestCase):
                @pytest.fixture(autouse=True)
                def _queue(self, watchbill):
                    self.watchbill = watchbill

                def test_send(self):
                    send.enqueue("a@b.c")
                    self.assertEqual(len(self.watchbill.drain()), 1)

            class TestMailOnALoop(unittest.IsolatedAsyncioTestCase):
                @pytest.fixture(autouse=True)
                def _queue(self, watchbill):
                    self.watchbill = watchbill

                async def test_send(self):
                    await asend.aenqueue("a@b.c")
                    self.assertEqual(len(await self.watchbill.adrain()), 1)
        """
    )
    passed(project.runpytest_subprocess(on(given_database)), 2)


def test_pytest_output_shows_the_failing_line_of_a_handler(project: pytest.Pytester, given_database: str) -> None:
    project.makepyfile(
        test_failure="""
            from watchbill import App

            app = App()

            @app.task
            def work():
                raise LookupError("in the handler")

            def test_raising(watchbill):
                work.enqueue()
                watchbill.drain(raising=True)

            def test_assertion(watchbill):
                watchbill.assert_enqueued(work)
        """
    )
    result = project.runpytest_subprocess(on(given_database))
    assert result.parseoutcomes() == {"failed": 2}
    result.stdout.fnmatch_lines(['>*raise LookupError("in the handler")', "test_failure.py:*: LookupError"])
    result.stdout.fnmatch_lines([">*watchbill.assert_enqueued(work)", "E*No job test_failure.work was enqueued."])


def test_unreachable_database_prints_one_clear_message(project: pytest.Pytester) -> None:
    project.makepyfile(test_sync=SYNC)
    result = project.runpytest_subprocess(on("postgresql://nobody@127.0.0.1:1/x"), "-k", "0")
    assert result.parseoutcomes() == {"errors": 1, "deselected": 3}
    result.stdout.fnmatch_lines(["Cannot connect to database *: nothing listens there."])
    assert "Traceback" not in result.stdout.str()


def test_database_not_made_by_tests_is_refused_with_a_message(project: pytest.Pytester, schema_database: str) -> None:
    project.makepyfile(test_sync=SYNC)
    result = project.runpytest_subprocess(on(schema_database), "-k", "0")
    assert result.parseoutcomes() == {"errors": 1, "deselected": 3}
    refusals = [line for line in result.outlines if line.startswith("Schema 'watchbill' of database ")]
    assert len(refusals) == 1
    assert "was not made by a test run" in refusals[0]
    assert refusals[0].endswith("Nothing was touched.")


def test_unused_plugin_loads_nothing(project: pytest.Pytester) -> None:
    """The plugin is loaded in every run; only a fixture that is used brings in the rest."""
    project.makepyfile(
        test_modules="""
            import sys

            def test_modules():
                ours = {name for name in sys.modules if name.split(".")[0] == "watchbill"}
                assert ours == {"watchbill", "watchbill._version", "watchbill.testing", "watchbill.testing.plugin"}
                assert not {"psycopg", "pydantic", "orjson", "sqlalchemy", "asyncio"} & sys.modules.keys()
        """
    )
    project.makefile(".ini", pytest=PLAIN)
    passed(project.runpytest_subprocess("-p", "no:asyncio", "-p", "no:anyio"), 1)


def test_fixture_is_typed_for_mypy(project: pytest.Pytester) -> None:
    checked = """
        from watchbill.testing import Watchbill
        from tasks import send

        def test_types(watchbill: Watchbill) -> None:
            reveal_type(watchbill.drain())
            reveal_type(watchbill.assert_enqueued(send, to="a@b.c"))
            watchbill.advance(hour=1)
    """
    path = Path(project.makepyfile(test_types=checked))
    # With the options and the cache of `make lint`, which has checked the modules of Watchbill already.
    kept = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *kept, str(path)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=project.path).stdout
    assert 'Revealed type is "list[watchbill.testing.draining.Ran]"' in said
    assert 'Revealed type is "watchbill.model.job.JobRecord"' in said
    assert 'Unexpected keyword argument "hour"' in said
