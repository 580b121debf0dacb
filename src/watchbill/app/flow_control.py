"""Limits, rates, order and queues as the code declares them, and what cannot be combined.

A task's limits become key formats, which travel with each job (`TaskFlow`), and rules, which a node writes when it
starts (`FlowRules`). An App also writes rules that do not exist yet before its first job that needs them, because a
producer may run before the first node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, NamedTuple

from watchbill.model.durations import seconds
from watchbill.model.key_format import check_key, escape
from watchbill.model.limits import RESERVED_NAMES, By, KeyFunction, Limit, Rate
from watchbill.model.queue import Queue

AnyLimit = Limit | Rate


class LimitUse(NamedTuple):
    """A limit that a task uses: the name of its rule, and what the declaration says."""

    name: str
    limit: AnyLimit
    place: str

    def __str__(self) -> str:
        return f"{self.limit!r} of {self.place}"


class TaskFlow:
    """The flow control of one task. `limit_keys` and `ordered_by` travel with each of its jobs: formats, which SQL
    fills in, and functions of the arguments."""

    def __init__(
        self,
        type: str,
        place: str,
        limits: Sequence[AnyLimit],
        ordered_by: By | None,
        when_dead: str,
        parameters: Sequence[str],
        *,
        any_name: bool,
    ) -> None:
        self.type, self.ordered_by, self.when_dead = type, ordered_by, when_dead
        self.uses = [LimitUse(_name_rule(limit, type), limit, place) for limit in limits]
        for limit in limits:
            if limit.by is not None:
                shown = f"task {type}: {limit.__class__.__name__}(by={limit.by!r})"
                check_key(shown, limit.by, parameters, any_name=any_name)
        if ordered_by is not None:
            check_key(f"task {type}: ordered_by={ordered_by!r}", ordered_by, parameters, any_name=any_name)
        self.is_rated = any(isinstance(limit, Rate) for limit in limits)
        self.limit_keys = tuple(dict.fromkeys(_make_key(use) for use in self.uses)) or None

    def __bool__(self) -> bool:
        return bool(self.uses) or self.ordered_by is not None

    @property
    def rules(self) -> list[dict[str, Any]]:
        """The rule of the task's ordered keys, if not the default: what happens when an ordered job is dead."""
        if self.when_dead == "continue":
            return []
        return [{"name": make_order_rule_name(self.type), "when_dead": self.when_dead}]


def make_order_rule_name(type: str) -> str:
    """The name of the rule for the `ordered_by` keys of a task: `order:TYPE`, with % and : escaped. The SQL function
    `_order_name` makes the same name."""
    return "order:" + type.replace("%", "%25").replace(":", "%3A")


def _name_rule(limit: AnyLimit, type: str) -> str:
    if limit.name is not None:
        return limit.name
    if limit.by is None:
        return f"task:{type}"
    if set(type) & set(":{}"):
        raise ValueError(f"task {type}: {limit!r} needs a name, because the type has a colon or a brace")
    if type in RESERVED_NAMES:
        raise ValueError(f"task {type}: {limit!r} needs a name, because {type}: begins the keys of other limits")
    return type


def _make_key(use: LimitUse) -> By:
    name, by = use.name, use.limit.by
    if by is None:
        return escape(name)
    return f"{name}:{by}" if isinstance(by, str) else _add_name(name, by)


def _add_name(name: str, function: KeyFunction) -> KeyFunction:
    @wraps(function)  # keeps the parameters of `function`, which say what arguments it takes
    def make_key(*args: Any, **kwargs: Any) -> str:
        return f"{name}:{function(*args, **kwargs)}"

    return make_key


def make_flow(
    type: str,
    place: str,
    limits: object,
    ordered_by: object,
    when_dead: object,
    parameters: Sequence[str],
    *,
    any_name: bool,
    has_batch: bool,
    priority: int,
    has_debounce: bool,
) -> TaskFlow:
    """Checks the options of a task and what cannot be combined."""
    if not isinstance(limits, list | tuple) or not all(isinstance(each, Limit | Rate) for each in limits):
        raise TypeError(f"task {type}: limits={limits!r} is invalid: give a list of Limit and Rate")
    if ordered_by is not None and not isinstance(ordered_by, str) and not callable(ordered_by):
        raise TypeError(f"task {type}: ordered_by={ordered_by!r} is invalid: give a format, such as '{{order_id}}'")
    if when_dead not in ("continue", "pause"):
        raise ValueError(f"task {type}: when_dead={when_dead!r} is invalid: it must be continue or pause")
    if when_dead == "pause" and ordered_by is None:
        raise ValueError(f"task {type}: when_dead needs ordered_by, whose keys it is about")
    if ordered_by is not None:
        refuse_with_order(type, has_batch=has_batch, priority=priority, has_debounce=has_debounce)
    kept: tuple[AnyLimit, ...] = tuple(limits)
    return TaskFlow(type, place, kept, ordered_by, str(when_dead), parameters, any_name=any_name)


