"""`watchbill up --dashboard`: pages beside the worker, which end with it."""

from __future__ import annotations

import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

from tests.acceptance.command import Watchbill
from tests.waiting import until

PATIENCE = 60


def test_up_serves_the_dashboard_beside_the_worker(schema_database: str, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(
        "from watchbill import App\n\napp = App()\n\n\n@app.task\ndef hello() -> None: ...\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    watchbill = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database, "WATCHBILL_DASHBOARD_PORT": str(port)})
    log = tmp_path / "up.log"
    with log.open("wb") as output:
        up = subprocess.Popen(watchbill.command("up", "--dashboard"), cwd=tmp_path, env=watchbill.environment(),
                              stdout=output, stderr=output, start_new_session=True)  # fmt: skip
    try:
        until(lambda: answers(port) or up.poll() is not None, PATIENCE)
        assert up.poll() is None, log.read_text()
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/types", timeout=PATIENCE).read().decode()
        assert "tasks.hello" in page or "No node has told its tasks yet" in page
        until(lambda: "node " in log.read_text() or up.poll() is not None, PATIENCE)
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE) == 0, log.read_text()
    assert not answers(port)
    assert f"Dashboard: http://127.0.0.1:{port}/" in log.read_text()


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0
