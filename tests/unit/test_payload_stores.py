"""What every payload store does, and what the one of files does on a disk that may lose power."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from watchbill.errors import SettingsError
from watchbill.payloads import FileStore, PayloadStore, RemoteStore, new_key, open_store, read_job_id
from watchbill.settings import Settings

JOB = UUID("01901234-5678-7abc-8def-0123456789ab")
OURS = "fedcba98-0000-4000-8000-000000000000"
DIGEST = "0123456789abcdef" * 4


@pytest.fixture(params=["path", "file-url", "fsspec-memory", "fsspec-local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PayloadStore:
    places = {
        "path": str(tmp_path / "payloads"),
        "file-url": f"file://{tmp_path}/payloads",
        "fsspec-memory": f"memory://{uuid4()}",
        "fsspec-local": f"local://{tmp_path}/payloads",
    }
    return open_store(places[request.param])


def test_store_keeps_an_object_until_it_is_deleted(store: PayloadStore) -> None:
    key = new_key(JOB, OURS, DIGEST)
    store.put(key, b"{}")
    store.put(key, b"{}")
    assert store.get(key) == b"{}"
    store.delete(key)
    store.delete(key)
    with pytest.raises(FileNotFoundError):
        store.get(key)


def test_store_lists_its_days_and_keys(store: PayloadStore) -> None:
    assert store.days() == []
    assert list(store.keys("2026-01-01")) == []
    keys = [f"2026-01-0{day}/{uuid4()}-{OURS[:8]}-{DIGEST[:16]}" for day in (1, 1, 2)]
    for key in keys:
        store.put(key, b"{}")
    assert sorted(store.days()) == ["2026-01-01", "2026-01-02"]
    assert sorted(store.keys("2026-01-01")) == sorted(keys[:2])
    assert list(store.keys("2026-01-02")) == keys[2:]


def test_open_store_uses_fsspec_for_urls_only(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), FileStore)
    assert isinstance(open_store("memory://x"), RemoteStore)
    with pytest.raises(SettingsError, match="nowhere://x cannot be opened"):
        open_store("nowhere://x")


def test_without_fsspec_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(SettingsError, match=r"pip install '\.\[fsspec\]'"):
        open_store("s3://bucket")


def test_relative_store_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="an absolute path, or a URL"):
        Settings.load(project=tmp_path, environ={}, payload_store="payloads")


def test_job_of_reads_only_valid_keys_of_its_installation() -> None:
    key = new_key(JOB, OURS, DIGEST)
    assert read_job_id(key) == read_job_id(key, OURS) == JOB
    assert read_job_id(key, f"0{OURS[1:]}") is None, "of another installation"
    for other in (
        "../../etc/passwd",
        f"2026-01-01/{JOB}",
        f"2026-01-01/../{JOB}-{OURS[:8]}-{DIGEST[:16]}",
        "",
        f"x/{JOB}",
    ):
        assert read_job_id(other) is None


class PowerCut(BaseException):
    pass


def test_half_written_file_is_not_listed_and_later_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, key = FileStore(tmp_path), f"2026-01-01/{JOB}-{OURS[:8]}-{DIGEST[:16]}"

    def cut(number: int) -> None:
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", cut)
        with pytest.raises(PowerCut):
            store.put(key, b"{}")
    assert list(store.keys("2026-01-01")) == []
    left = tmp_path / "2026-01-01" / ".left-by-a-kill"
    left.write_bytes(b"{")
    assert list(store.keys("2026-01-01")) == []
    assert left.exists(), "somebody may be writing it"
    os.utime(left, (0, 0))
    assert list(store.keys("2026-01-01")) == []
    assert not left.exists()


def test_stored_file_mode_follows_the_umask(tmp_path: Path) -> None:
    store, key, before = FileStore(tmp_path), new_key(JOB, OURS, DIGEST), os.umask(0o022)
    try:
        store.put(key, b"{}")
    finally:
        os.umask(before)
    assert (tmp_path / key).stat().st_mode & 0o777 == 0o644


def test_missing_store_directory_is_not_reported_as_a_missing_object(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="is not a directory here"):
        FileStore(tmp_path / "not mounted").get(new_key(JOB, OURS, DIGEST))


def test_put_works_while_the_day_directory_is_being_deleted(tmp_path: Path) -> None:
    """Its directory goes with that."""
    store, done = FileStore(tmp_path), threading.Event()

    def put_and_delete() -> None:
        while not done.is_set():
            key = f"2026-01-01/{uuid4()}"
            store.put(key, b"{}")
            store.delete(key)

    with ThreadPoolExecutor(3) as threads:
        others = [threads.submit(put_and_delete) for _ in range(2)]
        try:
            for _ in range(500):
                store.put(key := f"2026-01-01/{uuid4()}", b"{}")
                store.delete(key)
        finally:
            done.set()
        assert [other.result() for other in others] == [None, None]
