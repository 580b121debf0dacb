from __future__ import annotations

from pathlib import Path

import pytest

from watchbill.postgres.embedded import find_project


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git"])
def test_find_project_returns_the_nearest_marked_parent(tmp_path: Path, mark: str) -> None:
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / mark).touch()
    deep = inner / "a" / "b"
    deep.mkdir(parents=True)
    assert find_project(deep) == inner
    assert find_project(inner) == inner


def test_find_project_without_a_marker_returns_the_start(tmp_path: Path) -> None:
    assert find_project(tmp_path) == tmp_path.resolve()


def test_find_project_starts_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert find_project() == tmp_path.resolve()
    assert find_project(Path()) == tmp_path.resolve()


def test_find_project_follows_symlinks(tmp_path: Path) -> None:
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()
    (tmp_path / "link").symlink_to(tmp_path / "project" / "src")
    assert find_project(tmp_path / "link") == (tmp_path / "project").resolve()
