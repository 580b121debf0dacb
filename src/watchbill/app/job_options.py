"""The options of an enqueue, such as `task.using(queue="mail", delay=60)`; `model/job_fields.py` has the list."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from types import UnionType
from typing import Any, Protocol, TypeAlias, TypedDict
from uuid import UUID

import orjson

from watchbill.errors import WatchbillError
from watchbill.model.dependency_graph import RunIf
from watchbill.model.durations import DURATION_WORDS, LONGEST_TIMEOUT_SECONDS, Duration, seconds
from watchbill.model.ids import read_id
from watchbill.model.job import NewJob
from watchbill.model.job_fields import JOB_OPTIONS, Kind
from watchbill.model.option_names import refuse_unknown
from watchbill.model.retry import Retry, as_retry
from watchbill.model.unique import Debounce, KeyFormat, Unique, format_parameters
from watchbill.model.webhook import Webhook

LONGEST_INTERVAL_SECONDS = 1e10  # PostgreSQL has no longer interval
MAX_QUEUE_LENGTH = 100


class InvalidOption(WatchbillError, ValueError):
    """An option cannot have this value."""

    exit_code = 2


class StoredJob(Protocol):
    """A Job, or a record of one."""

    @property
    def id(self) -> UUID: ...


class UnsentJob(Protocol):
    """A Call."""

    def new_job(self) -> NewJob: ...


class UnsentFlow(Protocol):
    """A Flow; a job that waits for it waits for its last calls."""

    @property
    def last_calls(self) -> Sequence[UnsentJob]: ...


Parent: TypeAlias = StoredJob | UUID | UnsentJob
Parents: TypeAlias = Parent | UnsentFlow | Sequence[Parent | UnsentFlow]


@dataclass(frozen=True)
class JobOptions:
    """How a job is enqueued, as far as its caller decides. Durations are seconds here; `change` takes any form."""

    queue: str = "default"
    priority: int = 0
    delay: float | None = None
    run_at: datetime | None = None
    tenant: str = "default"
    retry: Retry = Retry()  # noqa: RUF009  (frozen, and checked once)
    timeout: float | None = None
    idempotency_key: str | None = None
    idempotency_window: float | None = None
    strict: bool = False
    connection: Any = None
    id: UUID | None = None
    depends_on: tuple[Parent, ...] = ()
    run_if: RunIf | None = None
    limit_keys: tuple[KeyFormat, ...] | None = None
    ordered_by: KeyFormat | None = None
    route_by: KeyFormat | None = None
    group: str | None = None
    runs_on: dict[str, Any] | None = None
    unique: Unique | Debounce | None = None
    expires: float | datetime | None = None
    notify: Webhook | None = None
    cell: str | None = None

    def change(self, **options: Any) -> JobOptions:
        """Checks these options and returns a copy with them."""
        refuse_unknown("using", options, tuple(field.name for field in dataclasses.fields(self)))
        for name, value in options.items():
            _check_option(name, value)
            if JOB_OPTIONS[name].kind == "duration" and value is not None:
                options[name] = seconds(value)
        if isinstance(options.get("expires"), Duration):
            options["expires"] = seconds(options["expires"])
        if self.timeout is not None and options.get("timeout", self.timeout) is None:
            options["timeout"] = LONGEST_TIMEOUT_SECONDS  # a job without a timeout would get that of its task
        if "retry" in options:
            options["retry"] = as_retry(options["retry"])
        if "depends_on" in options:
            options["depends_on"] = flatten_parents(options["depends_on"])
        if options.get("limit_keys") is not None:
            options["limit_keys"] = tuple(options["limit_keys"])
        return dataclasses.replace(self, **options)

    @cached_property
    def has_formats(self) -> bool:
        """Whether keys of the job are made of its arguments."""
        return any(each is not None for each in self._formats)

    @cached_property
    def key_parameters(self) -> frozenset[str] | None:
        """The parameters that keys of the job are made of; None means all of them."""
        if self.unique is not None and self.unique.by is None:
            return None
        return format_parameters(self._formats)

    @property
    def _formats(self) -> tuple[KeyFormat | None, ...]:
        by = None if self.unique is None else self.unique.by
        return (self.ordered_by, self.route_by, by, *(self.limit_keys or ()))

    @cached_property
    def template(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What all jobs with these options have in common: NewJob's fields from `queue` to before `version`, and
        those after it."""
        values = {name: getattr(self, name) for name, field in JOB_OPTIONS.items() if field.column}
        values |= {"retry": self.retry.policy(), "max_attempts": self.retry.max_attempts}
        values |= {"id": UUID(int=0), "depends_on": stored_ids(self.depends_on), "token_group": self.group}
        if self.unique is not None:
            values |= self.unique.columns()
        if self.expires is not None:
            values["expires_at" if isinstance(self.expires, datetime) else "expires_in"] = self.expires
        if self.notify is not None:
            values["meta"] = orjson.dumps({"notify": self.notify.definition})
        job = NewJob(type="", payload=b"", **values)
        queue, version = NewJob._fields.index("queue"), NewJob._fields.index("version")
        return job[queue:version], job[version + 1 :]


class JobOptionsDict(TypedDict, total=False):
    """JobOptions for type checkers: what `using` and `app.enqueue` take by name."""

    queue: str
    priority: int
    delay: Duration | None
    run_at: datetime | None
    tenant: str
    retry: int | Retry
    timeout: Duration | None
    idempotency_key: str | None
    idempotency_window: Duration | None
    strict: bool
    connection: Any
    id: UUID | None
    depends_on: Parents
    run_if: RunIf | None
    limit_keys: Sequence[KeyFormat] | None
    ordered_by: KeyFormat | None
    route_by: KeyFormat | None
    group: str | None
    runs_on: dict[str, Any] | None
    unique: Unique | Debounce | None
    expires: Duration | datetime | None
    notify: Webhook | None
    cell: str | None


