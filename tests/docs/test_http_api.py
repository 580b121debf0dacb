"""The guide to the HTTP API: its examples enqueue one job and see its end, in each language that is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from tests.dashboard.api.test_work import serve
from tests.docs.programs import blocks
from tests.waiting import until
from watchbill import App
from watchbill.client import key_operations
from watchbill.dashboard import Dashboard

TOOLS = {"bash": ["bash", "-eu", "{}"], "js": ["node", "{}"], "go": ["go", "run", "{}"]}
NAMES = {"bash": "ask.sh", "js": "ask.mjs", "go": "ask.go"}


@pytest.mark.parametrize("language", TOOLS)
def test_an_example_enqueues_and_sees_the_end(language: str, schema_database: str, tmp_path: Path) -> None:
    tool, *words = TOOLS[language]
    needed = "curl" if language == "bash" else tool
    if shutil.which(needed) is None:
        pytest.skip(f"needs {needed}")
    (tmp_path / NAMES[language]).write_text(blocks("howto/http_api.md", language)[0])
    app = App(schema_database, name="shop")
    key = app.producer.run(key_operations.add_key("shop", "producer")).key
    with serve(Dashboard(app, auth=None, hosts=())) as address:
        command = [tool, *(word.format(tmp_path / NAMES[language]) for word in words)]
        program = subprocess.Popen(
            command,
            env=dict(os.environ) | {"WATCHBILL_ADDRESS": address, "WATCHBILL_API_KEY": key},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        answers: list[str] = []
        reader = threading.Thread(target=lambda: answers.extend(program.communicate()))
        reader.start()
        until(lambda: app.jobs.list(type="hello.greet") or program.poll() is not None)
        for job in app.jobs.list(type="hello.greet"):
            app.jobs.cancel(job.id)
        reader.join(60)
    app.close()
    assert program.returncode == 0, answers[1]
    assert json.loads(answers[0])["state"] == "canceled"