def refuse_with_order(type: str, *, has_batch: bool, priority: int, has_debounce: bool) -> None:
    """Raises ValueError for options that jobs with `ordered_by` cannot have."""
    others = {"batch": has_batch, "priority": priority != 0, "unique=Debounce(...)": has_debounce}
    for name, is_given in others.items():
        if is_given:
            raise ValueError(f"task {type}: ordered_by and {name} cannot be combined: {_REASONS[name]}")


_REASONS = {
    "batch": "the jobs of a key run one at a time",
    "priority": "the jobs of a key run in the order in which they were enqueued",
    "unique=Debounce(...)": "a debounced job moves to a later time, and would hold its key until then",
}


class FlowRules:
    """The limits and queues of one App or Tasks."""

    def __init__(self) -> None:
        # By name of the limit: its Limit under None, and its Rates under the lengths of their windows.
        self._uses: dict[str, dict[float | None, LimitUse]] = {}
        self._others: dict[str, dict[str, Any]] = {}  # by name of the rule: those of ordered tasks
        self.queues: dict[str, tuple[Queue, str]] = {}  # by name: the queue, and where it is declared
        self.version = 0  # grows with each declaration

    def add_task(self, flow: TaskFlow) -> None:
        """Raises ValueError if this or another task declares a limit of the same name differently."""
        declared = {use.name: dict(self._uses.get(use.name, {})) for use in flow.uses}
        for use in flow.uses:
            known = declared[use.name]
            for other in known.values():
                if (other.limit.by is None) != (use.limit.by is None):
                    raise ValueError(
                        f"limit {use.name!r} is declared with by= and without: {other} and {use}; give one of them "
                        "another name"
                    )
            same = known.setdefault(seconds(use.limit.per) if isinstance(use.limit, Rate) else None, use)
            if same.limit.rule != use.limit.rule:
                raise ValueError(
                    f"limit {use.name!r} is declared twice, and differently: {same} and {use}; make them equal, or "
                    "give one of them another name"
                )
        self.version += bool(flow)
        self._uses |= declared
        self._others |= {rule["name"]: rule for rule in flow.rules}

    def add_queue(self, queue: Queue, place: str) -> None:
        self.version += 1
        known, first = self.queues.setdefault(queue.name, (queue, place))
        if known != queue:
            raise ValueError(
                f"queue {queue.name!r} is declared twice, and differently: {known!r} ({first}) and {queue!r} ({place})"
            )

    @property
    def limits(self) -> list[dict[str, Any]]:
        """The limits in the form that the SQL function declare_limits() takes."""
        rules = []
        for name, uses in self._uses.items():
            limit = uses.get(None)
            rates = [uses[per].limit.rule for per in sorted(per for per in uses if per is not None)]
            rules.append({"name": name} | (limit.limit.rule if limit else {}) | ({"rates": rates} if rates else {}))
        return sorted([*rules, *self._others.values()], key=lambda rule: str(rule["name"]))

    @property
    def queue_definitions(self) -> list[dict[str, Any]]:
        """The queues in the form that the SQL function declare_queues() takes."""
        return [queue.definition for queue, _ in sorted(self.queues.values(), key=lambda each: each[0].name)]


def refuse_in_fair_queue(queues: Iterable[Queue], type: str, queue: str, options: Mapping[str, object]) -> None:
    """Raises ValueError if a task of a fair queue also says where its jobs run: a lane is a share or a node."""
    for each in queues:
        if each.name == queue and each.fair_by is not None:
            for name, value in options.items():
                if value is not None:
                    raise ValueError(
                        f"task {type}: {name} and the fair queue {queue!r} cannot be combined, because a fair queue "
                        "uses its lanes for shares; use another queue"
                    )
