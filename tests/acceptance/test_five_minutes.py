"""The first five minutes, as the README tells them; then broken: one screen, no traceback, and the way out."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until
from watchbill.postgres.embedded import find_running_url

README = (Path(__file__).parents[2] / "README.md").read_text()
[TASKS] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [shlex.split(line, comments=True) for line in re.findall(r"^\$ (.*)$", README, re.MULTILINE)]
PATIENCE = 60


@contextmanager
def new_project(python: str = sys.executable) -> Iterator[Watchbill]:
    """Open to all, as a home mostly is: a server started by root runs as another user, who must get in."""
    directory = Path(tempfile.mkdtemp(prefix="watchbill-five-"))
    directory.chmod(0o755)
    (directory / "pyproject.toml").touch()
    (directory / "tasks.py").write_text(TASKS)
    yield Watchbill(directory, python=python)
    until(lambda: find_running_url(directory) is None)
    shutil.rmtree(directory)


@pytest.fixture
def project() -> Iterator[Watchbill]:
    with new_project() as made:
        yield made


class Up:
    """A running `watchbill up` and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log

    @property
    def said(self) -> str:
        return self._log.read_text()

    def wait_for(self, words: str) -> None:
        until(lambda: words in self.said or self.process.poll() is not None, PATIENCE)
        assert words in self.said, self.said


@contextmanager
def up(project: Watchbill, *words: str) -> Iterator[Up]:
    log = project.directory / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            project.command("up", *words),
            cwd=project.directory,
            env=project.environment(),
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            yield Up(process, log)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(PATIENCE)


def python(project: Watchbill, code: str) -> str:
    done = subprocess.run(
        [project.python, "-c", code], cwd=project.directory, env=project.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_readme_quickstart_works(project: Watchbill) -> None:
    walk_through_readme(project)


def walk_through_readme(project: Watchbill) -> None:
    with up(project) as running:
        running.wait_for("node ")
        assert "PostgreSQL" in running.said
        assert "embedded, .watchbill/" in running.said
        assert "tasks:app   1 task  1 queue (default)  1 schedule" in running.said
        job = project("jobs", "enqueue", "tasks.hello", '{"name": "you"}').stdout.strip()
        running.wait_for(f"tasks.hello  {job}")
        [code] = [words[2] for words in COMMANDS if words[0] == "python"]
        assert python(project, code.replace("timeout=5", "timeout=60")) == "hello me"
        assert "succeeded" in project("jobs", "show", job).stdout
        typed = [words[1:] for words in COMMANDS if words[0] == "watchbill" and words[1] != "up"]
        said = {tuple(words): project(*words).stdout for words in typed}
        assert "default" in said["queues",]
        assert job in said["jobs",]
        assert said["schedules", "why", "tasks.hello"].startswith("tasks.hello fires ")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(PATIENCE) == 0
    assert find_running_url(project.directory) is None, "PostgreSQL must stop with the last one who uses it"

    with up(project) as again:
        again.wait_for("node ")
        assert "succeeded" in project("jobs", "show", job).stdout, "yesterday's data is still there"


def test_up_with_fast_retries_shows_a_dead_job_in_seconds(project: Watchbill) -> None:
    (project.directory / "tasks.py").write_text(
        TASKS.replace('return f"hello {name}"', 'raise ConnectionError("down")')
    )
    with up(project, "--fast-retries") as running:
        running.wait_for("node ")
        job = project("jobs", "enqueue", "tasks.hello", '{"name": "you"}').stdout.strip()
        running.wait_for(f"{job}  attempt 5 of 5: ConnectionError: down")


def test_up_restarts_the_worker_when_a_file_changes(project: Watchbill) -> None:
    with up(project) as running:
        running.wait_for("node ")
        (project.directory / "tasks.py").write_text(TASKS.replace('f"hello {name}"', 'f"good day, {name}"'))
        running.wait_for("The code has changed")
        code = "from tasks import hello; print(hello.enqueue('me').result(timeout=20))"
        assert python(project, code) == "good day, me"


def test_killed_up_loses_no_job_and_leaves_no_process(project: Watchbill) -> None:
    with up(project) as running:
        running.wait_for("node ")
        project("queues", "pause", "default")
        job = project("jobs", "enqueue", "tasks.hello", '{"name": "you"}').stdout.strip()
        url = find_running_url(project.directory)
        assert url is not None
        with psycopg.connect(url) as connection:
            ((worker,),) = connection.execute("SELECT pid FROM watchbill.nodes WHERE state = 'active'").fetchall()
        running.process.kill()
        running.process.wait()
    until(lambda: not Path(f"/proc/{worker}").exists(), PATIENCE)
    until(lambda: find_running_url(project.directory) is None, PATIENCE)
    with up(project) as again:
        again.wait_for("node ")
        assert "queued" in project("jobs", "show", job).stdout
        project("queues", "resume", "default")
        again.wait_for(f"tasks.hello  {job}")


def test_commands_say_that_the_embedded_server_is_stopped(project: Watchbill) -> None:
    with up(project) as running:
        running.wait_for("node ")
    until(lambda: find_running_url(project.directory) is None, PATIENCE)
    stopped = project("jobs")
    assert stopped.returncode == 3
    assert f"The embedded PostgreSQL of {project.directory} is stopped." in stopped.stderr
    assert "`watchbill up` starts it" in stopped.stderr


@pytest.mark.parametrize(
    ("words", "code", "what", "way_out"),
    [
        (["jobs"], 3, "No database address is set", "watchbill up"),
        (["worker", "nothing:app"], 4, "no module 'nothing'", "package.module:app"),
        (["worker", "tasks:nobody"], 4, "tasks:nobody does not exist", "tasks:app"),
        (["jobs", "enqueue", "tasks.hello", "{name"], 2, "Invalid JSON in payload", "quote it"),
        (["jobs", "enqueue", "tasks.hello", '{"nmae": "x"}'], 2, "nmae is unknown", "It takes (name: str)"),
        (["jobs", "list", "--state", "waiting"], 2, "The state 'waiting' is invalid", "queued"),
        (["--database-url", "postgresql://127.0.0.1:1/x", "jobs"], 3, "nothing listens there", "Start PostgreSQL"),
    ],
    ids=["no database", "wrong module", "wrong name", "no JSON", "unknown argument", "no such state", "nobody there"],
)
def test_errors_fit_on_one_screen_and_show_the_fix(
    project: Watchbill, words: list[str], code: int, what: str, way_out: str
) -> None:
    address = {"WATCHBILL_DATABASE_URL": "postgresql://127.0.0.1:1/x"} if words[1:2] == ["enqueue"] else {}
    done = project(*words, **address)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert what in said
    assert way_out in said
    assert "Traceback" not in said
    assert len(said.splitlines()) < 25


def test_broken_module_error_hides_watchbill_frames(project: Watchbill) -> None:
    (project.directory / "tasks.py").write_text("import watchbill\n\n1 / 0\n")
    done = project("worker")
    assert done.returncode == 4
    assert "ZeroDivisionError" in done.stderr
    assert 'tasks.py", line 3' in done.stderr
    assert "discovery.py" not in done.stderr


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('@app.schedule("0 25 * * *", arguments={"name": "x"})', "hour: '25' is not in 0 to 23"),
        ('@app.schedule("0 9 * * *")', "name is missing"),
    ],
    ids=["bad pattern", "missing argument"],
)
def test_invalid_declaration_error_shows_its_line(project: Watchbill, line: str, what: str) -> None:
    (project.directory / "tasks.py").write_text(
        f"from watchbill import App\n\napp = App()\n\n\n{line}\n@app.task\ndef hello(name: str) -> None: ...\n"
    )
    done = project.here("worker")
    assert done.returncode == 4
    assert 'tasks.py", line 6' in done.stderr
    assert what in done.stderr
    assert "registry.py" not in done.stderr
    assert len(done.stderr.splitlines()) < 12


