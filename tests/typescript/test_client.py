"""A TypeScript client that tools from npm generate from our OpenAPI document compiles, and enqueues."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import serve
from watchbill import App, Client
from watchbill.client import key_operations
from watchbill.dashboard import Dashboard

HERE = Path(__file__).parent
PACKAGES = ("openapi-typescript@7", "openapi-fetch@0.14", "typescript@5", "@types/node@22")
TSC = ("--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--moduleResolution", "nodenext",
       "--skipLibCheck")  # fmt: skip
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command in a directory with the packages and the two programs."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("there is no npm on this machine, so no TypeScript client is generated")
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    for name in ("client.ts", "wrong.ts"):
        shutil.copy(HERE / name, tmp_path)

    def run_one(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **variables}
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    installed = run_one("npm", "install", "--no-audit", "--no-fund", *PACKAGES)
    if installed.returncode != 0:
        pytest.skip(f"npm cannot install here, so no TypeScript client is generated: {installed.stderr[-200:]}")
    return run_one


@pytest.fixture
def place(schema_database: str) -> Iterator[tuple[str, str]]:
    """The address of a dashboard that asks for a login, and a key for it."""
    with Client(schema_database) as client:
        key = client.run(key_operations.add_key("typescript", "producer")).key
    app = App(schema_database, name="board")
    with serve(Dashboard(app, auth=None, hosts=())) as address:
        yield address, key
    app.close()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_generated_client_compiles_and_enqueues(run: Run, place: tuple[str, str], tmp_path: Path) -> None:
    address, key = place
    request = urllib.request.Request(f"{address}/api/v1/openapi.json", headers={"Authorization": f"Bearer {key}"})
    document = urllib.request.urlopen(request, timeout=60).read().decode()
    (tmp_path / "openapi.json").write_text(document)
    made = run("npx", "openapi-typescript", "openapi.json", "--default-non-nullable", "false", "-o", "schema.ts")
    assert made.returncode == 0, made.stderr
    checked = run("npx", "tsc", *TSC, "client.ts")
    assert checked.returncode == 0, checked.stdout
    wrong = run("npx", "tsc", *TSC, "wrong.ts")
    assert "Type 'number' is not assignable to type 'string'" in wrong.stdout
    assert run("npx", "tsc", *(word for word in TSC if word != "--noEmit"), "client.ts").returncode == 0
    done = run("node", "client.js", BASE=address, KEY=key)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said | {"id": "", "seq": int(said["seq"]) > 0} == {
        "id": "",
        "seq": True,
        "state": "queued",
        "found": 1,
        "status": 422,
    }
