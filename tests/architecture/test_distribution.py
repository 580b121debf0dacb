"""Wheel and sdist: two builds are equal, an index would take them, and they contain what they should."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest
from tools import build_distribution

ROOT = Path(__file__).parents[2]
EMPTY = urlsafe_b64encode(sha256(b"").digest()).decode().rstrip("=")


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return build_distribution.build(tmp_path_factory.mktemp("dist"))


def tracked(*paths: str) -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *paths],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


def test_two_builds_of_one_commit_are_equal(distribution: list[Path], tmp_path: Path) -> None:
    again = build_distribution.build(tmp_path / "again")
    assert build_distribution.differences(distribution, again) == []
    again[0].write_bytes(again[0].read_bytes() + b"\0")
    assert build_distribution.differences(distribution, again) == [again[0].name]


def test_an_index_would_accept_the_files(distribution: list[Path]) -> None:
    build_distribution.check(distribution)


def test_check_refuses_a_wheel_with_a_foreign_package(distribution: list[Path], tmp_path: Path) -> None:
    [wheel] = [path for path in distribution if path.suffix == ".whl"]
    spoiled = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as original, zipfile.ZipFile(spoiled, "w") as archive:
        for name in original.namelist():
            foreign = f"tests/__init__.py,sha256={EMPTY},0\n" if name.endswith("/RECORD") else ""
            archive.writestr(name, original.read(name) + foreign.encode())
        archive.writestr("tests/__init__.py", "")
    with pytest.raises(SystemExit, match="common toplevel name"):
        build_distribution.check([spoiled])


def test_wheel_contains_every_file_of_the_package(distribution: list[Path]) -> None:
    """The .sql files above all: without them an installed Watchbill cannot migrate."""
    [wheel] = [path for path in distribution if path.suffix == ".whl"]
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {name.removeprefix("src/") for name in tracked("src")}
    assert {"watchbill/py.typed", "watchbill/store/migrations/0001_jobs.sql"} <= expected
    assert packed == expected


def test_sdist_contains_source_and_pages_and_nothing_else(distribution: list[Path]) -> None:
    [sdist] = [path for path in distribution if path.suffix == ".gz"]
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    ours = tracked("src", "docs", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "pyproject.toml", ".gitignore")
    assert packed == ours | {"PKG-INFO"}
