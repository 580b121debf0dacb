"""Decides what to claim next, claims it, and sleeps while there is nothing to claim.

`Claiming` decides and knows no database; `Claimer` is the loop.

How much: as many jobs as can start now (a batch takes many, `batch_run.py`), and ahead of that about a tenth of a
second of work at the measured rate. Jobs with one attempt are not claimed ahead, and other jobs only up to the next of
these, so that the order holds; jobs with limit keys only as far as there are free keys (`key_window.py`).

From where: a claim reads the head of the ready index, from the top whenever that is cheap. An old snapshot makes it
expensive, because the entries of finished jobs stay. Then a claim starts at the scan position of each queue and
priority: the last job that the worker took, or, where it found less than it wanted, the time of that claim. A job that
arrives behind a position is found only by a scan from the top, which one node makes every second, or less often if that
would take more than a twentieth of the time (docs/explanation/scan_positions.md).

Which types: all, except those that cannot run here now (`slot_shortage.py`).

Quarantine: a job that was lost with a node before is claimed alone, and nothing else is started beside it, so that a
job which kills its process is found. Quarantined jobs have every other second, and whatever the others leave.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

import orjson

from watchbill.maintenance.promoter import Promoter
from watchbill.maintenance.unblocker import Unblocker
from watchbill.postgres.arrays import int8s
from watchbill.store.node_connection import Disconnected, NameTaken, NodeConnection, NodeDraining, Refused, is_outage
from watchbill.worker.batch_run import BatchDemand
from watchbill.worker.claim_request import Key, Position, Request, encode_positions
from watchbill.worker.config import NodeConfig
from watchbill.worker.handlers import Handlers, SlotKind
from watchbill.worker.key_window import KeyWindow
from watchbill.worker.notifications import Listener, wait_for
from watchbill.worker.queue_turns import QueueTurns
from watchbill.worker.run import Claimed
from watchbill.worker.settling import Settler
from watchbill.worker.slot_shortage import SlotShortage

logger = logging.getLogger("watchbill.worker")

LARGEST_CLAIM = 1000  # jobs
MAX_UNSETTLED = 4 * LARGEST_CLAIM  # nothing is claimed while more outcomes than this wait to be stored
CLAIM_AHEAD_SECONDS = 0.1  # how much work a node claims ahead
CHEAP_SCAN_ENTRIES = 5_000  # the server reads so many index entries in a few milliseconds
SLOW_SCAN_SECONDS = 0.02
LATE_COMMIT_MICROSECONDS = 250_000  # positions stay so far behind now, to find jobs that commit after their run_at
LAST_ID = b"\xff" * 16
BUSY_SCAN_PAUSE, IDLE_SCAN_PAUSE = 20, 10  # pause between two scans from the top, in multiples of their time
QUARANTINE_TURN_SECONDS = 1.0  # quarantined jobs and the others take turns of this length
QUARANTINE_BACKOFF_SECONDS = 3.0  # after a quarantined job found no handler slot of its kind
LONGEST_SLEEP_SECONDS = 120.0  # with notifications; the survey finds what they do not announce
FIRST_COMMIT_WAIT_SECONDS = 0.001  # while a producer is about to commit; each further wait is twice as long


class SlotCounts(NamedTuple):
    """The state of the handler slots when a claim is decided."""

    free: int  # handlers that could start now, if no claimed job waited for a handler slot
    waiting: int  # claimed jobs and batches that wait on this node for a handler slot
    free_by_kind: Mapping[SlotKind, int]
    unsettled: int  # endings that wait to be stored
    per_second: float = 0.0  # jobs that end while there is work
    collected: int = 0  # claimed jobs in batches that may still grow; these do not count as waiting
    room_by_type: Mapping[str, int] = {}  # of tasks with max_per_node: how many more jobs can be used
    claimed: int = 0  # jobs that are claimed and whose endings are not stored
    being_stored: int = 0  # those of them that have ended, and whose endings the settler sends

    @property
    def startable(self) -> int:
        """How many jobs of a claim could start at once."""
        return max(0, self.free - self.waiting)


class ScanPositions:
    """How far the ready index was read, for each queue and priority."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.set_order(queues)
        self._positions: dict[Key, Position] = {}
        self._top_scan_at = 0.0
        self._top_scan_seconds = 0.0
        self._was_from_top = True
        self.is_top_expensive = False
        self.nodes = 1  # how many nodes there are; each makes its share of the scans from the top of the index

    def add_queues(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._queue_ranks.setdefault(queue, len(self._queue_ranks))

    def set_order(self, queues: Sequence[str]) -> None:
        self._queue_ranks = {queue: place for place, queue in enumerate(queues)}

    def choose_start(self) -> dict[Key, Position] | None:
        """Where the next claim starts; None: at the top."""
        return self._positions if self.is_top_expensive and (self._was_from_top or self.top_scan_in > 0) else None

    @property
    def top_scan_in(self) -> float:
        """Seconds until a scan from the top is due; infinite if the last scan started there."""
        return math.inf if self._was_from_top else self._top_scan_at - time.monotonic()

    def start_from_top(self) -> None:
        self._was_from_top, self._top_scan_at = False, 0.0

    def note_scan(self, request: Request, rows: Sequence[Claimed], *, began: int | None, seconds: float) -> None:
        """Moves the positions after a claim. `began` is when the claim was sent, in microseconds of the server's clock;
        None if not known."""
        self._positions |= {(row.queue, row.priority): (row.raw_run_at, row.id) for row in rows}
        if began is not None:
            latest, exhausted = (began - LATE_COMMIT_MICROSECONDS, LAST_ID), set(self._find_exhausted(request, rows))
            for key, position in self._positions.items():
                self._positions[key] = latest if key in exhausted else min(latest, position)
        self._was_from_top, now = request.positions is None, time.monotonic()
        if self._was_from_top:
            self._top_scan_seconds = seconds
            self._top_scan_at = now + self.nodes * max(1.0, BUSY_SCAN_PAUSE * seconds)
            if rows:
                self.is_top_expensive = rows[0].entries_read - len(rows) > CHEAP_SCAN_ENTRIES
        elif not rows:
            self._top_scan_at = min(self._top_scan_at, now + self.nodes * IDLE_SCAN_PAUSE * self._top_scan_seconds)

    def _find_exhausted(self, request: Request, rows: Sequence[Claimed]) -> Iterator[Key]:
        """Yields the queues and priorities in which the claim left no job: all of them, if it found fewer jobs than
        wanted. Otherwise those before the last one in which it found a job, because a claim reads them in order and
        leaves each only when it is empty. Jobs with one attempt do not count, because they are picked separately."""
        if len(rows) < min(request.wanted, request.free):  # a claim of more may stop at a job with one attempt
            yield from self._positions
        elif ready := {(row.queue, row.priority) for row in rows if row.max_attempts > 1}:
            last = max(map(self._get_rank, ready))
            yield from (key for key in self._positions if self._get_rank(key) < last)

    def _get_rank(self, key: Key) -> tuple[int, int]:
        """Smaller is claimed earlier."""
        return self._queue_ranks.get(key[0], 0), -key[1]


class Claiming:
    """Decides what to ask for. Call `next_request()` until it returns None or a job was found, and `note_answer()` with
    each answer."""

    def __init__(self, queues: Sequence[str], handlers: Handlers) -> None:
        self.positions = ScanPositions(queues)
        self.shortage = SlotShortage()
        self.key_window = KeyWindow()
        self.quarantined: Claimed | None = None  # waits or runs here; nothing is started beside it
        self.is_uncertain = False  # a claim may have succeeded: it is not answered yet, or its reply was lost
        self.batch_demand = BatchDemand()
        self.add_handlers(handlers)
        self._turns: list[Callable[[SlotCounts], Request | None]] = []  # what this round may still ask for
        self._next_partial_scan = 0.0  # when a claim that excludes types is sent again
        self._clock_ahead: int | None = None  # microseconds to add to our monotonic clock to get the server's time
        self._next_turn = self._turn_until = self._backoff_until = 0.0  # of quarantined jobs
        self._has_quarantined_run = False

    def add_handlers(self, handlers: Handlers) -> None:
        self.shortage.add_handlers(handlers)
        self.batch_demand.add_handlers(handlers)

    def start_round(self, *, is_woken: bool = False) -> None:
        """Begins a round of requests, which tries ready jobs and quarantined ones. `is_woken`: a notification has woken
        this worker, probably for a new job, so quarantined jobs can wait for the next round."""
        now = time.monotonic()
        is_due = now >= self._next_turn or (self._has_quarantined_run and now < self._turn_until)
        ready, quarantined = self._ready_request, self._quarantine_request
        if is_woken:
            self._turns = [ready]
        else:
            self._turns = [quarantined, ready] if is_due else [ready, quarantined]

    def next_request(self, counts: SlotCounts) -> Request | None:
        """The next request of this round; None: there is no room, or everything was asked for."""
        while self._turns:
            request = self._turns.pop(0)(counts)
            if request is not None:
                return request
        return None

    def count_wanted(self, counts: SlotCounts) -> int:
        """How many more jobs to claim."""
        if not self._may_claim(counts):
            return 0
        ahead = int(counts.per_second * CLAIM_AHEAD_SECONDS)
        places = counts.free - counts.waiting
        if self.batch_demand.is_needed:
            places = self.batch_demand.count_jobs(places, counts.collected)
        wanted = min(LARGEST_CLAIM, places + ahead)
        if self.is_short:
            startable = min(wanted, max(counts.startable, places))
            wanted = self.shortage.limit(startable, counts.free_by_kind, counts.room_by_type)
        if self.key_window.size is not None:
            wanted = self.key_window.limit(wanted, places, counts.claimed, counts.being_stored)
        return wanted

    def awaits_free_keys(self, counts: SlotCounts) -> bool:
        """Whether the next claim should wait until the endings are stored that free its keys."""
        return self.key_window.size is not None and counts.being_stored > 0 and not self.count_wanted(counts)

    @property
    def is_short(self) -> bool:
        return bool(self.shortage.kinds or self.shortage.types)

    def _may_claim(self, counts: SlotCounts) -> bool:
        return self.quarantined is None and counts.unsettled <= MAX_UNSETTLED

    def _ready_request(self, counts: SlotCounts) -> Request | None:
        wanted, free = self.count_wanted(counts), counts.startable
        if wanted <= 0:
            return None
        if free and self.batch_demand.is_needed:
            free = max(free, self.batch_demand.count_jobs(free, counts.collected))
        shortage = self.shortage
        if self.is_short and (excluded := shortage.find_excluded_types(counts.free_by_kind, counts.room_by_type)):
            is_due = time.monotonic() >= self._next_partial_scan
            return Request(wanted, free, excluded_types=excluded) if is_due else None
        start = self.positions.choose_start()
        needs_server_time = self.positions.is_top_expensive and (start is None or self._clock_ahead is None)
        return Request(wanted, free, positions=start, needs_server_time=needs_server_time)

    def _quarantine_request(self, counts: SlotCounts) -> Request | None:
        """Asks even if no handler slot is free but jobs wait for one: a backlog must not starve quarantined jobs."""
        now, has_room = time.monotonic(), counts.free > 0 or counts.waiting > 0
        if now < self._backoff_until or not has_room or not self._may_claim(counts):
            return None
        if now >= self._next_turn:
            self._turn_until = now + QUARANTINE_TURN_SECONDS
        self._next_turn, self._has_quarantined_run = now + QUARANTINE_TURN_SECONDS, False
        return Request(1, 1, is_quarantine=True)

    def note_server_time(self, server_time: int, nodes: int) -> None:
        """Called when the reply has arrived: the time is a little old then, so positions are early rather than late."""
        self._clock_ahead = server_time - int(time.monotonic() * 1e6)
        self.positions.nodes = max(1, nodes)

    def note_answer(self, request: Request, rows: list[Claimed], *, began: float, claimed: int = 0) -> None:
        """Learns from a claim: when it was sent, on our monotonic clock, and how many other jobs were claimed then."""
        now = time.monotonic()
        if request.is_quarantine:
            self.quarantined = rows[0] if rows else None
            return
        if self.batch_demand.is_needed:
            self.batch_demand.note_answer(rows, min(request.wanted, request.free))
        if (limited := [row.is_limited for row in rows].count(True)) or self.key_window.is_needed:
            self.key_window.note_answer(request.wanted, len(rows), limited, claimed)
        if request.excluded_types:
            if not rows and now - began > SLOW_SCAN_SECONDS:
                self._next_partial_scan = now + 10 * (now - began)
            return
        server_time = None if self._clock_ahead is None else self._clock_ahead + int(began * 1e6)
        self.positions.note_scan(request, rows, began=server_time, seconds=now - began)
        if self.is_short:
            self.shortage.note_answer(rows, is_full=len(rows) == request.wanted)

    @property
    def next_scan_in(self) -> float:
        """Seconds until the next claim for jobs that no notification announces."""
        partial = self._next_partial_scan - time.monotonic()
        return min(self.positions.top_scan_in, partial if partial > 0 else math.inf)

    def end_quarantine(self, *, has_run: bool = False, lacked_slot: bool = False) -> None:
        """Lets other jobs start again: the quarantined job has run, or does not start on this node."""
        self.quarantined = None
        if has_run:
            self._has_quarantined_run = True
        elif lacked_slot:  # until then this node claims no quarantined job, so that other jobs can start
            self._backoff_until = time.monotonic() + QUARANTINE_BACKOFF_SECONDS


class ClaimedJobs(Protocol):
    """The part of the handler slots that the claimer uses."""

    def count_handler_slots(self) -> SlotCounts: ...
    def accept_jobs(self, rows: list[Claimed]) -> None: ...
    def release_waiting(self) -> None: ...
    def start_batches(self, *, at_once: bool) -> None: ...
    @property
    def is_idle(self) -> bool: ...


class Claimer:
    """Claims jobs for the handler slots, one statement at a time."""

    def __init__(
        self,
        connection: NodeConnection,
        claiming: Claiming,
        slots: ClaimedJobs,
        settler: Settler,
        notifications: Listener,
        config: NodeConfig,
        last_chores: Sequence[Promoter | Unblocker] = (),
    ) -> None:
        self._connection, self._claiming, self._slots, self._settler = connection, claiming, slots, settler
        self._notifications, self._wakeups, self._config = notifications, notifications.wakeups, config
        self._last_chores = last_chores  # run before a worker with `--once` ends; they may make jobs ready
        self.queues = list(config.queues)
        self._turns = QueueTurns(config.weights) if config.weights else None
        self._poll_seconds, self._commit_wait = config.poll_interval, FIRST_COMMIT_WAIT_SECONDS
        self._unknown_fences: set[int] = set()  # of claims that the last survey found, unknown to this node
        self._has_unknown_claim = False
        self._has_unlocked = False  # this worker gave the lock up, and others may still wait for notifications
        self._new_types: dict[str, int] = {}  # declared since the node registered, and their versions
        self.epoch = 0  # 0: not registered, or lost

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self._claiming.is_uncertain, self._has_unknown_claim = epoch, False, False

    def add_types(self, types: Mapping[str, int], queues: Iterable[str]) -> None:
        """Claims jobs of these types too, each with its version, and from these queues too."""
        self.queues += [queue for queue in queues if queue not in self.queues]
        self._new_types |= types
        self._wakeups.jobs.set()

    async def _send_new_types(self) -> None:
        """Sends the new types: the database then counts this node as one that handles them, and gives it such jobs."""
        types, queues = dict(self._new_types), list(self.queues)
        await self._connection.execute("extend_node", (self.epoch, orjson.dumps(types).decode(), queues))
        self._new_types = {name: version for name, version in self._new_types.items() if name not in types}
        logger.info("This node now also handles %s", ", ".join(sorted(types)))

    async def run(self) -> None:
        """Returns when the node drains or has lost its epoch; may raise NodeLost."""
        while self.epoch and not self._wakeups.draining.is_set():
            try:
                if self._new_types:
                    await self._send_new_types()
                if self._claiming.is_uncertain or self._has_unknown_claim:
                    await self.release_unknown()
                await self._claim_or_wait()
            except (Disconnected, Refused, NameTaken) as error:
                if not is_outage(error):
                    logger.warning("The server refused a claim; will retry: %s", error)
                await wait_for(self._wakeups.draining, self._connection.retry_delay())
            except NodeDraining:
                logger.info("An operator asked this node to drain")
                self._wakeups.drain()

    async def release_unknown(self) -> None:
        """Releases claims of this node that it does not know of, because the reply was lost."""
        await self._connection.execute("release_unknown", (self.epoch, int8s(self._settler.known_fences)))
        self._claiming.is_uncertain = self._has_unknown_claim = False

    def note_claims(self, fences: Iterable[int]) -> None:
        """Takes the claims that this node has in the database. One that two surveys in a row have found, and that it
        does not know, is released: a claim may reach the server long after its connection was closed."""
        unknown = set(fences) - set(self._settler.known_fences)
        if unknown & self._unknown_fences:
            self._has_unknown_claim = True
            self._wakeups.jobs.set()
        self._unknown_fences = unknown

    async def _claim_or_wait(self) -> None:
        if await self._claim():
            self._poll_seconds, self._commit_wait = self._config.poll_interval, FIRST_COMMIT_WAIT_SECONDS
            self._notifications.vain_wakeups = 0
        elif not self._has_room():
            await self._wait_for_room()
        elif not self._slots.count_handler_slots().startable:
            await self._wait_for_free_slot()
        elif self._config.once and self._slots.is_idle:
            await self._end_if_nothing_is_left()
        elif self._config.once:  # waits for the end of a handler, not for a notification
            self._wakeups.progress.clear()
            await wait_for(self._wakeups.progress, self._config.poll_interval)
        else:
            await self._sleep()

    def _is_needed_awake(self) -> bool:
        return self._wakeups.draining.is_set() or bool(self._new_types) or self._has_unknown_claim

    def _has_room(self) -> bool:
        return self._claiming.count_wanted(self._slots.count_handler_slots()) > 0

    async def _claim(self, *, is_woken: bool = False) -> bool:
        """Sends one claim after the other until one finds jobs; returns whether one did."""
        await self._settler.wait_for_releases()
        wakeups, counts = self._wakeups, self._slots.count_handler_slots
        while self._claiming.awaits_free_keys(counts()) and not wakeups.draining.is_set():
            wakeups.progress.clear()
            await wait_for(wakeups.progress, self._config.poll_interval)
        self._claiming.start_round(is_woken=is_woken)
        while (request := self._claiming.next_request(self._slots.count_handler_slots())) is not None:
            rows = await self.send(request)
            if rows:
                if request.is_quarantine:
                    self._slots.release_waiting()
                self._slots.accept_jobs(rows)
                return True
            self._slots.start_batches(at_once=self._config.once)
        return False

    async def send(self, request: Request) -> list[Claimed]:
        """Sends one claim; returns its jobs in the order in which they start."""
        execute = self._connection.execute
        if request.needs_server_time:
            ((server_time, nodes),) = await execute("server_time_and_nodes")
            self._claiming.note_server_time(server_time, nodes)
        began, claimed, self._claiming.is_uncertain = time.monotonic(), self._settler.claimed, True
        if self._turns is not None:
            self.queues = self._turns.choose_order(self.queues)
            self._claiming.positions.set_order(self.queues)
        common = (self.epoch, self.queues, request.wanted, request.free)
        if request.excluded_types:
            found = await execute("claim_other_types", (*common, list(request.excluded_types)))
        elif request.positions is not None:
            found = await execute("claim_above", (*common, *encode_positions(request.positions)))
        else:
            found = await execute("claim", (*common, request.is_quarantine))
        self._claiming.is_uncertain = False
        rows = [Claimed._make(row) for row in found]  # they come in no order
        rows.sort(key=attrgetter("raw_run_at", "id"))
        if len({(row.turn, row.priority) for row in rows}) > 1:  # seldom, and such a key takes three times as long
            rows.sort(key=lambda row: (row.turn, -row.priority))
        self._claiming.note_answer(request, rows, began=began, claimed=claimed)
        if self._turns is not None and not request.is_quarantine:
            self._turns.note_answer(rows, min(request.wanted, request.free))
        return rows

    async def _wait_for_room(self) -> None:
        await self._hand_over_lock()
        self._wakeups.progress.clear()
        if not self._has_room() and self.epoch and not self._wakeups.draining.is_set():
            await wait_for(self._wakeups.progress, self._config.lease)

    async def _wait_for_free_slot(self) -> None:
        """Called when nothing could be claimed ahead, perhaps because a job with one attempt is the next."""
        await self._hand_over_lock()
        while not self._slots.count_handler_slots().startable and self.epoch and not self._wakeups.draining.is_set():
            self._wakeups.progress.clear()
            await wait_for(self._wakeups.progress, self._config.lease)

    async def _hand_over_lock(self) -> None:
        """Lets another worker take the lock for sleeping that this one gave up for a job and does not take again."""
        if self._has_unlocked:
            self._has_unlocked = False
            await self._connection.execute("announce_awake")

    async def _end_if_nothing_is_left(self) -> None:
        """Drains the worker if there is no job left. The last ending may have made another job ready."""
        await self._settler.wait_until_idle()
        for chore in self._last_chores:
            await chore.run()
        self._claiming.positions.start_from_top()
        if not await self._claim():
            self._wakeups.drain()

    async def _sleep(self) -> None:
        """Waits until there may be a job. The head of `notifications.py` explains the lock: with it, this worker is
        notified of every new job. Without it, either another worker has it, and this one hears the same notifications;
        or a producer is about to commit, without a notification, and its job is here in a moment."""
        if await self._notifications.lock_for_sleep():
            await self._sleep_with_lock()
            await self._notifications.unlock()
            self._has_unlocked, self._commit_wait = True, FIRST_COMMIT_WAIT_SECONDS
        elif await self._notifications.has_sleeper():
            self._has_unlocked = False
            await self._sleep_without_lock()
        else:
            await self._notifications.wait_for_jobs(self._commit_wait)
            self._commit_wait = min(self._config.poll_interval, self._commit_wait * 2)

    async def _sleep_with_lock(self) -> None:
        """Sleeps with the lock that makes producers send notifications, until one arrives or a claim finds a job."""
        self._has_unlocked = False
        self._wakeups.jobs.clear()  # the claim below finds the jobs that were announced so far
        while not self._is_needed_awake() and not await self._claim():
            if await self._sleep_until_notified():
                if not self._wakeups.draining.is_set() and await self._claim(is_woken=True):
                    self._notifications.vain_wakeups = 0
                    await asyncio.sleep(0)  # the handler of the new job starts before the lock is given up
                return

    async def _sleep_without_lock(self) -> None:
        """Polls with growing pauses, because the worker that has the lock may give it up for a moment. After the
        longest pause it relies on notifications, if there are any."""
        notifications, pause = self._notifications, self._poll_seconds
        self._poll_seconds = min(self._config.poll_max_interval, pause * self._config.poll_multiplier)
        if not notifications.is_listening or pause < self._config.poll_max_interval:
            is_woken = await self._notifications.wait_for_jobs(min(pause, self._claiming.next_scan_in))
        else:
            self._wakeups.jobs.clear()
            # The job of a producer that committed before the other worker had the lock was not announced.
            if self._is_needed_awake() or await self._claim():
                return
            is_woken = await self._sleep_until_notified()
        if is_woken:
            self._poll_seconds = self._config.poll_interval

    async def _sleep_until_notified(self) -> bool:
        """Returns whether a notification has ended the sleep; otherwise its time was up."""
        with self._wakeups.asleep():
            return await self._notifications.wait_for_jobs(min(LONGEST_SLEEP_SECONDS, self._claiming.next_scan_in))
