"""docs/howto/chains.md: its blocks run from top to bottom as one program, which prints what the page says it does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "chains.md"

_AT_THE_END = """
import asyncio
from dataclasses import replace
start_flow.enqueue()
node = app.make_node()
node.config = replace(node.config, once=True)
asyncio.run(node.run())
"""


def test_every_block_runs_and_every_job_ends_as_the_page_says(schema_database: str, tmp_path: Path) -> None:
    text = PAGE.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    said = "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))
    program = tmp_path / "shop.py"
    program.write_text("\n".join([*blocks, _AT_THE_END]))
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for statement in re.findall(r"```sql\n(.*?)```", text, re.DOTALL):
            connection.execute(statement.encode())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WATCHBILL_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        env=environment | {"DATABASE_URL": schema_database},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == said
    with psycopg.connect(schema_database) as connection:
        ended = connection.execute("SELECT type, state, result FROM watchbill.job ORDER BY seq").fetchall()
    assert ("shop.publish", "succeeded", "Rows: 11") in ended
    assert ("shop.publish", "dead", None) in ended  # more than 100
    assert [state for task, state, _ in ended if task == "shop.send_alert"] == ["succeeded", "succeeded"]
    assert {state for _, state, _ in ended} == {"succeeded", "dead"}
