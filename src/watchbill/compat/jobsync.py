"""JobSync's Job, Task and CoordinationConfig, on Watchbill's token groups.

A site of JobSync is a token group of Watchbill, and a Job is a member of that group while its `with` block runs. A task
that a Job adds is an item that the member holds, in the scope of the Job's date. The audit is the list of finished
items. A task lock is a pin.

`__exit__` may be called twice, and from a signal handler. A signal handler interrupts the main thread anywhere, perhaps
inside a call that holds a lock of the connection pool. So `__exit__` itself sends no statement: the thread of the node
leaves the group.
"""

from __future__ import annotations

import inspect
import logging
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from datetime import date as calendar_date
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus

from watchbill.app.application import App
from watchbill.app.groups import Group, make_pins
from watchbill.app.json_round_trip import shorten
from watchbill.app.members import Member
from watchbill.client import cluster_operations
from watchbill.cluster.distribution import plan_moves
from watchbill.cluster.hashing import token_of
from watchbill.cluster.options import Intervals
from watchbill.cluster.ownership import Rebalance
from watchbill.errors import WatchbillError
from watchbill.model.cluster import PinRecord
from watchbill.model.job import NodeRecord
from watchbill.store.facades import DEFAULTS, Facade, installed_facades

logger = logging.getLogger("watchbill.compat.jobsync")

FACADE = "jobsync"
RELATIONS = ("Node", "Token", "Lock", "Rebalance", "Claim", "Audit")
RECOVERED_AFTER = timedelta(minutes=5)
DAY_SECONDS = 86_400.0
CLOSE_SECONDS = 5.0  # how long closing the pool may take: an interrupted call may still hold the lock of the pool

Patterns = str | Sequence[str]
Matcher = Callable[[str, str], bool]
OnRebalance = Callable[[Rebalance], object] | Callable[[], object]


class TaskTaken(WatchbillError):
    """Another node holds the task, or owns its token."""

    def __init__(self, id: Hashable, reason: str, node: str | None) -> None:
        holder = f", by {node}" if node and reason == "taken" else ""
        super().__init__(f"Task {id!r} is {reason}{holder}.", hint="Leave it to the node that owns it.")
        self.id, self.reason, self.node = id, reason, node


@dataclass(frozen=True, order=True)
class Task:
    """A task to work on. Tasks are compared and sorted by their ids."""

    id: Any
    name: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        _check_hashable(self.id)


@dataclass
class CoordinationConfig:
    """How the nodes of a site work together. Times are in seconds."""

    enabled: bool = True
    total_tokens: int = 10_000
    heartbeat_interval_sec: float = 5
    heartbeat_timeout_sec: float = 15
    rebalance_check_interval_sec: float = 30
    dead_node_check_interval_sec: float = 10
    token_refresh_initial_interval_sec: float = 5
    token_refresh_steady_interval_sec: float = 30
    locks_enabled: bool = True
    leader_lock_timeout_sec: float = 30
    health_check_interval_sec: float = 30
    minimum_nodes: int = 1
    hash_function: str = "md5"

    @classmethod
    def read(cls, config: object) -> CoordinationConfig:
        """Reads the options from `config.sync.coordination`. An option that is missing there keeps its default."""
        found = _find_attribute(config, "coordination")
        values: dict[str, Any] = {}
        for each in fields(cls):
            value: Any = getattr(found, each.name, None)
            if isinstance(value, bool | int | float | str):  # some config objects return an object for any unknown name
                values[each.name] = value
        return cls(**values)

    def make_intervals(self) -> Intervals:
        return Intervals(
            heartbeat=self.heartbeat_interval_sec,
            survey=self.dead_node_check_interval_sec,
            first_looks=self.token_refresh_initial_interval_sec,
            looks=self.token_refresh_steady_interval_sec,
            leader_looks=self.rebalance_check_interval_sec,
        )


class _Claim(NamedTuple):
    """A task that this Job holds."""

    fence: int
    epoch: int  # the epoch of the node when it claimed the task


NO_CLAIM = _Claim(0, 0)


