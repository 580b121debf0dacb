"""docs/howto/uniqueness.md: its blocks run from top to bottom as one program, which prints what the page says."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "uniqueness.md"


def test_every_block_runs_and_prints_what_the_page_says(schema_database: str, tmp_path: Path) -> None:
    text = PAGE.read_text()
    program = tmp_path / "shop.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WATCHBILL_")}
    environment |= {"DATABASE_URL": schema_database}
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
    assert done.stdout == "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))

    with psycopg.connect(schema_database, autocommit=True) as connection:
        for statement in "".join(re.findall(r"```sql\n(.*?)```", text, re.DOTALL)).split(";\n"):
            if statement.strip():
                assert connection.execute(statement.encode()).fetchall()[0][1] is False
    (line,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    command = [sys.executable, "-m", "watchbill.cli", *shlex.split(line)[1:], "--unchecked"]
    enqueued = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")
    assert enqueued.stdout.endswith("(exists already)\n"), enqueued.stderr
