"""Fixtures for tests that use Watchbill as a person does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.command import Watchbill


@pytest.fixture
def watchbill(tmp_path: Path) -> Watchbill:
    (tmp_path / "project").mkdir()
    return Watchbill(tmp_path / "project")
