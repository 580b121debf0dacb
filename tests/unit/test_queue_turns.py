"""Queues with weights: the order in which claims read them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchbill.errors import SettingsError
from watchbill.worker.queue_turns import QueueTurns, split_weights


def claim(turns: QueueTurns, backlog: dict[str, int], wanted: int) -> Counter[str]:
    """As the database does it: one queue after the other, until it has enough."""
    rows: list[Any] = []
    for queue in turns.choose_order(backlog):
        taken = min(backlog.get(queue, 0), wanted - len(rows))
        backlog[queue] = backlog.get(queue, 0) - taken
        rows += [SimpleNamespace(queue=queue)] * taken
    turns.note_answer(rows, wanted)
    return Counter(row.queue for row in rows)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=2),
    st.lists(st.integers(1, 50), min_size=1, max_size=60),
)
def test_queues_with_jobs_get_their_shares(weights: dict[str, int], sizes: list[int]) -> None:
    """Whatever the claims want, no queue is ahead of another by more than one claim."""
    turns, got = QueueTurns(weights), Counter[str]()
    for wanted in sizes:
        got += claim(turns, dict.fromkeys(weights, 10_000), wanted)
        shares = [got[queue] / weight for queue, weight in weights.items()]
        assert max(shares) - min(shares) <= max(sizes)


def test_an_empty_queue_does_not_save_up_turns() -> None:
    turns = QueueTurns({"mail": 1, "default": 1})
    backlog = {"default": 10_000}
    for _ in range(50):
        claim(turns, backlog, 10)
    backlog["mail"] = 10_000
    got = Counter[str]()
    for _ in range(10):
        got += claim(turns, backlog, 10)
    assert abs(got["mail"] - got["default"]) <= 10


def test_an_empty_queue_leaves_everything_to_the_others() -> None:
    turns = QueueTurns({"mail": 3, "default": 1})
    assert claim(turns, {"default": 5}, 5) == {"default": 5}


def test_a_queue_that_is_added_later_has_the_weight_one() -> None:
    turns = QueueTurns({"mail": 3})
    got = Counter[str]()
    for _ in range(40):
        got += claim(turns, {"mail": 100, "late": 100}, 1)
    assert got == {"mail": 30, "late": 10}


def test_weights_are_read_from_the_names_of_queues() -> None:
    assert split_weights(("mail", "default")) == (("mail", "default"), {})
    assert split_weights(("mail:3", "default")) == (("mail", "default"), {"mail": 3, "default": 1})
    assert split_weights(("eu:mail:3",)) == (("eu:mail",), {"eu:mail": 3})
    assert split_weights(("eu:mail", "default:2")) == (("eu:mail", "default"), {"eu:mail": 1, "default": 2})


@pytest.mark.parametrize("queue", ["mail:0", "mail:1001", "mail:-1", "mail:1.5", "mail:", ":3"])
def test_a_wrong_weight_is_not_taken_for_the_name_of_a_queue(queue: str) -> None:
    with pytest.raises(SettingsError, match=f"{queue} is invalid: a weight is a whole number from 1 to 1000"):
        split_weights((queue,))


def test_a_queue_has_one_weight() -> None:
    with pytest.raises(SettingsError, match="Queue mail is named twice"):
        split_weights(("mail:3", "default", "mail:1"))
