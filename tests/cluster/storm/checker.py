"""Judges a storm by its records: who worked on what, who owned what, and how soon every token had an owner again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from math import inf

from tests.cluster.storm.recorded import ITEMS, JOBS, Calm, Change, History, Work
from watchbill.cluster.hashing import token_of

Period = tuple[float, float]


def check(history: History) -> list[str]:
    """What is wrong; nothing, if all promises were kept."""
    checks = (check_works, check_places, check_owners, check_leaders, check_answers, check_recovery)
    return [fault for each in checks for fault in each(history)]


# -- at no instant did two nodes do fenced work for one key


def check_works(history: History) -> Iterator[str]:
    by_key: dict[str, list[Work]] = defaultdict(list)
    for work in history.works:
        by_key[work.key].append(work)
    epochs: dict[tuple[str, int], int] = {}
    for key, works in by_key.items():
        for work in works:
            if epochs.setdefault((key, work.fence), work.epoch) != work.epoch:
                yield f"two epochs have worked under one fence: {work}"
        yield from _check_chain(works)
        yield from _check_overlaps(works)
        yield from _check_sequence(history, key, works)
    for key, value in history.ledger.items():
        if value != len(by_key[key]):
            yield f"the ledger of {key} counts {value}, and {len(by_key[key])} works are recorded"


def _check_chain(works: list[Work]) -> Iterator[str]:
    """Each has read what the one before has written, and fences only grow."""
    for before, after in pairwise(works):
        if after.value != before.value + 1:
            yield f"work was overwritten: {after} came after {before}"
        if after.fence < before.fence:
            yield f"an old fence was accepted: {after} came after {before}"


def _check_overlaps(works: list[Work]) -> Iterator[str]:
    ordered = sorted(works, key=lambda work: work.began)
    for before, after in pairwise(ordered):
        if after.began < before.ended:
            yield f"two worked at one time: {before} and {after}"


def _check_sequence(history: History, key: str, works: list[Work]) -> Iterator[str]:
    """The jobs of a key have run in their order, each once, except those that are dead."""
    sequence = [work.sequence for work in works if work.sequence is not None]
    if key not in history.sent_jobs:
        return
    wanted = [number for number in range(history.sent_jobs[key]) if (key, number) not in history.dead_jobs]
    if sequence != wanted:
        found = next((n for n, (a, b) in enumerate(zip(sequence, wanted, strict=False)) if a != b), len(sequence))
        near = slice(max(0, found - 3), found + 5)
        yield f"jobs of {key} ran as {sequence[near]}, not {wanted[near]}"


def check_places(history: History) -> Iterator[str]:
    """A routed job has run on the owner of its key, from its beginning to its end: a token waits for its jobs."""
    periods = find_periods(history.changes)
    for work in history.works:
        if work.sequence is None or not work.epoch:  # an item, or a job that was reclaimed
            continue
        owned = periods[JOBS, token_of(work.key, history.total)].get(work.epoch, ())
        if not any(begin <= work.began and work.ended <= end for begin, end in owned):
            yield f"a job has run where its key did not belong: {work}"


# -- owners


def check_owners(history: History) -> Iterator[str]:
    """A token gets a new fence with each owner, and a living owner gives it up only to the one that was named."""
    last: dict[tuple[str, int], Change] = {}
    for change in history.changes:
        before = last.get((change.group, change.token))
        last[change.group, change.token] = change
        if before is None or before.epoch == change.epoch or change.token >= history.total:
            continue
        if change.fence <= before.fence:
            yield f"a token has changed its owner without a new fence: {before}, {change}"
        if before.next != change.epoch and before.epoch and history.ends.get(before.epoch, inf) > change.at:
            yield f"a token was taken from a living owner without a hand-over: {before}, {change}"


def check_leaders(history: History) -> Iterator[str]:
    """What a leader plans is committed before another one leads."""
    for plan in history.plans:
        if plan.holder not in (None, plan.leader):
            yield f"a node planned while another one led: {plan}"


def find_periods(changes: list[Change]) -> dict[tuple[str, int], dict[int, list[Period]]]:
    """When each token belonged to which epoch."""
    periods: dict[tuple[str, int], dict[int, list[Period]]] = defaultdict(lambda: defaultdict(list))
    last: dict[tuple[str, int], Change] = {}
    for change in changes:
        place = (change.group, change.token)
        before = last.get(place)
        if before is not None and before.epoch == change.epoch:
            continue
        if before is not None:
            periods[place][before.epoch][-1] = (periods[place][before.epoch][-1][0], change.at)
        periods[place][change.epoch].append((change.at, inf))
        last[place] = change
    return periods


def check_answers(history: History) -> Iterator[str]:
    """`owns` was true only while the database said so. A process may be frozen during its answer, not before it."""
    periods = find_periods(history.changes)
    tokens = {key: {token_of(key, history.total), *history.pin_tokens[key]} for key in _answered(history)}
    for answer in history.answers:
        for key in answer.keys:
            owned = (each for token in tokens[key] for each in periods[ITEMS, token].get(answer.epoch, ()))
            if not any(begin <= answer.ended and answer.began <= end for begin, end in owned):
                yield f"{answer.epoch} said that it owns {key} at {answer.began:.3f}, and it did not"
                break


def _answered(history: History) -> set[str]:
    return {key for answer in history.answers for key in answer.keys}


# -- recovery


def check_recovery(history: History) -> Iterator[str]:
    for calm, seconds in recovery_times(history):
        if seconds is None:
            lost = list(_find_stranded(history, calm.ended))
            yield f"after {calm.ended - calm.began:.1f} s without a fault, tokens are stranded: {lost[:5]}"
        elif seconds > calm.bound:
            yield f"tokens had owners again after {seconds:.1f} s, not within {calm.bound:.1f} s"


def recovery_times(history: History) -> list[tuple[Calm, float | None]]:
    """For each calm the seconds until every token belonged to a process that was well; None: that did not happen."""
    return [(calm, _find_recovery(history, calm)) for calm in history.calms]


def _find_recovery(history: History, calm: Calm) -> float | None:
    owners = _owners_at(history, calm.began)
    later = [change for change in history.changes if calm.began < change.at <= calm.ended]
    recovered = None if _count_stranded(history, owners, calm.ended) else calm.began
    for change in later:
        owners[change.group, change.token] = change.epoch
        if _count_stranded(history, owners, calm.ended):
            recovered = None
        elif recovered is None:
            recovered = change.at
    return None if recovered is None else recovered - calm.began


def _owners_at(history: History, at: float) -> dict[tuple[str, int], int]:
    owners = {(group, token): 0 for group in history.groups for token in range(history.total)}
    for change in history.changes:
        if change.at <= at:
            owners[change.group, change.token] = change.epoch
    return owners


def _count_stranded(history: History, owners: dict[tuple[str, int], int], at: float) -> int:
    """Of the tokens of groups; a pin may match no node."""
    counts = Counter(epoch for (_, token), epoch in owners.items() if token < history.total)
    return sum(count for epoch, count in counts.items() if not history.is_well(epoch, at))


def _find_stranded(history: History, at: float) -> Iterator[tuple[str, int, int]]:
    for (group, token), epoch in _owners_at(history, at).items():
        if token < history.total and not history.is_well(epoch, at):
            yield group, token, epoch


def check_end(history: History) -> Iterator[str]:
    """When all is quiet: nothing moves, and the shares are even."""
    last = {(change.group, change.token): change for change in history.changes}
    for group in history.groups:
        tokens = [change for (name, token), change in last.items() if name == group and token < history.total]
        counts = Counter(change.epoch for change in tokens)
        if len(tokens) != history.total:
            yield f"group {group} has {len(tokens)} tokens, not {history.total}"
        elif moving := [change for change in tokens if change.next is not None]:
            yield f"tokens of group {group} still move: {moving[:3]}"
        elif max(counts.values()) - min(counts.values()) > 1:
            yield f"the shares of group {group} are uneven: {counts}"
