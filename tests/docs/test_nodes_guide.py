"""docs/howto/nodes.md: its settings are valid."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.docs.programs import blocks
from watchbill.settings import Settings


def test_labels_of_the_guide_to_nodes_are_valid(tmp_path: Path) -> None:
    [text] = blocks("howto/nodes.md", "toml")
    (tmp_path / "watchbill.toml").write_text(text)
    assert tomllib.loads(text)
    assert Settings.load(project=tmp_path, environ={}).labels == (("gpu", "a100"), ("zone", "eu"))