def test_discovery_skips_apps_of_other_frameworks(project: Watchbill, schema_database: str) -> None:
    """As in a project whose app.py has a web framework's."""
    (project.directory / "app.py").write_text("class Flask: ...\n\n\napp = Flask()\n")
    done = project("worker", "--once", WATCHBILL_DATABASE_URL=schema_database)
    assert "tasks:app" in done.stdout, done.stderr
    (project.directory / "tasks.py").unlink()
    done = project("worker")
    assert "No application was found" in done.stderr
    assert "app in app.py is a Flask" in done.stderr
    assert "package.module:app" in done.stderr


def test_up_without_an_application_starts_nothing(project: Watchbill) -> None:
    (project.directory / "tasks.py").unlink()
    done = project("up")
    assert done.returncode == 4
    assert "No application was found" in done.stderr
    assert not (project.directory / ".watchbill").exists()


def test_enqueue_by_type_uses_the_options_of_the_task(project: Watchbill, schema_database: str) -> None:
    (project.directory / "tasks.py").write_text(TASKS.replace("timeout=30", 'timeout=30, queue="mail"'))
    environment = {"WATCHBILL_DATABASE_URL": schema_database}
    done = project("jobs", "enqueue", "tasks.hello", '{"name": "you"}', "--priority", "3", **environment)
    assert done.returncode == 0, done.stderr
    with psycopg.connect(schema_database) as connection:
        row = connection.execute("SELECT queue, priority, timeout FROM watchbill.jobs").fetchone()
    assert row == ("mail", 3, 30.0)
    unknown = project("jobs", "enqueue", "tasks.helo", **environment)
    assert unknown.returncode == 2
    assert "Did you mean tasks.hello?" in unknown.stderr
    assert project("jobs", "enqueue", "tasks.helo", "--unchecked", **environment).returncode == 0
    (project.directory / "tasks.py").write_text("import nothing_of_that_name_here_watchbill\n")
    assert project("jobs", "enqueue", "tasks.hello", **environment).returncode == 0, "a producer needs no code"


