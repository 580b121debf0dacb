"""The token of a key."""

from __future__ import annotations

import hashlib

import pytest

from watchbill.cluster.hashing import HASHES, token_of, tokenizer


def test_md5_is_taken_as_a_whole_and_sha256_by_its_first_eight_bytes() -> None:
    """As the versions of JobSync did, so that a program that moves to Watchbill keeps its tokens."""
    first = hashlib.sha256(b"customer-7")
    assert token_of("customer-7", 10_000, "md5") == int(hashlib.md5(b"customer-7").hexdigest(), 16) % 10_000
    assert token_of("customer-7", 10_000, "sha256") == int(first.hexdigest()[:16], 16) % 10_000
    second = hashlib.sha256(first.digest()).hexdigest()
    assert token_of("customer-7", 10_000, "double_sha256") == int(second[:16], 16) % 10_000


@pytest.mark.parametrize("hash", HASHES)
def test_keys_spread_over_all_tokens(hash: str) -> None:
    token = tokenizer(100, hash)
    counts = [0] * 100
    for number in range(10_000):
        counts[token(f"customer-{number}")] += 1
    assert min(counts) > 50
    assert max(counts) < 200


def test_any_text_is_a_key() -> None:
    assert all(0 <= token_of(key, 7, name) < 7 for key in ("", "ключ", "\n", "x" * 10_000) for name in HASHES)


def test_an_unknown_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="hash='crc32' is invalid: give one of md5, sha256, double_sha256"):
        token_of("a", 10, "crc32")
