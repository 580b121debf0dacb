"""The rules of flow control: limits, rates, order, uniqueness, batches, routes. They judge what handlers and producers
have recorded; of the database they take when a fence was given out and when it ended (`observer.sql`).

What counts is what is fenced. A run is held from the start of its handler to the end of its fence. The fence of a
frozen or cut-off process ends with its lease: its handler may go on for a while, beside the next one of the same key,
but nothing that it writes under its fence is accepted any more. A handler that starts after its fence has ended holds
nothing. The true hold begins before the start of the handler, with the claim, and ends after the fence, with the
commit: an overlap of what is judged here is an overlap of true holds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.history import History, Row, Sent
from tests.chaos.promises import (
    BATCH_SIZE,
    DEBOUNCE_MAX_SECONDS,
    DEBOUNCE_SECONDS,
    PROMISES,
    Promise,
    Rating,
    promise_of,
)
from tests.flow_invariants import find_excess

CLOCK = 0.01  # between two readings of one machine's clock
COMMIT = 15.0  # more than a transaction of the database takes from its clock to its commit, on a busy machine

Found = Iterator[tuple[str, str]]  # a job or a key, and what is wrong


@dataclass(frozen=True)
class Held:
    """A run while it was fenced."""

    id: str
    fence: int
    claimed: float
    start: float
    end: float
    epoch: int


def find_holds(history: History) -> dict[str, list[Held]]:
    """The runs of each job, as far as a handler started under its fence."""
    found: dict[str, list[Held]] = defaultdict(list)
    for job_id, starts in history.starts.items():
        claims = {claim.fence: claim for claim in history.claims.get(job_id, [])}
        for start in starts:
            fence = start.fence
            if fence is None and len(claims) == 1:  # a worker in another language
                (fence,) = claims
            if fence is None or fence not in claims:
                continue
            end = history.releases.get((job_id, fence), math.inf)
            if end > start.at:
                found[job_id].append(Held(job_id, fence, claims[fence].at, start.at, end, claims[fence].epoch))
    return found


def _ends(history: History) -> dict[str, Row]:
    return {str(row["id"]): row for row in history.tables["finished_jobs"]}


def _stored(history: History) -> Iterator[tuple[Sent, Promise]]:
    """The jobs that exist, as their producers know them."""
    ids = {str(row["id"]) for name in ("jobs", "finished_jobs") for row in history.tables[name]}
    for sent in history.sent.values():
        if sent.id in ids:
            yield sent, promise_of(sent.type)


# -- limits and rates


def limits_hold(history: History) -> Found:
    """At no instant are more runs of a key held than its limit. An operator may change a limit: it counts when the last
    of the runs was claimed."""
    runs: dict[str, list[Held]] = defaultdict(list)
    holds = find_holds(history)
    limits: dict[str, int] = {}
    for sent, promise in _stored(history):
        for key, limit in promise.limits:
            name = key.format(**sent.arguments)
            limits[name] = limit
            runs[name] += holds[sent.id]
    for key, found in runs.items():
        for run in found:
            beside = [other for other in found if other.start <= run.start < other.end - CLOCK]
            last = max(beside, key=lambda other: other.claimed, default=run)
            limit = history.limit_at(key, limits[key], last.claimed - CLOCK, last.start)
            if len(beside) > limit:
                yield key, f"{len(beside)} runs at once, and {limit} are allowed: {_named(beside)}"
                break


def _named(runs: list[Held]) -> str:
    return ", ".join(f"{run.id} under {run.fence} [{run.start:.3f}, {run.end:.3f}]" for run in runs)


def rates_hold(history: History) -> Found:
    """No window of `per` has more than `count` claims of a key, and claims that are to be spaced are. A rate counts
    claims, on the database's clock."""
    claims: dict[tuple[str, Rating], list[int]] = defaultdict(list)
    for sent, promise in _stored(history):
        for rate in promise.rates:
            at = [round(claim.at * 1_000_000) for claim in history.claims.get(sent.id, [])]
            claims[rate.key.format(**sent.arguments), rate] += at
    for (key, rate), times in claims.items():
        per = round(rate.per * 1_000_000)
        excess = find_excess(times, count=rate.count, per=per, step=rate.step)
        if excess is not None:
            yield key, "{} claims within {} microseconds, from {} on".format(*excess)


# -- order


