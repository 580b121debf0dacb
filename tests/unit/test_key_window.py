"""How many jobs with limit keys a worker claims ahead. No database."""

from __future__ import annotations

from itertools import pairwise

from watchbill.worker.key_window import KeyWindow

KEYS = 1000


def test_without_limit_keys_there_is_no_window() -> None:
    window = KeyWindow()
    window.note_answer(wanted=1000, found=10, limited=4, claimed=500)
    assert window.size is None
    assert window.limit(1000, startable=0, claimed=5000, being_stored=5000) == 1000


def test_a_claim_that_finds_nothing_shows_that_the_worker_holds_all_keys() -> None:
    window = KeyWindow()
    window.note_answer(wanted=KEYS, found=KEYS, limited=KEYS, claimed=0)
    assert window.size is None
    window.note_answer(wanted=KEYS, found=0, limited=0, claimed=KEYS)
    assert window.size == KEYS


def test_an_idle_worker_forgets_its_window() -> None:
    window = KeyWindow()
    window.note_answer(wanted=100, found=5, limited=5, claimed=0)
    window.note_answer(wanted=5, found=0, limited=0, claimed=0)
    assert window.size is None


def _claim_and_store(window: KeyWindow, rounds: int) -> list[tuple[int, int]]:
    """What claims ask for and find while each key has jobs; the jobs of the claim before the last one are stored."""
    held, asked = list[int](), list[tuple[int, int]]()
    for _ in range(rounds):
        wanted = window.limit(1000, startable=20, claimed=sum(held), being_stored=sum(held[:-1]))
        found = min(wanted, KEYS - sum(held))
        window.note_answer(wanted, found, found, sum(held))
        asked.append((wanted, found))
        held = [*held, found][-2:]
    return asked


def test_a_worker_meets_few_keys_that_it_holds_itself() -> None:
    asked = _claim_and_store(KeyWindow(), 200)
    assert asked[0] == (1000, 1000)
    met = sum(wanted - found for wanted, found in asked[2:])
    assert met < 0.05 * sum(found for _, found in asked)
    assert sum(found for _, found in asked[100:]) > 100 * KEYS / 5, "the window has not shrunk"


def test_a_window_that_was_too_small_grows() -> None:
    window = KeyWindow()
    window.note_answer(wanted=50, found=40, limited=40, claimed=0)
    sizes = []
    for _ in range(60):
        window.note_answer(wanted=20, found=20, limited=20, claimed=20)
        sizes.append(window.size or 0)
    assert all(before < after for before, after in pairwise([40, *sizes]))
    assert sizes[-1] > KEYS