class Job:
    """This process as a node of a site: `with Job("worker-01", "production", config) as job:`."""

    def __init__(
        self,
        node_name: str,
        site: str,
        config: object = None,
        date: calendar_date | None = None,
        wait_on_enter: float = 120,
        wait_on_exit: float = 0,
        skip_db_init: bool = False,
        lock_provider: Callable[[Job], object] | None = None,
        clear_existing_locks: bool = False,
        coordination_config: CoordinationConfig | None = None,
        db_connection: psycopg.Connection[Any] | None = None,
        on_rebalance: OnRebalance | None = None,
    ) -> None:
        """`config` is any object with the attributes of JobSync's config module: `sync.coordination` and `sync.sql`.
        If neither that nor `db_connection` says where the database is, Watchbill's settings do. `wait_on_enter` is the
        longest wait for tokens; `wait_on_exit` is how long the node stays after the end of the block."""
        self.node_name, self.site = _check_name("node_name", node_name), _check_name("site", site)
        self._options = coordination_config or CoordinationConfig.read(config)
        self._coordination_enabled = self._options.enabled
        self._given_date = _check_date(date)
        self._wait_on_enter, self._wait_on_exit = abs(wait_on_enter), abs(wait_on_exit)
        self._pause: _Pause | None = None
        self._looks_for_facade = not skip_db_init
        self._lock_provider, self._clears_locks = lock_provider, clear_existing_locks
        self._on_rebalance = None if on_rebalance is None else _adapt_callback(on_rebalance)
        self._sql_config = _find_attribute(config, "sql")
        self._given_connection = db_connection
        self._connection: psycopg.Connection[Any] | None = None
        self._app = self._make_app()
        self._group = self._make_group()
        self._member: Member | None = None
        self._knows_site = False  # whether this Job has seen its site in the database
        self._claims: dict[str, _Claim] = {}
        self._added: dict[str, Task] = {}  # tasks that were added since the last audit, by key
        self._local_audit: list[dict[str, Any]] = []  # the audit of a Job that works without coordination

    def _make_app(self) -> App:
        app = App(self._find_address(), name=FACADE, lease=self._options.heartbeat_timeout_sec)
        if self._coordination_enabled:
            labels = {**dict(app.settings.labels), "site": self.site}
            app.use(replace(app.settings, labels=tuple(sorted(labels.items()))))
        return app

    def _make_group(self) -> Group:
        options = self._options
        return self._app.cluster.group(
            self.site,
            tokens=options.total_tokens,
            hash=options.hash_function,
            min_nodes=options.minimum_nodes,
            coordination=options.enabled,
        )

    def _find_address(self) -> str | None:
        if self._given_connection is not None:
            info = self._given_connection.info
            return make_conninfo(**info.get_parameters(), password=info.password or None)
        names = {"host": "host", "port": "port", "dbname": "dbname", "user": "user", "password": "passwd"}
        found = {name: getattr(self._sql_config, theirs, None) for name, theirs in names.items()}
        named = {name: str(value) for name, value in found.items() if isinstance(value, str | int)}
        return make_conninfo("", **named) if named else None

    # -- begin and end of the `with` block

    def __enter__(self) -> Self:
        try:
            if self._coordination_enabled:
                self._warn_without_facade()
                self._group.declare()
                self._knows_site = True
                self._register_locks()
            self._member = self._group.join(
                self.node_name,
                on_rebalance=self._on_rebalance,
                wait=self._wait_on_enter,
                intervals=self._options.make_intervals(),
            )
            self._member.__enter__()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        if self._wait_on_exit:
            self._pause = _Pause(self._wait_on_exit)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        raised: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Leaves the site after `wait_on_exit`, or at once if this is called again meanwhile. Tasks that were added and
        not audited stay incomplete."""
        if self._pause is not None:
            self._pause.wait_or_end_wait(self.node_name, self.site)
            self._pause = None
        member = self._member
        if member is not None:
            member.__exit__(kind, raised, trace)
            self._member = None
        self._claims.clear()
        self._added.clear()
        connection, self._connection = self._connection, None
        if connection is not None and connection is not self._given_connection:
            connection.close()
        closer = threading.Thread(target=self._app.close, name="jobsync-close", daemon=True)
        closer.start()
        closer.join(CLOSE_SECONDS)

    @property
    def member(self) -> Member:
        """Watchbill's own Member object of this Job. Use it for items that are checked in your own transactions."""
        if self._member is None:
            raise WatchbillError("The Job has not been entered.", hint="Use it inside `with Job(...) as job:`.")
        return self._member

    # -- methods that claim tasks and record them as done

    @cached_property
    def date(self) -> calendar_date:
        """The day whose tasks are processed: the given date, or today by the clock of the database."""
        if self._given_date is not None:
            return self._given_date
        if not self._coordination_enabled:
            return datetime.now().astimezone().date()
        query = sql.SQL("SELECT {}.now()::date").format(sql.Identifier(self._app.settings.schema))
        with self._app.client.connection() as connection:
            ((today,),) = connection.execute(query).fetchall()
        return calendar_date.fromisoformat(str(today))

    # Wherever a task is given, its id will do.

    def can_claim_task(self, task: Task | Hashable) -> bool:
        """Whether this node owns the task now. Answers from memory, and False as soon as the node's lease may have
        ended."""
        task_id = _id_of(task)
        if not self._coordination_enabled:
            return True
        return self._member is not None and self._member.owns(task_id)

    def add_task(self, task: Task | Hashable) -> None:
        """Claims the task for this node alone, until the audit, the end of the block or the loss of the node. Raises
        TaskTaken if another node holds or owns the task. Does nothing for a task that this Job has added already."""
        self._claim_items([task])
        task_id = _id_of(task)
        self._added[str(task_id)] = Task(task_id)

    def set_claim(self, items: Task | Hashable | Iterable[Task | Hashable]) -> None:
        """Claims one item or many, as `add_task` does, without adding them to the audit."""
        is_one = isinstance(items, str | bytes) or hasattr(items, "id") or not isinstance(items, Iterable)
        self._claim_items([items] if is_one else items)  # type: ignore[arg-type, list-item]

    def _claim_items(self, tasks: Iterable[Task | Hashable]) -> None:
        by_key = {str(each): each for each in map(_id_of, tasks)}
        if not self._coordination_enabled:
            return
        member = self.member
        wanted = [key for key in by_key if self._claims.get(key, NO_CLAIM).epoch != member.epoch]
        if not wanted:
            return
        rows = self._group.producer.run_apart(
            cluster_operations.claim_items(member.epoch, self.site, wanted, self._scope, again=True)
        )
        self._claims |= {row.key: _Claim(row.fence, member.epoch) for row in rows if row.fence is not None}
        for row in rows:
            if row.fence is None:
                raise TaskTaken(by_key[row.key], row.refused or "taken", row.node)

    def write_audit(self) -> int:
        """Records the tasks that were added since the last call as complete. Returns how many. If another node has
        taken over a task meanwhile, logs a warning and leaves the task to that node."""
        added, self._added = self._added, {}
        if not added:
            return 0
        if not self._coordination_enabled:
            self._local_audit += [self._as_audit(key, self.node_name, datetime.now(UTC)) for key in added]
            return len(added)
        fences = [self._claims[key].fence for key in added]
        try:
            stale = self._group.producer.run_apart(
                cluster_operations.finish_items(self.site, list(added), fences, self._scope)
            )
        except BaseException:
            self._added = added | self._added
            raise
        for key in added:
            self._claims.pop(key, None)
        if stale:
            logger.warning(
                "%d tasks of %s are not recorded as done, because other nodes have taken them over; the first are: %s",
                len(stale), self.node_name, ", ".join(sorted(stale)[:10]),
            )  # fmt: skip
        return len(added) - len(stale)

    def get_audit(self) -> list[dict[str, Any]]:
        """Returns the tasks of the Job's date that are complete: node, item, date and created_on."""
        if not self._coordination_enabled:
            return list(self._local_audit)
        records = self._group.audit(self.date)
        return [self._as_audit(each.key, each.node, each.ended_at) for each in records if each.state == "finished"]

    def incomplete_tasks(self, older_than: timedelta = RECOVERED_AFTER) -> list[Task]:
        """Returns the tasks of the Job's date that were claimed longer than `older_than` ago, are not complete, and are
        not held by a living node."""
        if not self._coordination_enabled:
            return []
        found = self._group.incomplete(self.date, older_than=older_than)
        return [Task(each.key) for each in found if not each.is_held]

    @property
    def _scope(self) -> str:
        return self.date.isoformat()

    def _as_audit(self, key: str, node: str, at: datetime | None) -> dict[str, Any]:
        return {"date": self.date, "node": node, "item": key, "created_on": at}

    # -- task locks, which are pins

    def register_task_lock(
        self,
        task_id: Task | Hashable,
        node_pattern: Patterns,
        reason: str | None = None,
        expires_in_days: float | None = None,
    ) -> None:
        """Pins a task to the nodes whose names match a LIKE pattern. Of several patterns the first one that matches a
        node counts. Replaces the pin that the task has. No node needs to have entered."""
        self._pin_tasks([(task_id, node_pattern, reason)], expires_in_days)

    def register_task_locks_bulk(
        self, locks: Iterable[tuple[Task | Hashable, Patterns] | tuple[Task | Hashable, Patterns, str | None]]
    ) -> int:
        """Pins many tasks in one statement: tuples of task id, pattern and reason. Several patterns for one task are
        alternatives in their order. Returns the number of tasks."""
        return self._pin_tasks([(each[0], each[1], each[2] if len(each) > 2 else None) for each in locks], None)

    register_lock = register_task_lock
    register_locks_bulk = register_task_locks_bulk

    def list_locks(self) -> list[dict[str, Any]]:
        """Returns the pins that have not expired: token_id, task_id, node_pattern, reason, created_by, created_at and
        expires_at. `node_patterns` has all patterns of the pin; `node_pattern` is the one that the owner matches."""
        return [_as_lock(pin) for pin in self._group.pins()] if self._coordination_enabled else []

    def clear_locks_by_creator(self, name: str) -> int:
        """Clears the pins that a node has made. Returns how many were cleared."""
        return self._group.clear_pins(created_by=name) if self._has_site() else 0

    def clear_all_locks(self) -> int:
        return self._group.clear_pins() if self._has_site() else 0

    def _pin_tasks(self, locks: list[tuple[Task | Hashable, Patterns, str | None]], days: float | None) -> int:
        if not (locks and self._coordination_enabled and self._options.locks_enabled):
            return 0
        wanted = make_pins(
            (_id_of(task), [patterns] if isinstance(patterns, str) else patterns, reason)
            for task, patterns, reason in locks
        )
        expires = None if days is None else days * DAY_SECONDS
        if not self._has_site():
            self._group.declare()
        return self._group.pin_many(wanted, expires=expires, created_by=self.node_name)

    def _register_locks(self) -> None:
        if not self._options.locks_enabled:
            return
        if self._clears_locks:
            self.clear_locks_by_creator(self.node_name)
        if self._lock_provider is not None:
            self._lock_provider(self)

    # -- the state of this node and of the site

    def am_i_healthy(self) -> bool:
        """Whether this node has received its tokens, and its lease has not ended."""
        return self._member is not None and self._member.is_ready and self._member.is_healthy

    def am_i_leader(self) -> bool:
        return self._member is not None and self._member.is_leader

    def get_active_nodes(self) -> list[dict[str, Any]]:
        """Returns the living nodes of the site, the oldest first: name, created_on and last_heartbeat."""
        return [
            {"name": node.name, "created_on": node.started_at, "last_heartbeat": node.heartbeat_at}
            for node in self._list_nodes()
            if node.state in ("active", "draining")
        ]

    def get_dead_nodes(self) -> list[str]:
        """Returns the names of the nodes of the site that were lost and have not returned."""
        return [node.name for node in self._list_nodes() if node.state == "lost"]

    def _has_site(self) -> bool:
        """Whether the database has the site: a node has entered it, or a lock was registered for it."""
        if self._coordination_enabled and not self._knows_site:
            try:
                self._group.status()
            except cluster_operations.NoSuchGroup:
                return False
            self._knows_site = True
        return self._knows_site

    def _list_nodes(self) -> list[NodeRecord]:
        """Returns the nodes of the site; of several nodes with the same name, the newest."""
        if not self._has_site():
            return []
        group = self._group.status()
        living = {*group.members, *group.others}
        nodes = sorted(self._app.cluster.nodes(gone=True), key=lambda node: node.epoch)
        newest = {node.name: node for node in nodes if node.labels.get("site") == self.site or node.name in living}
        return sorted(newest.values(), key=lambda node: node.epoch)

    @property
    def nodes(self) -> list[dict[str, Any]]:
        return self.get_active_nodes() if self._coordination_enabled else [{"name": self.node_name}]

    @property
    def my_tokens(self) -> set[int]:
        """The tokens that this node owns now. Numbers from `total_tokens` on stand for pins."""
        return set() if self._member is None else set(self._member.tokens)

    @property
    def token_version(self) -> int:
        """A number that grows with each change of the owners of tokens."""
        return 0 if self._member is None else max(self._member.version, 0)

    _my_tokens = my_tokens
    _token_version = token_version

    @property
    def _last_heartbeat_sent(self) -> datetime | None:
        age = None if self._member is None else self._member.heartbeat_age
        return None if age is None else datetime.now(UTC) - timedelta(seconds=age)

    # -- the connection and the views for the program's own SQL

    @property
    def _cn(self) -> psycopg.Connection[Any]:
        """The connection for the program's own SQL: the given one, or else one in autocommit mode. On this connection
        the facade's views show this site only."""
        if self._connection is None or self._connection.closed:
            address = self._app.settings.listen_url or self._app.database_url
            self._connection = self._given_connection or psycopg.connect(address, autocommit=True)
            _set_session(self._connection, self.site)
        return self._connection

    @cached_property
    def _tables(self) -> Mapping[str, str]:
        """The names of the views in the database, for the program's own SQL: `Node` -> `"public"."sync_node"`."""
        facade = self._find_facade() if self._looks_for_facade and self._coordination_enabled else None
        prefix = self._wanted_prefix if facade is None else facade.prefix
        schema = () if facade is None else (facade.schema,)
        return {name: sql.Identifier(*schema, prefix + name.lower()).as_string(None) for name in RELATIONS}

    @property
    def _wanted_prefix(self) -> str:
        found = getattr(self._sql_config, "appname", None)
        return found if isinstance(found, str) else DEFAULTS[FACADE].prefix

    def _find_facade(self) -> Facade | None:
        with self._app.client.connection() as connection:
            installed = installed_facades(connection, self._app.settings.schema)
        return next((facade for facade in installed if facade.name == FACADE), None)

    def _warn_without_facade(self) -> None:
        if not self._looks_for_facade:
            return
        facade = self._find_facade()
        if facade is None or facade.prefix != self._wanted_prefix:
            logger.warning(
                "The views of the facade jobsync (%snode and others) are not installed; SQL that uses them fails. "
                "Run `watchbill db install jobsync --prefix %s`",
                self._wanted_prefix, self._wanted_prefix,
            )  # fmt: skip