def test_an_unknown_argument_is_refused_at_enqueue(project: Watchbill) -> None:
    code = "from tasks import hello\ntry: hello.enqueue(nmae='x')\nexcept Exception as error: print(error)"
    said = python(project, code)
    assert "nmae" in said
    assert "It takes (name: str)" in said


def test_worker_without_a_schema_names_the_migrate_command(project: Watchbill, database: str) -> None:
    done = project("worker", WATCHBILL_DATABASE_URL=database)
    assert done.returncode == 3
    assert "watchbill db migrate" in done.stderr
    assert "Traceback" not in done.stderr


def test_worker_uses_the_address_in_the_code(project: Watchbill, schema_database: str) -> None:
    """And wins over the environment, as the App says of itself."""
    (project.directory / "tasks.py").write_text(TASKS.replace("App()", f"App({schema_database!r}, concurrency=3)"))
    done = project("worker", "--once", "--queues", "mail", WATCHBILL_DATABASE_URL="postgresql://127.0.0.1:1/x")
    assert done.returncode == 0, done.stderr
    assert "1 queue (mail)" in done.stdout
    assert "at most 3 handlers at once: up to 3 async, 3 in threads, " in done.stdout
    assert "(from the argument database_url)" in done.stdout
    assert "up to 24 connections" in done.stdout


def test_every_command_uses_the_address_in_the_code(project: Watchbill, schema_database: str) -> None:
    """An address in the code wins over the environment for all of them; only the command line wins over the code."""
    nowhere = {"WATCHBILL_DATABASE_URL": "postgresql://127.0.0.1:1/x", "WATCHBILL_SCHEMA": "nothing_there"}
    (project.directory / "tasks.py").write_text(TASKS.replace("App()", f"App({schema_database!r}, schema='watchbill')"))
    assert project("jobs", "enqueue", "tasks.hello", '{"name": "you"}', **nowhere).returncode == 0
    assert "tasks.hello" in project("jobs", **nowhere).stdout
    for words in (("db", "status"), ("stats",), ("schedules",), ("queues",)):
        done = project(*words, **nowhere)
        assert done.returncode == 0, words
    assert "CREATE SCHEMA watchbill" in project("db", "sql", "--all", **nowhere).stdout.replace('"', "")
    told = project("jobs", "--database-url", nowhere["WATCHBILL_DATABASE_URL"])
    assert (told.returncode, "nothing listens there" in told.stderr) == (3, True)


def test_child_processes_use_the_database_of_the_worker(project: Watchbill, schema_database: str) -> None:
    """They import the App anew; and what a task starts there is a program of its own."""
    (project.directory / "tasks.py").write_text(
        "import os\n\nfrom watchbill import App\n\napp = App('postgresql://127.0.0.1:1/x', schema='elsewhere')\n\n\n"
        "@app.task(executor='process')\ndef parent() -> list[str]:\n    child.enqueue()\n"
        "    return [name for name in os.environ if 'WATCHBILL_SETTINGS' in name]\n\n\n"
        "@app.task\ndef child() -> None: ...\n"
    )
    told = ("--database-url", schema_database, "--schema", "watchbill")
    assert project("jobs", "enqueue", "tasks.parent", *told).returncode == 0
    done = project("worker", "--once", *told)
    assert done.returncode == 0, done.stderr
    with psycopg.connect(schema_database) as connection:
        ended = connection.execute("SELECT type, state, result FROM watchbill.job ORDER BY type").fetchall()
    assert ended == [("tasks.child", "succeeded", None), ("tasks.parent", "succeeded", [])]


@pytest.mark.parametrize(
    ("ending", "said"),
    [("import nothing_of_this_name", "ModuleNotFoundError: No module named"), ("raise SystemExit(5)", "SystemExit: 5")],
)
def test_jobs_command_warns_about_a_broken_app_and_goes_on(
    project: Watchbill, schema_database: str, ending: str, said: str
) -> None:
    (project.directory / "tasks.py").write_text(f"{TASKS}\n{ending}\n")
    done = project("jobs", WATCHBILL_DATABASE_URL=schema_database)
    assert done.returncode == 0
    assert "Continuing without the App" in done.stderr
    assert said in done.stderr
    assert project("worker", WATCHBILL_DATABASE_URL=schema_database).returncode == 4


def test_up_starts_no_database_when_the_code_has_an_address(project: Watchbill, database: str) -> None:
    """It makes the schema there, under the name that the code gives; and the other commands look there too."""
    (project.directory / "tasks.py").write_text(TASKS.replace("App()", f"App({database!r}, schema='work')"))
    with up(project) as running:
        running.wait_for("node ")
        assert "(from the argument database_url)   schema work v" in running.said
        assert running.said.count("schema work") == 1
        assert not (project.directory / ".watchbill").exists()
        assert "work" in project("db", "status").stdout
        assert project("jobs").returncode == 0