def keys_keep_their_order(history: History) -> Found:
    """A job that was enqueued when an earlier one of its key was there starts when that one has ended. A dead job of a
    task that pauses keeps the key until an operator clears it, or has the job run again and it succeeds."""
    ends, keys = _ends(history), defaultdict(list)
    for sent, promise in _stored(history):
        if promise.ordered_by is not None:
            keys[promise.ordered_by.format(**sent.arguments), promise].append(sent)
    for (key, promise), jobs in keys.items():
        for job in jobs:
            start = min((start.at for start in history.starts.get(job.id, [])), default=math.inf)
            for earlier in jobs:
                if earlier.acknowledged_at < job.began and (what := _overtaken(history, ends, promise, earlier, start)):
                    yield job.id, f"of {key}: {what}"


def _overtaken(history: History, ends: dict[str, Row], promise: Promise, earlier: Sent, start: float) -> str | None:
    """What is wrong with a start after which, or before which, an earlier job of the key has ended."""
    if start == math.inf:
        return None
    end = ends.get(earlier.id)
    cleared = [at for at in history.clears.get(_order_key(promise, earlier), []) if at < start]
    if end is None:
        return None if cleared else f"started, and {earlier.id} before it has not ended"
    ended = end["finished_at"].timestamp()
    if start < ended - CLOCK and not cleared:
        return f"started {ended - start:.3f} s before {earlier.id} ended, which was enqueued before it"
    if promise.pauses_when_dead and end["state"] == "dead" and not any(at > ended - COMMIT for at in cleared):
        return f"started, though {earlier.id} before it is dead, and nobody has cleared their key"
    return None


def _order_key(promise: Promise, sent: Sent) -> str:
    assert promise.ordered_by is not None
    return "order:" + promise.ordered_by.format(**sent.arguments)


# -- uniqueness


def _calls(history: History) -> dict[tuple[str, str], list[Sent]]:
    """All enqueues of each unique key."""
    found = defaultdict(list)
    for sent in history.sent.values():
        promise = promise_of(sent.type)
        if promise.unique_by is not None and sent.fate != "rolled_back":
            found[sent.type, promise.unique_by.format(**sent.arguments)].append(sent)
    return found


def one_job_has_a_key(history: History) -> Found:
    """A second job of a unique key is made only when the first has been claimed, or has ended, as the task says. Judges
    two jobs of which one was there before the enqueue of the other began, and no third at that time."""
    ends = _ends(history)
    for (kind, key), calls in _calls(history).items():
        made = sorted((c for c in calls if c.names_itself), key=lambda call: call.acknowledged_at)
        for first, second in pairwise(made):
            others = [call for call in made if call not in (first, second)]
            apart = all(c.acknowledged_at < first.began or c.began > second.acknowledged_at for c in others)
            if first.acknowledged_at < second.began and second.acknowledged_at < math.inf and apart:
                end = ends.get(first.id)
                ended = math.inf if end is None else end["finished_at"].timestamp()
                if ended > second.acknowledged_at and not _had_started(history, first, second):
                    yield second.id, f"was made for key {key} of {kind}, which {first.id} had"


def _had_started(history: History, first: Sent, second: Sent) -> bool:
    """Whether the first one was claimed at some time of the second one's enqueue."""
    return promise_of(first.type).unique_until == "started" and any(
        claim.at < second.acknowledged_at
        and history.releases.get((first.id, claim.fence), math.inf) > second.began - COMMIT
        for claim in history.claims.get(first.id, [])
    )


def duplicates_name_a_living_job(history: History) -> Found:
    """Who is told of an earlier job is told of one that has not ended."""
    ends = _ends(history)
    for calls in _calls(history).values():
        for call in calls:
            for answer in call.others:
                end = ends.get(answer)
                if end is not None and end["finished_at"].timestamp() < call.asked_at - COMMIT:
                    yield call.id, f"was told of {answer}, which had ended before"


def kept_jobs_see_the_change(history: History) -> Found:
    """What a producer has written in the transaction in which it was told of a waiting job, that job sees."""
    ends = _ends(history)
    for change in history.changes:
        end = ends.get(change.job_id)
        if end is None or end["state"] != "succeeded" or end["type"] != "unique_waiting":
            continue
        if change.n not in history.seen.get((change.job_id, end["fence"]), ()):
            yield change.job_id, f"has not seen change {change.n}, whose producer relied on it"