class _Pause:
    """The wait before a Job leaves. A second caller ends the wait: perhaps a signal handler that has interrupted the
    first caller.

    It uses a plain lock, because an Event has an internal lock, which the interrupted caller may hold.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._is_first, self._lock = seconds, True, threading.Lock()
        self._lock.acquire()

    def wait_or_end_wait(self, node: str, site: str) -> None:
        """Waits at the first call. A second call, while the first one waits, ends that wait."""
        is_first, self._is_first = self._is_first, False
        if is_first:
            message = "%s stays in %s for %g s more before it leaves; another signal ends this wait"
            logger.info(message, node, site, self._seconds)
            self._lock.acquire(timeout=self._seconds)
        elif self._lock.locked():
            self._lock.release()


# -- functions of JobSync that need no database


def task_to_token(task_id: Task | Hashable, total_tokens: int, hash_function: str = "md5") -> int:
    """Returns the token of a task, from 0 to total_tokens - 1. The token of a task never changes."""
    return token_of(str(_id_of(task_id)), total_tokens, hash_function)


def matches_pattern(node_name: str, pattern: str) -> bool:
    """Whether a name matches a LIKE pattern, by PostgreSQL's rules: % matches any text, _ any character, and a
    backslash takes the next character literally."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)
    return re.fullmatch(regex, node_name, re.DOTALL) is not None


