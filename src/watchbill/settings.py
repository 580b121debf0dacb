"""Every setting, in one frozen object. Arguments override environment variables, which override the settings file.

The file is `watchbill.toml`, or `[tool.watchbill]` in pyproject.toml, in the project's directory: the nearest directory
upwards with one of these files or a `.git`. The variable of the setting `lease` is WATCHBILL_LEASE; an empty variable
counts as not set. DATABASE_URL, which other programs use too, counts less than the settings file.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from watchbill.errors import SettingsError
from watchbill.model.durations import DURATION_WORDS, seconds

TEST_VARIABLE = "WATCHBILL_TEST_DATABASE_URL"  # not a setting: watchbill.testing reads it
FOR_ENDPOINTS = "WATCHBILL_SECRET_"  # begins variables to which endpoints of connectors refer

# Kubernetes sets variables for every service in every pod. Those of a service named watchbill, or watchbill-db, are not
# settings, and must not be reported as unknown settings.
_KUBERNETES_VARIABLE = re.compile(r"WATCHBILL_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


def _split_names(value: object) -> object:
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _read_labels(value: object) -> object:
    """Reads labels from a text such as `gpu=a100,zone=eu`, a list of such pairs, or a TOML table."""
    if isinstance(value, Mapping):
        value = [(str(name), str(label)) for name, label in value.items()]
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Sequence):
        raise ValueError("neither pairs nor a table")
    pairs = [each.split("=", 1) if isinstance(each, str) else each for each in value]
    labels = sorted(tuple(part.strip() for part in pair) for pair in pairs)
    if any(len(label) < 2 or not all(label) for label in labels) or len({name for name, *_ in labels}) < len(labels):
        raise ValueError("a label has a name and a value, and each name occurs once")
    if any(name == "node" for name, *_ in labels):
        raise ValueError("the label node is reserved")
    return tuple(labels)


def _read_postgres_url(value: object) -> object:
    """Checks a database address. Also accepts SQLAlchemy's form with a driver (postgresql+asyncpg://), because
    DATABASE_URL often has it."""
    if not isinstance(value, str) or "://" not in value:
        return value
    scheme, rest = value.split("://", 1)
    if scheme.split("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("the address must begin with postgresql:// or postgres://")
    return f"postgresql://{rest}"


def _check_schema_name(value: object) -> object:
    """Refuses the name of a schema that needs quotes in psql, or that the server would truncate or reserves."""
    if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", str(value)) or value == "information_schema":
        raise ValueError("a schema must have a plain name: a to z, 0 to 9 and _, at most 63 characters")
    return value


def _check_payload_place(value: object) -> object:
    """Refuses a relative path for the payload store, because producer and worker may start in different directories."""
    if not re.match(r"/|[a-z][a-z0-9+.-]*://.", str(value)):
        raise ValueError("neither an absolute path nor a URL")
    return value


def _read_links(value: object) -> object:
    """Reads links such as `eu=https://eu.example/watchbill`, separated by commas, a list of them, or a TOML table."""
    if isinstance(value, Mapping):
        value = [f"{name}={address}" for name, address in value.items()]
    found = [tuple(each.split("=", 1)) if isinstance(each, str) else each for each in _split_names(value)]  # type: ignore[attr-defined]
    if any(len(each) != 2 or not each[0] or not re.match("https?://", str(each[1])) for each in found):
        raise ValueError("a link has a name and an address")
    return tuple(found)


def _read_commands(value: object) -> object:
    """Reads commands such as `pager=/usr/bin/page --now`, separated by semicolons, or a TOML table."""
    if isinstance(value, str):
        value = dict(each.split("=", 1) for each in value.split(";") if each.strip())
    if not isinstance(value, Mapping):
        pairs = list(value)  # type: ignore[call-overload]
    else:
        pairs = [(name.strip(), command.strip()) for name, command in value.items()]
    for name, command in pairs:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name) or not shlex.split(command):
            raise ValueError("a command has a name and words")
    return tuple(pairs)


def _read_cells(value: object) -> object:
    """Reads cells from a TOML table, whose values are addresses or tables of them, or from a text such as
    `a=postgresql://db-a/shop; b=postgresql://db-b/shop`."""
    if isinstance(value, str):
        value = dict(each.split("=", 1) for each in value.split(";") if each.strip())
    if isinstance(value, Mapping):
        value = [_read_cell(str(name).strip(), given) for name, given in value.items()]
    cells: tuple[Cell, ...] = tuple(value)  # type: ignore[arg-type]
    if len({cell.name for cell in cells}) < len(cells):
        raise ValueError("two cells have the same name")
    return cells


def _read_cell(name: str, given: object) -> Cell:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", name) or name in ("all", "each"):
        raise ValueError(f"{name} cannot name a cell: give a to z, 0 to 9, _ and -, but not all or each")
    addresses = {"database_url": given.strip()} if isinstance(given, str) else given
    if not isinstance(addresses, Mapping) or not addresses.get("database_url"):
        raise ValueError(f"cell {name} has no database_url")
    if unknown := addresses.keys() - set(Cell._fields[1:]):
        raise ValueError(f"cell {name} has the unknown key {min(unknown)}")
    return Cell(name, **{key: _read_postgres_url(url) for key, url in addresses.items()})  # type: ignore[arg-type]


def _check_prefix(value: object) -> object:
    if not re.fullmatch(r"(/[\w.~-]+)*/?", str(value)):
        raise ValueError("a prefix begins with a slash")
    return str(value).rstrip("/")


def _check_binaries(value: object) -> object:
    if value not in {"auto", "wheel", "system"} and not Path(str(value)).is_dir():
        raise ValueError(f"{value} is neither auto, wheel, system nor an existing directory")
    return value


class Cell(NamedTuple):
    """One of several installations between which the tenants are divided."""

    name: str
    database_url: str
    listen_url: str | None = None
    read_url: str | None = None


Seconds = Annotated[float, BeforeValidator(seconds), Field(allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_refuse_boolean), Field(ge=1)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_split_names)]
Labels = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_read_labels)]
Url = Annotated[str, BeforeValidator(_read_postgres_url), Field(min_length=1)]
SchemaName = Annotated[str, BeforeValidator(_check_schema_name)]
Patterns = Annotated[tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
Links = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_read_links)]
Commands = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_read_commands)]
Cells = Annotated[tuple[Cell, ...], BeforeValidator(_read_cells)]
Prefix = Annotated[str, BeforeValidator(_check_prefix)]
PayloadPlace = Annotated[str, BeforeValidator(_check_payload_place)]
Binaries = Annotated[str, BeforeValidator(_check_binaries)]

_URL = "postgresql://user:password@host:5432/database, or libpq's key=value form"
_BOOLEAN = "true or false"
_WHOLE_NUMBER = "a whole number from 1"
# Connections for claims, settlements, the heartbeat, notifications, chores, the scheduler, upkeep, and for a SQL
# command that cannot run in a transaction.
OWN_CONNECTIONS = 8
POOLS = 4  # for calls and for transactional handlers, and of each one for threads and one for the event loop
_CENTURY = 36_500 * 86_400
_KEEP = "from 1h to 36500d"
_BYTES = "a whole number from 1 to 100000000"


def _make_setting(default: Any, meaning: str, allowed: str, **limits: Any) -> Any:
    return Field(default=default, description=meaning, json_schema_extra={"allowed": allowed}, **limits)


def _make_duration_setting(default: float, meaning: str, limits_in_words: str, **limits: float) -> Any:
    return _make_setting(default, meaning, f"{DURATION_WORDS}; {limits_in_words}", **limits)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Settings:
    """All settings of an installation, a process and its connections. `Settings.load()` reads them from all sources."""

    database_url: Url | None = _make_setting(None, "The address of the database.", _URL, repr=False)
    listen_url: Url | None = _make_setting(
        None, "The server's direct address, if database_url is a pooler's; for LISTEN and migrations.", _URL, repr=False
    )
    read_url: Url | None = _make_setting(
        None, "A standby, for commands that only read and for the pages of the dashboard.", _URL, repr=False
    )
    cells: Cells = _make_setting(
        (),
        "Installations between which the tenants are divided.",
        "a table of names and addresses, or a=postgresql://...; b=postgresql://...",
        repr=False,
    )
    cell: str | None = _make_setting(
        None, "The cell that this process serves, and where calls go that name neither a cell nor a tenant.", "a name"
    )
    schema: SchemaName = _make_setting(
        "watchbill",
        "The schema that holds everything; several installations can share a database.",
        "a plain name: a to z, 0 to 9 and _, not first a digit or pg_, at most 63 characters",
    )
    jcron_schema: SchemaName = _make_setting(
        "jcron",
        "The schema with the cron functions that take a pattern; the first installation in a database creates it.",
        "a plain name, as for schema",
    )
    app: str | None = _make_setting(None, "Where the application is.", "module:name", pattern=r"^[\w.]+(:[\w.]+)?$")
    embedded: bool = _make_setting(
        False, "Start an embedded PostgreSQL for this project if no address is set.", _BOOLEAN
    )
    embedded_binaries: Binaries = _make_setting(
        "auto",
        "Which PostgreSQL the embedded server uses.",
        "auto, wheel, system, or a directory with `postgres` in it",
    )
    pool_size: Count = _make_setting(
        4,
        "The most connections in each pool of one process; a worker has four pools, and eight connections of its own.",
        _WHOLE_NUMBER,
    )
    client_timeout: Seconds = _make_duration_setting(
        60.0,
        "How long a call waits for the reply to a statement; then it raises an error. Raise it for very large bulks.",
        "at least 100ms",
        ge=0.1,
    )
    prepared_statements: bool = _make_setting(
        True, "Prepare statements. Set it to false if your pooler loses them and Watchbill does not notice.", _BOOLEAN
    )
    lease: Seconds = _make_duration_setting(
        30.0,
        "A node without a heartbeat for this long is lost. Choose more than a failover of your server takes.",
        "from 1 to a day",
        ge=1,
        le=86_400,
    )
    node_name: str | None = _make_setting(
        None,
        "This node's name. If not set: host, process number and a random part.",
        "1 to 190 characters",
        min_length=1,
        max_length=190,
    )
    labels: Labels = _make_setting(
        (),
        "Labels of this node, such as gpu=a100: what it has that others have not.",
        "pairs such as gpu=a100, separated by commas, or a table; none named node, which is the node's name",
    )
    queues: Names = _make_setting(
        (),
        "Queues to serve, in this order, or by weights: mail:3,default:1. If not set: those of the app, and default.",
        "names separated by commas, or a list; each may have a weight, as in mail:3",
    )
    concurrency: Count | None = _make_setting(
        None, "How many handlers run at once. If not set, it depends on the number of cores.", _WHOLE_NUMBER
    )
    processes: Count = _make_setting(1, "How many worker processes run under one supervisor.", _WHOLE_NUMBER)
    jobs_per_child: Count | None = _make_setting(
        None, "Replace a child process, which runs CPU-bound tasks, after this many jobs.", _WHOLE_NUMBER
    )
    memory_per_child: Count | None = _make_setting(
        None, "Replace a child process that has used more memory than this, in MiB.", _WHOLE_NUMBER
    )
    scheduler: bool = _make_setting(True, "Turn due schedules into jobs on this node.", _BOOLEAN)
    drain_timeout: Seconds = _make_duration_setting(
        30.0, "How long running handlers may continue when the process stops.", "at least 0", ge=0
    )
    stuck_after: Seconds = _make_duration_setting(
        300.0, "End the process if a timed-out thread or a blocked event loop lasts this long.", "at least 1", ge=1
    )
    poll_interval: Seconds = _make_duration_setting(
        0.1,
        "The first pause between two checks of an empty queue, if no notification can arrive.",
        "at least 1ms",
        ge=0.001,
    )
    poll_max_interval: Seconds = _make_duration_setting(
        5.0,
        "The longest such pause. A worker that sleeps until a notification arrives checks no more often than this.",
        "at least 1ms",
        ge=0.001,
    )
    poll_multiplier: Annotated[float, BeforeValidator(_refuse_boolean)] = _make_setting(
        2.0, "The factor by which each such pause grows.", "a number from 1 to 100", ge=1, le=100
    )
    health_host: str = _make_setting(
        "127.0.0.1",
        "The address at which a worker answers probes, if it has a health_port.",
        "an address or a host name",
    )
    health_port: Count | None = _make_setting(
        None,
        "The port where a worker answers /health/live, /health/ready and /metrics. Its processes take the next ports.",
        "a whole number from 1 to 65535",
        le=65_535,
    )
    verify_at: str = _make_setting(
        "06:00",
        "When one of all workers looks whether the tables contradict each other, each day, in the worker's time zone.",
        "a time of day such as 06:00, or never",
        pattern=r"^(([01]\d|2[0-3]):[0-5]\d|never)$",
    )
    unknown_type_grace: Seconds = _make_duration_setting(
        86_400.0,
        "How long a job waits if no live node handles its type, from when it was last handled; then the job is dead.",
        "at least 0",
        ge=0,
    )
    keep_succeeded: Seconds = _make_duration_setting(
        30 * 86_400.0, "How long succeeded jobs are kept. They are dropped by whole days.", _KEEP, ge=3600, le=_CENTURY
    )
    keep_otherwise: Seconds = _make_duration_setting(
        90 * 86_400.0, "How long dead and canceled jobs are kept, in the same way.", _KEEP, ge=3600, le=_CENTURY
    )
    keep_audit: Seconds = _make_duration_setting(
        400 * 86_400.0, "How long audit rows are kept.", _KEEP, ge=3600, le=_CENTURY
    )
    fast_retries: bool = _make_setting(
        False,
        "Wait half a second before every further attempt, whatever the retry policies say. For trying out.",
        _BOOLEAN,
    )
    slot_retention: Seconds = _make_duration_setting(
        90 * 86_400.0,
        "How long schedule history is kept. It is dropped a month at a time, once the whole month is older than this.",
        "from 1d to 36500d",
        ge=86_400,
        le=_CENTURY,
    )
    archive_to: PayloadPlace | None = _make_setting(
        None, "Where days of history are written before they are dropped.", "an absolute path, or a URL for fsspec"
    )
    max_payload: Count = _make_setting(100_000, "The largest payload, in bytes of JSON.", _BYTES, ge=1, le=100_000_000)
    max_result: Count = _make_setting(1_000_000, "The largest result, in bytes of JSON.", _BYTES, ge=1, le=100_000_000)
    payload_store: PayloadPlace | None = _make_setting(
        None, "Where to put payloads that are too large for the database.", "an absolute path, or a URL for fsspec"
    )
    payload_store_above: Count = _make_setting(
        50_000, "Payloads of more bytes than this go to the payload store, if there is one.", _WHOLE_NUMBER
    )
    connector_allow: Names = _make_setting(
        (),
        "Private networks that endpoints of connectors may reach, and more ports than 443 and 80.",
        "networks, each perhaps with a port, such as 10.0.0.0/8:8080, and *:PORT for a port everywhere outside",
    )
    connector_deny: Names = _make_setting(
        (), "Hosts, with all names below them, and networks that connectors never reach.", "hosts and networks"
    )
    connector_proxy: str | None = _make_setting(
        None,
        "A proxy for all requests of connectors. It resolves names, so it must have the rules of the guard.",
        "http://proxy.example:3128",
        pattern=r"^https?://[^/]+/?$",
        repr=False,
    )
    connector_secrets: Names = _make_setting(
        ("env:WATCHBILL_SECRET_*", "file:/run/secrets/*"),
        "Which references to secrets this worker resolves for endpoints and for routes of alerts. A * stands for a "
        "part of one name, and {tenant} for the tenant of the endpoint.",
        "references with *, separated by commas",
        repr=False,
    )
    alert_commands: Commands = _make_setting(
        (),
        "Commands to which this worker may hand alerts. Routes name them; no row of the database contains a command.",
        "pairs such as pager=/usr/bin/page --now, separated by semicolons, or a table",
        repr=False,
    )
    smtp_url: str | None = _make_setting(
        None,
        "The server that takes mail about alerts. smtp:// uses STARTTLS if it is offered; smtps:// begins with TLS.",
        "smtp://user:password@mail.example:587, or smtps://",
        pattern=r"^smtps?://[^/\s]+/?$",
        repr=False,
    )
    smtp_from: str | None = _make_setting(
        None, "Who sends mail about alerts.", "an address such as watchbill@example.com", pattern=r"^[^\s@]+@[^\s@]+$"
    )
    dashboard_host: str = _make_setting(
        "127.0.0.1",
        "The address at which `watchbill dashboard` listens. Any other than this machine's own needs logins.",
        "an address or a host name",
        min_length=1,
    )
    dashboard_port: Count = _make_setting(
        8484, "The port of `watchbill dashboard`.", "a whole number from 1 to 65535", le=65_535
    )
    dashboard_hosts: Names = _make_setting(
        (),
        "Hosts to which the dashboard answers, beside localhost. Without logins it answers to no others.",
        "names without ports, separated by commas",
    )
    dashboard_prefix: Prefix = _make_setting(
        "", "The path under which a proxy shows the dashboard, whether it keeps or strips it.", "such as /watchbill"
    )
    dashboard_users: Names = _make_setting(
        (),
        "People who log in to the dashboard with a password.",
        "entries that `watchbill keys user` prints, separated by commas",
        repr=False,
    )
    dashboard_secret: str | None = _make_setting(
        None,
        "Signs sessions of the dashboard. If not set, a restart logs everybody out, and only one process can serve.",
        "at least 32 characters",
        min_length=32,
        repr=False,
    )
    dashboard_name: str | None = _make_setting(
        None, "The name of this installation in the dashboard, such as shop-prod.", "1 to 60 characters",
        min_length=1, max_length=60,
    )  # fmt: skip
    dashboard_color: str | None = _make_setting(
        None, "The color that marks this installation in the dashboard.", "such as #0f766e", pattern="^#[0-9a-fA-F]{6}$"
    )
    dashboard_peers: Links = _make_setting(
        (), "Other dashboards to which this one links.", "pairs such as eu=https://eu.example, or a table"
    )
    dashboard_read_only: bool = _make_setting(False, "Everybody is a reader in this dashboard.", _BOOLEAN)
    trusted_proxy: Names = _make_setting(
        (),
        "Proxies whose X-Forwarded-For and X-Forwarded-Proto the dashboard believes.",
        "addresses or networks, separated by commas",
    )
    frame_ancestors: str = _make_setting(
        "'none'",
        "Which sites may show the dashboard in a frame.",
        "sources as in a Content-Security-Policy",
        pattern=r"^[^;,\r\n]+$",
    )
    redact: Names = _make_setting(
        (),
        "Values that the dashboard and its API never show.",
        "paths such as payload.password, *.token or mail.send:payload.to, separated by commas",
    )
    redact_text: Patterns = _make_setting(
        (), "Texts that are hidden in errors, payloads and results there.", "a regular expression, or a list of them"
    )
    job_logs: Literal["failed", "all", "none"] = _make_setting(
        "failed",
        "Of which runs nodes store the last log lines.",
        "failed, all, none",
    )
    trace_url: str | None = _make_setting(
        None, "Where the dashboard finds the trace of a job.", "such as https://traces.example/{trace_id}",
        pattern=r"^https?://.*\{trace_id\}",
    )  # fmt: skip
    log_level: Literal["debug", "info", "warning", "error"] = _make_setting(
        "info", "The lowest level that is logged.", "debug, info, warning, error"
    )
    log_format: Literal["text", "json"] = _make_setting("text", "Log lines for people or for machines.", "text, json")

    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def connections_per_process(self) -> int:
        """The most connections that one worker process has."""
        return OWN_CONNECTIONS + POOLS * self.pool_size

    @property
    def worker_connections(self) -> int:
        """The most connections that a worker has in all its processes."""
        return self.connections_per_process * self.processes

    @classmethod
    def load(
        cls,
        *,
        project: Path | None = None,
        environ: Mapping[str, str] | None = None,
        origins: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Self:
        """Reads the settings from all sources. An argument that is None counts as not given. `origins` says, for error
        messages, where arguments come from."""
        sources = _read_sources(project, os.environ if environ is None else environ, arguments, origins or {})
        found = _choose_strongest(sources)
        values = {name: value.value for name, value in found.items()}
        try:
            read = cls(**values, origins={name: value.origin for name, value in found.items()})
        except ValidationError as error:
            raise _explain_invalid_values(error, found) from None
        # A parent process has fixed the address together with the cell.
        return read.in_cell(read.cell) if read.cell and read.cells and "database_url" not in inherited() else read

    def in_cell(self, name: str) -> Self:
        """The same settings with the addresses of this cell."""
        cell = next((each for each in self.cells if each.name == name), None)
        if cell is None:
            known = ", ".join(each.name for each in self.cells) or "none"
            raise SettingsError(f"There is no cell {name!r}.", hint=f"Cells are: {known}.")
        origins = {**self.origins, "database_url": f"cell {name}", "listen_url": f"cell {name}"}
        addresses = {key: value for key, value in cell._asdict().items() if key != "name"}
        return replace(self, **addresses, cell=name, origins=origins)


def describe_settings() -> Iterator[tuple[str, Any, str, str]]:
    """Yields (name, default, allowed values, meaning) of each setting, for the reference and for messages."""
    for each in fields(Settings):
        if each.name != "origins":
            info: Any = each.default
            yield each.name, info.default, info.json_schema_extra["allowed"], info.description


_FOR_CHILDREN = "_WATCHBILL_SETTINGS"
_inherited: dict[str, Any] = {}


def make_child_environment(origin: str, **settings: str) -> dict[str, str]:
    """Returns environment variables that fix these settings in a child process, whatever its own code says. A worker
    uses them for its children, and a test for programs that it starts."""
    return {_FOR_CHILDREN: json.dumps({**settings, "origins": dict.fromkeys(settings, origin)})}


def keep_parent_settings() -> None:
    """Keeps, in a child process of a worker, the settings that its parent gave it. Removes them from the environment,
    so that programs that a task starts do not inherit them."""
    _inherited.update(json.loads(os.environ.pop(_FOR_CHILDREN, "{}")))


def inherited() -> dict[str, Any]:
    """Returns the settings that the parent process has fixed for this process."""
    return _inherited or dict(json.loads(os.environ.get(_FOR_CHILDREN, "{}")))


class _Value(NamedTuple):
    name: str
    value: Any
    origin: str


def _choose_strongest(values: Iterator[_Value]) -> dict[str, _Value]:
    """Returns the last value of each setting, because later sources are stronger. Raises for an unknown name."""
    known = [name for name, *_ in describe_settings()]
    found: dict[str, _Value] = {}
    for each in values:
        if each.name not in known:
            near = difflib.get_close_matches(each.name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Settings are: {', '.join(sorted(known))}."
            raise SettingsError(f"Unknown setting {each.name} in {each.origin}.", hint=hint)
        found[each.name] = each
    return found


def _read_sources(
    project: Path | None, environ: Mapping[str, str], arguments: Mapping[str, Any], origins: Mapping[str, str]
) -> Iterator[_Value]:
    """Yields values from the weakest source to the strongest."""
    known = {f"WATCHBILL_{name.upper()}" for name, *_ in describe_settings()}
    if environ.get("DATABASE_URL"):
        yield _Value("database_url", environ["DATABASE_URL"], "DATABASE_URL")
    yield from _read_file(project or find_project())
    for variable, value in environ.items():
        is_foreign = variable not in known and (
            variable == TEST_VARIABLE or variable.startswith(FOR_ENDPOINTS) or _KUBERNETES_VARIABLE.fullmatch(variable)
        )
        if variable.startswith("WATCHBILL_") and value and not is_foreign:
            yield _Value(variable.removeprefix("WATCHBILL_").lower(), value, variable)
    for name, value in arguments.items():
        if value is not None:
            yield _Value(name, value, origins.get(name, f"the argument {name}"))


def find_project(start: Path | None = None) -> Path:
    """Returns the nearest project directory from `start` (default: the current directory) upwards, or `start`
    itself."""
    first = (start or Path.cwd()).resolve()
    return next((directory for directory in (first, *first.parents) if _is_project(directory)), first)


def _is_project(directory: Path) -> bool:
    try:
        return any((directory / mark).exists() for mark in ("watchbill.toml", "pyproject.toml", ".git"))
    except PermissionError:
        return False


def _read_file(project: Path) -> Iterator[_Value]:
    own, shared = project / "watchbill.toml", project / "pyproject.toml"
    own_settings = _read_toml(own)
    tools = _get_table(_read_toml(shared), "tool", shared)
    shared_settings = _get_table(tools, "watchbill", shared)
    if own.exists() and "watchbill" in tools:
        raise SettingsError(
            f"There are settings in two files: {own} and [tool.watchbill] in {shared}.",
            hint="Move all of them to one file.",
        )
    for name, value in own_settings.items():
        yield _Value(name, value, _find_line(own, name))
    for name, value in shared_settings.items():
        yield _Value(name, value, f"{_find_line(shared, name)} [tool.watchbill]")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}.", hint="https://toml.io has the rules.") from None
    except OSError as error:
        hint = "Check that it is a file and that this user may read it."
        raise SettingsError(f"{path} cannot be read: {error.strerror}.", hint=hint) from None


def _get_table(outer: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = outer.get(name, {})
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: {name} must be a table.", hint="Write [tool.watchbill] and one setting per line.")
    return found


def _find_line(path: Path, name: str) -> str:
    """Returns `path:line` of a setting in a TOML file, found by a text search, because the TOML reader reports no
    lines."""
    text = path.read_text(encoding="utf-8")
    section = max(text.find("[tool.watchbill]"), 0)
    found = re.compile(rf"""^\s*["']?{re.escape(name)}["']?\s*[=.]""", re.MULTILINE).search(text, section)
    return f"{path}:{text.count(chr(10), 0, found.end()) + 1}" if found else str(path)


def _explain_invalid_values(error: ValidationError, found: Mapping[str, _Value]) -> SettingsError:
    allowed = {name: words for name, _, words, _ in describe_settings()}
    wrong = dict.fromkeys(str(each["loc"][0]) for each in error.errors())
    lines = [f"Setting {name}={_show_value(found[name])} is invalid (in {found[name].origin})." for name in wrong]
    hints = [
        f"Allowed for {name}: {allowed[name]}.{_suggest_similar_value(found[name], allowed[name])}" for name in wrong
    ]
    return SettingsError("\n".join(lines), hint="\n".join(hints))


def _suggest_similar_value(given: _Value, allowed: str) -> str:
    """Returns the allowed word that is most similar to the given value, as a hint, if the allowed values are words."""
    words = [] if re.search(r"\d", allowed) else re.findall(r"\w+", allowed)
    near = difflib.get_close_matches(str(given.value).lower(), words, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _show_value(given: _Value) -> str:
    is_secret = given.name == "cells" or given.name.endswith("_url")
    return "... (hidden, because it may contain a password)" if is_secret else repr(given.value)