def the_last_arguments_run(history: History) -> Found:
    """A job that duplicates replace succeeds with the arguments of the last call that was told of it."""
    ends = _ends(history)
    for calls in _calls(history).values():
        told = defaultdict(list)
        for call in calls:
            if promise_of(call.type).replaces and call.answers:
                told[call.answers[-1][0]].append(call)
        revisions = {call.arguments["revision"]: call for call in calls if "revision" in call.arguments}
        for job_id, callers in told.items():
            end = ends.get(job_id)
            if end is None or end["state"] != "succeeded":
                continue
            (revision,) = [s.more["revision"] for s in history.starts[job_id] if s.fence == end["fence"]] or [None]
            ran = revisions.get(str(revision))
            if ran is None:
                yield job_id, f"ran with revision {revision}, which nobody has sent"
            elif later := [call for call in callers if call.began > ran.acknowledged_at]:
                yield job_id, f"ran with the arguments of {ran.id}, though {later[0].id} came after it"


def debounced_jobs_wait(history: History) -> Found:
    """No run before the calls have stopped for `wait`, unless the first call is `max_wait` ago."""
    for calls in _calls(history).values():
        by_id = {call.id: call for call in calls}
        by_revision = {call.arguments.get("revision"): call for call in calls}
        for job_id, first in by_id.items():
            for start in history.starts.get(job_id, []) if promise_of(first.type).debounced else []:
                last = by_revision.get(start.more.get("revision"))
                if last is not None:
                    due = min(last.began + DEBOUNCE_SECONDS, first.began + DEBOUNCE_MAX_SECONDS)
                    if start.at < due - CLOCK:
                        yield job_id, f"started {due - start.at:.3f} s before its calls had stopped for long enough"


# -- batches and routes


def batches_are_their_jobs(history: History) -> Found:
    """A call gets at most `size` items, each that of its job, and each job gets its own result."""
    ends = _ends(history)
    for sent, promise in _stored(history):
        if not promise.batch:
            continue
        for start in history.starts.get(sent.id, []):
            if start.more["item"] != sent.arguments["items"]:
                yield sent.id, f"has item {sent.arguments['items']}, and its handler got {start.more['item']}"
            if start.more["batch"] > BATCH_SIZE:
                yield sent.id, f"was one of a batch of {start.more['batch']}"
        end = ends.get(sent.id)
        if end is not None and end["state"] == "succeeded" and end["result"] != 2 * sent.arguments["items"]:
            yield sent.id, f"has the result {end['result']} of another item"


def a_routed_key_has_one_node(history: History) -> Found:
    """No two nodes hold runs of one key at the same time."""
    runs: dict[str, list[Held]] = defaultdict(list)
    holds = find_holds(history)
    for sent, promise in _stored(history):
        if promise.routed_by is not None:
            runs[promise.routed_by.format(**sent.arguments)] += holds[sent.id]
    for key, found in runs.items():
        for run in found:
            beside = [o for o in found if o.epoch != run.epoch and o.start <= run.start < o.end - CLOCK]
            if beside:
                yield key, f"runs on the nodes {run.epoch} and {beside[0].epoch} at once: {_named([run, *beside])}"
                break


def a_full_limit_cancels_for_a_reason(history: History) -> Found:
    """A job is discarded only beside others of its key, and replaced only by one that was enqueued after it."""
    ends, keys = _ends(history), defaultdict(list)
    for sent, promise in _stored(history):
        if promise.ends_when_full is not None:
            keys[promise.limits[0][0].format(**sent.arguments)].append(sent)
    for key, jobs in keys.items():
        for job in jobs:
            word = PROMISES[job.type].ends_when_full
            end = ends.get(job.id)
            if end is None or end["state"] != "canceled" or str(word) not in (end["error"] or {}).get("message", ""):
                continue
            others = [ends[other.id]["seq"] for other in jobs if other is not job and other.id in ends]
            if not others or (job.type == "superseded" and max(others) < end["seq"]):
                yield job.id, f"of {key} was canceled, and nothing has taken its place"


RULES_OF_FLOW_CONTROL = (
    limits_hold,
    rates_hold,
    keys_keep_their_order,
    one_job_has_a_key,
    duplicates_name_a_living_job,
    kept_jobs_see_the_change,
    the_last_arguments_run,
    debounced_jobs_wait,
    batches_are_their_jobs,
    a_routed_key_has_one_node,
    a_full_limit_cancels_for_a_reason,
)
