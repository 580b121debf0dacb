"""The example shop: within its first minute every state is seen, a schedule has fired, and nothing ships twice."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psycopg

from watchbill.postgres.embedded import running_url
from tests.acceptance.command import Watchbill
from tests.waiting import until

SHOP = Path(__file__).parents[2] / "examples" / "shop"
STATES = {"queued", "running", "failed", "succeeded", "dead", "canceled"}


def test_every_state_is_seen_and_nothing_is_shipped_twice() -> None:
    project = Path(tempfile.mkdtemp(prefix="watchbill-shop-"))
    project.chmod(0o755)
    shutil.copy(SHOP / "app.py", project)
    (project / "pyproject.toml").touch()
    watchbill = Watchbill(project)
    with (project / "log").open("wb") as log:
        shop = subprocess.Popen(watchbill.command("up"), cwd=project, env=watchbill.environment(), stdout=log, stderr=log)
        try:
            seen = _watch(project)
        finally:
            shop.send_signal(signal.SIGINT)
            assert shop.wait(60) == 0, (project / "log").read_text()
    until(lambda: running_url(project) is None)
    shutil.rmtree(project)
    assert seen >= STATES


def _watch(project: Path) -> set[str]:
    until(lambda: "node " in (project / "log").read_text(), 60)
    seen: set[str] = set()
    with psycopg.connect(running_url(project) or "", autocommit=True) as connection:
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
