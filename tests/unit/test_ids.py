"""Ids of jobs are UUIDs of version 7 that sort in the order in which a process makes them."""

from __future__ import annotations

import time
from uuid import RFC_4122, UUID

import pytest

from watchbill.model import ids
from watchbill.model.ids import IdMaker, new_id, new_ids


def test_id_is_an_ordinary_uuid_of_version_seven() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id()
    assert type(made) is UUID
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= time.time_ns() // 1_000_000 + 1


def test_ids_sort_in_the_order_of_creation() -> None:
    made = [new_id().int, *new_ids(5000), new_id().int, *new_ids(3), new_id().int]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_more_ids_than_the_counter_has_numbers_sort_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "time", type("Clock", (), {"time_ns": lambda: 1_700_000_000_000_000_000}))
    maker = IdMaker()
    made = [*maker.make((1 << 18) - 2), *maker.make(4)]
    assert made == sorted(made)
    assert {number >> 80 for number in made} == {1_700_000_000_000, 1_700_000_000_001}
    assert {UUID(int=number).version for number in made} == {7}
