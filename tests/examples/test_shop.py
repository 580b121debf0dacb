"""The example shop: within its first minute every state is seen, a schedule has fired, and nothing ships twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

from tests.acceptance.command import Watchbill
from tests.acceptance.terminal import terminal
from tests.acceptance.test_install_line import copy_repository
from tests.waiting import until
from watchbill.postgres.embedded import find_running_url

ROOT = Path(__file__).parents[2]
SHOP = ROOT / "examples" / "shop"
STATES = {"queued", "running", "failed", "succeeded", "dead", "canceled"}


def test_shop_reaches_every_state_and_ships_nothing_twice() -> None:
    project = Path(tempfile.mkdtemp(prefix="watchbill-shop-"))
    project.chmod(0o755)
    shutil.copy(SHOP / "app.py", project)
    (project / "pyproject.toml").touch()
    watchbill = Watchbill(project)
    with (project / "log").open("wb") as log:
        shop = subprocess.Popen(
            watchbill.command("up"), cwd=project, env=watchbill.environment(), stdout=log, stderr=log
        )
        try:
            seen = _watch(project)
        finally:
            shop.send_signal(signal.SIGINT)
            assert shop.wait(60) == 0, (project / "log").read_text()
    until(lambda: find_running_url(project) is None)
    shutil.rmtree(project)
    assert seen >= STATES


def test_make_up_ends_without_an_error_after_ctrl_c(tmp_path: Path) -> None:
    """In a copy of the repository with this environment, so that nothing is installed."""
    copy = copy_repository(tmp_path / "copy")
    for directory in (tmp_path, tmp_path.parent, tmp_path.parent.parent, copy):
        directory.chmod(0o755)
    (copy / ".venv").symlink_to(sys.prefix)
    (copy / ".venv" / ".example-installed").touch()
    with terminal(["make", "up"], copy, Watchbill(copy).environment(), 80) as shown:
        shown.wait_for("Ctrl-C drains the worker")
        assert f"cd {copy}/examples/shop && ../../.venv/bin/watchbill jobs" in shown.text
        shown.wait_for("app.charge")
        shown.press("\x03")
        shown.wait()
    assert "make:" not in shown.text
    until(lambda: find_running_url(copy) is None)


def test_make_up_installs_only_what_the_example_needs() -> None:
    planned = subprocess.run(
        ["make", "--dry-run", "up", "VENV=.nothing-here"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--editable '.[embedded,uvloop]'" in planned.stdout
    assert "dev" not in planned.stdout.replace("/dev/null", "")


def _watch(project: Path) -> set[str]:
    until(lambda: "node " in (project / "log").read_text(), 60)
    seen: set[str] = set()
    with psycopg.connect(find_running_url(project) or "", autocommit=True) as connection:
        until(lambda: connection.execute("SELECT to_regclass('shop.shipments')").fetchone() != (None,), 60)

        def look() -> bool:
            seen.update(state for (state,) in connection.execute("SELECT DISTINCT state FROM watchbill.job"))
            delivered = connection.execute("SELECT FROM shop.deliveries").rowcount
            return seen >= STATES and delivered > 0

        until(look, 90)
        half_shipped = """
            SELECT * FROM shop.shipments s FULL JOIN shop.orders o ON o.id = s.order_id
            WHERE (s.order_id IS NOT NULL) IS DISTINCT FROM (o.state = 'shipped')"""
        assert connection.execute(half_shipped).fetchall() == []  # in one statement, since the shop goes on
    return seen