def compute_minimal_move_distribution(
    total_tokens: int,
    active_nodes: Sequence[str],
    current_assignments: Mapping[int, str],
    locked_tokens: Mapping[int, Patterns],
    pattern_matcher: Matcher = matches_pattern,
) -> tuple[dict[int, str], int]:
    """Returns which node gets which token, and how many tokens move to another node.

    A locked token goes to a node that matches its first pattern with any match, or stays unassigned if no pattern
    matches. All other tokens are divided among all nodes. Each division is even, with the fewest moves.
    """
    pools: dict[tuple[bool, tuple[str, ...]], list[int]] = {}
    for token in range(total_tokens):
        patterns = locked_tokens.get(token)
        owners = (
            tuple(active_nodes) if patterns is None else _find_matching_nodes(patterns, active_nodes, pattern_matcher)
        )
        pools.setdefault((patterns is None, owners), []).append(token)
    assignments: dict[int, str] = {}
    for (_, owners), tokens in pools.items():
        if owners:
            current = {token: current_assignments[token] for token in tokens if token in current_assignments}
            assignments |= current | plan_moves(tokens, owners, current)
    moved = sum(current_assignments.get(token) != node for token, node in assignments.items())
    return dict(sorted(assignments.items())), moved


def _find_matching_nodes(patterns: Patterns, nodes: Sequence[str], matches: Matcher) -> tuple[str, ...]:
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if places := tuple(node for node in nodes if matches(node, pattern)):
            return places
    return ()


