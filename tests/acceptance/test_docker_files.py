"""deploy/docker: the files are valid, and what they start works. Images are built where an engine runs, not here."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.command import Watchbill
from tests.waiting import until
from watchbill.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
SERVICES: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
OURS = {name: service for name, service in SERVICES.items() if name != "database"}

APPLICATION = """
from pathlib import Path

from watchbill import App

app = App(name="shop")

@app.task(type="note")
def note(text: str) -> None:
    Path("notes").write_text(text)
"""


def run_tool(module: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, check=False)


def check_compose(file: Path) -> subprocess.CompletedProcess[str]:
    return run_tool("check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file))


def lint(file: Path) -> subprocess.CompletedProcess[str]:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert hadolint, "install the extra dev"
    return subprocess.run([hadolint, "--no-color", str(file)], capture_output=True, text=True, check=False)


def test_dockerfile_and_compose_file_are_valid(tmp_path: Path) -> None:
    assert (lint(DOCKER / "Dockerfile").stdout, check_compose(DOCKER / "compose.yaml").returncode) == ("", 0)
    root = tmp_path / "Dockerfile"
    root.write_text(DOCKERFILE.replace("USER 10001", "USER root"))
    assert "DL3002" in lint(root).stdout
    broken = tmp_path / "compose.yaml"
    broken.write_text((DOCKER / "compose.yaml").read_text().replace("restart:", "restarts:"))
    assert check_compose(broken).returncode == 1


def test_names_in_the_docker_files_exist() -> None:
    text = DOCKERFILE + (DOCKER / "compose.yaml").read_text()
    settings = {name.lower() for name in re.findall(r"WATCHBILL_([A-Z_]+)", text)}
    assert settings
    assert settings <= set(Settings.__dataclass_fields__)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [wanted] = re.findall(r"^watchbill\[(.*)\]$", (DOCKER / "requirements.txt").read_text())
    assert set(wanted.split(",")) <= set(project["optional-dependencies"])
    [version] = set(re.findall(r"FROM python:(\d\.\d+)-slim", DOCKERFILE))
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_worker_has_time_to_drain() -> None:
    grace = int(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert grace > Settings().drain_timeout + 10


def read_words(instruction: str) -> list[str]:
    """The words of an instruction that has them as a list, so that no shell stands between."""
    [words] = re.findall(rf"^{instruction} \[(.*)\]$", DOCKERFILE, re.MULTILINE)
    return re.findall(r'"([^"]*)"', words)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def shop(watchbill: Watchbill, schema_database: str) -> Watchbill:
    (watchbill.directory / "app.py").write_text(APPLICATION)
    variables = {name: value for service in OURS.values() for name, value in service["environment"].items()}
    command = watchbill.command("keys", "user", "ann")
    entry = subprocess.run(command, input="a long secret\n", capture_output=True, text=True, check=True).stdout.strip()
    watchbill.environ.update(
        variables,
        WATCHBILL_DATABASE_URL=schema_database,
        WATCHBILL_DASHBOARD_USERS=entry,
        WATCHBILL_HEALTH_PORT=str(free_port()),
    )
    return watchbill


def test_the_commands_of_the_containers_do_their_work(shop: Watchbill) -> None:
    """Each service starts as its container would, the probe of the image answers, and SIGTERM ends it with 0."""
    assert read_words("ENTRYPOINT") == ["watchbill"]
    assert shop(*OURS["migrate"]["command"]).returncode == 0
    enqueued = shop("jobs", "enqueue", "note", '{"text": "it ran"}')
    assert enqueued.returncode == 0, enqueued.stderr
    port = free_port()
    dashboard = [*OURS["dashboard"]["command"], "--port", str(port)]
    assert read_words("CMD")[-1] == OURS["worker"]["command"][0] == "worker"
    programs = [
        subprocess.Popen(shop.command(*words), cwd=shop.directory, env=shop.environment(), stdout=subprocess.DEVNULL)
        for words in (OURS["worker"]["command"], dashboard)
    ]
    try:
        probe = read_words("HEALTHCHECK .* CMD")[1:]
        until(lambda: shop.here(*probe).returncode == 0)
        until(lambda: (shop.directory / "notes").exists())
        until(lambda: asks_for_a_login(port))
    finally:
        for program in programs:
            program.send_signal(signal.SIGTERM)
    assert [program.wait(60) for program in programs] == [0, 0]
    assert (shop.directory / "notes").read_text() == "it ran"


def asks_for_a_login(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            return b"password" in page.read()
    except (urllib.error.URLError, ConnectionError):
        return False
