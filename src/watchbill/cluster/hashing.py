"""The token of a key. SQL computes the same numbers in `_token_of` (store/sql/cluster/tokens.sql)."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import md5, sha256

HASHES = ("md5", "sha256", "double_sha256")


def token_of(key: str, total: int, hash: str = "md5") -> int:
    """The token of a key, from 0 to total - 1. A key never changes its token."""
    return tokenizer(total, hash)(key)


def tokenizer(total: int, hash: str = "md5") -> Callable[[str], int]:
    """A function from a key to its token, for callers that ask for many."""
    if hash == "md5":
        return lambda key: int.from_bytes(md5(key.encode(), usedforsecurity=False).digest(), "big") % total
    if hash == "sha256":
        return lambda key: int.from_bytes(sha256(key.encode()).digest()[:8], "big") % total
    if hash == "double_sha256":
        return lambda key: int.from_bytes(sha256(sha256(key.encode()).digest()).digest()[:8], "big") % total
    raise ValueError(f"hash={hash!r} is invalid: give one of {', '.join(HASHES)}")
