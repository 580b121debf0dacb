"""docs/howto/leader.md: its program runs on a node, and both of its leader tasks do what the page says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.programs import blocks, run_program

PAGE = "howto/leader.md"
_RUN = """
import time

with app.node(node_name="n1"):
    while app.cluster.leader("production") is None:
        time.sleep(0.01)
    deadline = time.monotonic() + 60
    import psycopg
    while time.monotonic() < deadline:
        with psycopg.connect(app.database_url) as connection:
            if connection.execute("SELECT to_regclass('feed') IS NOT NULL").fetchone()[0]:
                break
        time.sleep(0.01)
"""


def test_program_of_the_guide_to_leaders_runs(schema_database: str, tmp_path: Path) -> None:
    printed = run_program("\n".join(blocks(PAGE)) + _RUN, tmp_path, {"DATABASE_URL": schema_database})
    assert printed.splitlines() == [
        "n1 leads production",
        "following in a term True",
        "n1 leads no more: the node drains",
    ]
