"""docs/howto/queues.md: its program declares what it says, and the command takes the weights it shows."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.programs import DOCS, blocks, run_program
from watchbill.worker.queue_turns import split_weights

PAGE = "howto/queues.md"
_CHECK = """
print(send.queue, send.options.priority, transcode.max_per_node, sorted(app.queue_names()))
"""


def test_queue_guide_program_declares_queues(schema_database: str, tmp_path: Path) -> None:
    (program,) = blocks(PAGE)
    said = run_program(program + _CHECK, tmp_path, {"DATABASE_URL": schema_database})
    assert said.strip() == "mail 10 1 ['default', 'mail', 'reports']"


def test_queue_guide_shows_valid_weights() -> None:
    shown = set(re.findall(r"--queues (\S+:\d\S*)`", (DOCS / PAGE).read_text()))
    assert [split_weights(each.split(","))[1] for each in shown] == [{"mail": 3, "default": 1}]
