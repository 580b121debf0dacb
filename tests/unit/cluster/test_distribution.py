"""Division of tokens among owners: balanced, and never with more moves than needed."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from watchbill.cluster.distribution import plan_moves, shares


def fewest_moves(total: int, owners: list[str], current: dict[int, str]) -> int:
    """By trying every balanced assignment."""
    least = total
    for assignment in itertools.product(owners, repeat=total):
        counts = Counter(assignment)
        if max(counts[owner] for owner in owners) - min(counts[owner] for owner in owners) <= 1:
            least = min(least, sum(current.get(token) != owner for token, owner in enumerate(assignment)))
    return least


small_cases = st.tuples(
    st.integers(1, 6),
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
    st.dictionaries(st.integers(0, 5), st.sampled_from("abcde")),
)


@given(small_cases)
@settings(max_examples=150, deadline=None)
def test_no_balanced_assignment_moves_fewer_tokens(case: tuple[int, list[str], dict[int, str]]) -> None:
    total, owners, current = case
    current = {token: owner for token, owner in current.items() if token < total}
    assert len(plan_moves(range(total), owners, current)) == fewest_moves(total, owners, current)


large_cases = st.tuples(
    st.integers(0, 500), st.lists(st.integers(1, 40), min_size=1, max_size=30, unique=True), st.randoms()
)


@given(large_cases)
@settings(max_examples=100, deadline=None)
def test_every_owner_has_its_share_within_one(case: tuple[int, list[int], object]) -> None:
    total, owners, random = case
    current = {token: random.randint(0, 50) for token in range(total)}  # type: ignore[attr-defined]
    moves = plan_moves(range(total), owners, current)
    after = Counter((current | moves).values())
    assert sum(after.values()) == total
    assert set(after) <= set(owners)
    assert max(after[owner] for owner in owners) - min(after[owner] for owner in owners) <= 1
    assert all(current.get(token) != owner for token, owner in moves.items())
    assert plan_moves(range(total), owners, current | moves) == {}


def test_first_assignment_divides_everything() -> None:
    assert Counter(plan_moves(range(100), ["a", "b", "c"], {}).values()) == {"a": 34, "b": 33, "c": 33}


def test_a_join_moves_only_the_share_of_the_newcomer() -> None:
    current = dict.fromkeys(range(50), "a") | dict.fromkeys(range(50, 100), "b")
    moves = plan_moves(range(100), ["a", "b", "c"], current)
    assert set(moves.values()) == {"c"}
    assert len(moves) == 33


def test_a_loss_moves_only_the_tokens_of_the_lost_owner() -> None:
    current = dict.fromkeys(range(50), "a") | dict.fromkeys(range(50, 100), "b")
    assert plan_moves(range(100), ["b"], current) == dict.fromkeys(range(50), "b")


def test_a_leave_and_a_join_at_once_move_no_more_than_the_share_of_the_one_that_left() -> None:
    current = dict.fromkeys(range(50), "a") | dict.fromkeys(range(50, 100), "b")
    assert plan_moves(range(100), ["b", "c"], current) == dict.fromkeys(range(50), "c")


def test_owners_beyond_the_number_of_tokens_get_none() -> None:
    moves = plan_moves(range(2), ["a", "b", "c"], {})
    assert sorted(Counter(moves.values()).values()) == [1, 1]


def test_without_owners_nothing_moves() -> None:
    assert plan_moves(range(3), [], {0: "a"}) == {}


def test_those_that_hold_the_most_round_up() -> None:
    assert shares(7, ["a", "b", "c"], {"b": 9, "c": 1}) == {"b": 3, "a": 2, "c": 2}