# -- These functions check options.

_TYPES: dict[Kind, tuple[type | UnionType, str]] = {
    "text": (str, "a text"),
    "integer": (int, "a whole number"),
    "instant": (datetime, "a datetime"),
    "duration": (Duration, DURATION_WORDS),
    "retry": (int | Retry, "a number of attempts, or a policy such as Retry(max_attempts=3, base=60)"),
    "flag": (bool, "True or False"),
    "id": (UUID, "a UUID"),
    "format": (str | Callable, "a format such as '{account}', or a function of the arguments"),
    "formats": (list | tuple, "a list of formats such as 'account:{account}'"),
    "labels": (dict, "a dictionary of labels, which are texts, such as {'gpu': 'a100'}"),
    "unique": (Unique | Debounce, "a Unique or a Debounce"),
    "expiry": (Duration | datetime, f"{DURATION_WORDS}, or an aware datetime"),
    "webhook": (Webhook, "a Webhook, such as Webhook('crm')"),
}


def _check_option(name: str, value: Any) -> None:
    kind = JOB_OPTIONS[name].kind
    if value is None and getattr(JobOptions, name) is None:
        return
    wanted, words = _TYPES.get(kind, (object, ""))
    fits = isinstance(value, wanted)  # not in the `if`: type checkers would take `value` for an object after it
    if not fits or (kind == "labels" and not _are_texts(value)):
        raise InvalidOption(f"{name}={value!r} is invalid: give {words}.")
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError(f"{name}={value!r} has no time zone; give one, such as datetime.now(timezone.utc)")
    has_duration = kind == "duration" or (kind == "expiry" and not isinstance(value, datetime))
    if has_duration and not abs(_read_seconds(name, value)) < LONGEST_INTERVAL_SECONDS:
        raise InvalidOption(f"{name}={value!r} is invalid: give {words}, less than {LONGEST_INTERVAL_SECONDS:,.0f} s.")
    bound = 2**15 if name == "priority" else 2**31
    if kind == "integer" and not -bound <= value < bound:
        raise InvalidOption(f"{name}={value!r} is invalid: give a number between {-bound:,} and {bound - 1:,}.")


def _are_texts(labels: dict[Any, Any]) -> bool:
    """Nodes have no other labels, so no node would ever run the job."""
    return all(isinstance(each, str) for pair in labels.items() for each in pair)


def refuse_impossible(options: JobOptions) -> None:
    """Refuses what the database would refuse in every job of a task, where the task is declared."""
    timeout = options.timeout
    refused = {
        "queue": (1 <= len(options.queue) <= MAX_QUEUE_LENGTH, f"a text of 1 to {MAX_QUEUE_LENGTH} characters"),
        "expires": (
            not isinstance(options.expires, datetime) and (options.expires is None or options.expires > 0),
            "a duration of more than 0 s; a time can be given with using(expires=...)",
        ),
        "timeout": (timeout is None or 0 < timeout <= LONGEST_TIMEOUT_SECONDS, "more than 0 s and at most 365 days"),
    }
    for name, (fits, words) in refused.items():
        if not fits:
            raise InvalidOption(f"@app.task({name}={getattr(options, name)!r}) is invalid: give {words}.")


def refuse_other_exceptions(chosen: Retry, own: Retry) -> None:
    """Refuses a Retry of one job whose `on` and `not_on` are not its task's: classes are not stored with a job."""
    if (chosen.on or chosen.not_on) and (chosen.on, chosen.not_on) != (own.on, own.not_on):
        raise InvalidOption(
            "on and not_on cannot be chosen for one job: they belong to its task.",
            hint="Declare them with the task, as in @app.task(retry=Retry(on=(ConnectionError,))).",
        )


def _read_seconds(name: str, value: Duration) -> float:
    try:
        return seconds(value)
    except ValueError as error:
        raise InvalidOption(f"{name}={value!r} is invalid: {error}.") from None


# -- These functions read the option depends_on.


def flatten_parents(given: Any) -> tuple[Parent, ...]:
    """Turns one parent or several into a tuple; a flow is replaced by its last calls."""
    several: Iterable[Any] = given if isinstance(given, list | set | frozenset) or type(given) is tuple else (given,)
    parents = tuple(parent for each in several for parent in getattr(each, "last_calls", (each,)))
    stored_ids(parents)  # raises if one is of another type
    return parents


def stored_ids(parents: Sequence[Parent]) -> tuple[UUID, ...] | None:
    """The ids of those parents that have been enqueued; None if there are none."""
    return tuple(known for parent in parents if (known := stored_id(parent)) is not None) or None


def stored_id(parent: Any) -> UUID | None:
    if isinstance(parent, UUID):
        return parent
    if hasattr(parent, "new_job"):
        return None
    found = getattr(parent, "id", None)
    if read_id(parent) is not None:
        raise TypeError(f"depends_on takes ids of jobs, not their texts: give UUID({parent!r})")
    if not isinstance(found, UUID):
        raise TypeError(
            f"depends_on takes jobs, ids of jobs, calls (task.bind(...)) and flows; {parent!r} is none of them"
        )
    return found


def refuse_unsent(parents: Sequence[Parent]) -> None:
    """A job that is enqueued alone cannot wait for one that is not enqueued yet."""
    for parent in parents:
        if stored_id(parent) is None:
            raise ValueError(
                f"depends_on names {parent!r}, which has not been enqueued; enqueue both together, "
                "with app.enqueue_many([...]) or chain(...)"
            )
