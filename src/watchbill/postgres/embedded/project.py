"""Which directory is the project."""

from __future__ import annotations

from pathlib import Path

_MARKS = ("watchbill.toml", "pyproject.toml", ".git")


def find_project(start: Path | None = None) -> Path:
    """The nearest directory with a project's mark, at `start` (default: the current one) or above, else `start`."""
    first = (start or Path.cwd()).resolve()
    return next((directory for directory in (first, *first.parents) if _is_marked(directory)), first)


def _is_marked(directory: Path) -> bool:
    try:
        return any((directory / mark).exists() for mark in _MARKS)
    except PermissionError:
        return False
