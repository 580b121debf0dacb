"""Fixtures for tests that use Foliot as a person does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command import Foliot


@pytest.fixture
def foliot(tmp_path: Path) -> Foliot:
    (tmp_path / "project").mkdir()
    return Foliot(tmp_path / "project")