def _id_of(task: Task | Hashable) -> Hashable:
    """Returns the id of a task, which may be any object with an `id`; a value without one is an id itself."""
    return _check_hashable(getattr(task, "id", task))


def _check_hashable(task_id: Hashable) -> Hashable:
    try:
        hash(task_id)
    except TypeError:
        raise TypeError(
            f"task id {shorten(task_id)} is invalid: give a value that is hashable, such as a number, a text or a tuple"
        ) from None
    return task_id


def _as_lock(pin: PinRecord) -> dict[str, Any]:
    matching = [pattern for pattern in pin.patterns if pin.owner is not None and matches_pattern(pin.owner, pattern)]
    return {
        "token_id": pin.token,
        "task_id": pin.key,
        "node_pattern": (matching or pin.patterns)[0],
        "node_patterns": pin.patterns,
        "reason": pin.reason,
        "created_by": pin.created_by,
        "created_at": pin.created_at,
        "expires_at": pin.expires_at,
    }


def _set_session(connection: psycopg.Connection[Any], site: str) -> None:
    """Sets the session's time zone to this machine's offset, because programs compare `datetime.now()` with the columns
    of the views. Also sets the site that the views show."""
    is_idle = connection.info.transaction_status == TransactionStatus.IDLE
    connection.execute(
        "SELECT set_config('watchbill.site', %s, false), set_config('TimeZone', %s, false)",
        (site, _name_offset(datetime.now().astimezone().utcoffset() or timedelta())),
    )
    if is_idle and not connection.autocommit:
        connection.commit()


def _name_offset(offset: timedelta) -> str:
    """Returns the name of a time zone with this offset. For whole hours it is a name that psycopg knows too: Etc/GMT-2
    is two hours east of Greenwich."""
    hours = offset / timedelta(hours=1)
    return f"Etc/GMT{-round(hours):+d}" if hours == round(hours) else f"{hours:g}"


def _find_attribute(config: object, name: str) -> object:
    return getattr(getattr(config, "sync", None), name, None)


def _check_name(parameter: str, name: str) -> str:
    if not name.strip():
        raise ValueError(f"{parameter}={name!r} is invalid: give a name")
    return name


def _check_date(date: object) -> calendar_date | None:
    if isinstance(date, datetime):
        return date.date()
    if date is None or isinstance(date, calendar_date):
        return date
    raise TypeError(f"date={date!r} is invalid: give a date or a datetime")


def _adapt_callback(callback: Callable[..., object]) -> Callable[[Rebalance], object]:
    """Returns a function that calls the callback with the event, or without it if the callback takes no argument, as
    JobSync does."""
    try:
        inspect.signature(callback).bind(None)
    except TypeError:
        return lambda _: callback()
    return callback
