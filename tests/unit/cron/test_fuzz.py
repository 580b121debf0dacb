"""Any text at all is accepted or rejected, quickly, and nothing but `InvalidPattern` comes out."""

from __future__ import annotations

import random
import string
import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from watchbill.cron import Cron, InvalidPattern
from watchbill.cron.compiler import check_schedule

ALPHABET = "0123456789*/,-?+#LWESTZ:=|@ \t" * 3 + string.printable + "٠²½Ⅷ\x00\u202e\ud800é"
WORDS = """* */5 0 1-5 L LW L-3W 15W MON FRI#2 5L 1W2 ? +1 2027 | @daily @every 90s
    TZ:UTC TZ:Europe/Paris WOY:1-4 E0D S1M2W EOD:E0M""".split()  # noqa: SIM905  as a list it would fill the page
MOST_STEPS = 20_000  # of the interpreter; a millisecond or so


def steps_of(action: Callable[[], object]) -> int:
    """How many lines of ours the interpreter runs: the measure of work that no noisy machine can change."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        action()
    finally:
        sys.settrace(None)
    return count


def read(text: str) -> InvalidPattern | None:
    try:
        check_schedule.__wrapped__(text, "UTC", "default")
    except InvalidPattern as error:
        return error
    return None


@pytest.fixture(scope="module", autouse=True)
def everything_imported() -> None:
    """What is imported only when it is needed is no part of the work that is counted."""
    for text in ("0 9 * * * TZ:Nowhere", "0 9 * * * TZ:Europe/Paris", "@dayly"):
        read(text)


texts = st.text(max_size=60) | st.text(ALPHABET, max_size=1200)
texts |= st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join)


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(texts)
@example("|" * 1000)
@example("," * 1000)
@example("1," * 499 + "1 * * * *")
@example("*/1," * 249 + "* * * * *")
@example("@every " + "9" * 990 + "d")
@example("E" + "9" * 990 + "Y")
@example("E" + "0Y" * 499)
@example("0 0 " + "L-1W," * 195 + "L * *")
@example("0 0 * * " + "1#1," * 195 + "1L")
@example("0 0 0 1 1 * " + "1970-3000," * 90 + "1970-3000/1")
@example(" | ".join(["* * * * * * 1970-3000 WOY:*"] * 32))
@example("TZ:" + "A/" * 490 + "A")
@example("TZ:" + "a" * 990)
@example("\ud800" * 10)
def test_any_text_is_read_or_rejected_with_bounded_work(text: str) -> None:
    assert steps_of(lambda: read(text)) < MOST_STEPS
    error = read(text)
    if error is not None:
        assert 0 <= error.position <= len(text)
        assert len(str(error)) < 1000


def shuffled(draw: random.Random) -> str:
    """Random characters or words, few or a thousand, or a good pattern with some characters replaced."""
    kind = draw.random()
    if kind < 0.03:
        return "".join(chr(draw.randrange(0x110000)) for _ in range(draw.randint(1, 60)))
    if kind < 0.06:
        return draw.choice(",|/-# ").join(draw.choices(WORDS, k=draw.randint(1, 250)))
    if kind < 0.3:
        return "".join(draw.choices(ALPHABET, k=draw.randint(0, 1100 if draw.random() < 0.05 else 30)))
    text = " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))
    if kind < 0.6:
        return text
    characters = list(text)
    for _ in range(draw.randint(1, 4)):
        characters[draw.randrange(len(characters))] = draw.choice(ALPHABET)
    return "".join(characters)


@pytest.mark.parametrize("count", [3_000, pytest.param(1_000_000, marks=[pytest.mark.long, pytest.mark.timeout(7200)])])
def test_nothing_but_invalid_pattern_escapes(count: int) -> None:
    draw = random.Random(count)
    accepted = 0
    for _ in range(count):
        text = shuffled(draw)
        try:
            Cron(text)
            accepted += 1
        except InvalidPattern:
            pass
    assert count * 0.005 < accepted < count * 0.5
