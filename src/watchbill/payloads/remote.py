"""Payloads wherever fsspec reaches: object stores, network file systems, memory (extra `fsspec`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from watchbill.errors import SettingsError


class RemoteStore:
    """`url` as fsspec reads it; credentials come from where its implementation looks for them."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise SettingsError(
                f"The payload store {url} needs fsspec, which is not installed.",
                hint="pip install 'watchbill[fsspec]', and what fsspec needs for that kind of URL, such as s3fs.",
            ) from None
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise SettingsError(f"The payload store {url} cannot be opened: {error}.") from None
        self._url = url

    def __repr__(self) -> str:
        return f"RemoteStore({self._url!r})"

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def get(self, key: str) -> bytes:
        found: bytes = self._files.cat_file(self._path(key))
        return found

    def delete(self, key: str) -> None:
        if self._files.exists(self._path(key)):
            with suppress(FileNotFoundError):  # another was quicker
                self._files.rm_file(self._path(key))

    def days(self) -> list[str]:
        return [name for name, kind in self._list("") if kind == "directory"]

    def keys(self, day: str) -> Iterator[str]:
        return (f"{day}/{name}" for name, _ in self._list(day))

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    def _list(self, below: str) -> list[tuple[str, str]]:
        """Names and kinds. fsspec may remember an older list, which others have changed meanwhile."""
        self._files.invalidate_cache()
        try:
            entries: list[dict[str, Any]] = self._files.ls(self._path(below), detail=True)
        except FileNotFoundError:
            return []
        return [(entry["name"].rstrip("/").rpartition("/")[2], entry["type"]) for entry in entries]
