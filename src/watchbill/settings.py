"""Every setting, in one frozen object: defaults < settings file < environment < arguments.

The file is `watchbill.toml`, or `[tool.watchbill]` in pyproject.toml, in the project's directory: the nearest one upwards
with one of these files or a `.git`. The variable of setting `lease` is WATCHBILL_LEASE; an empty one counts as not set.
DATABASE_URL, which other programs use too, is asked last for the address, after the file.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from watchbill.errors import SettingsError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")

# Kubernetes gives every pod variables for every service; one named watchbill, or watchbill-db, must stop nobody.
_OF_KUBERNETES = re.compile(r"WATCHBILL_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")


def _seconds(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str) and _DURATION.fullmatch(value):
        return sum(float(n) * _UNITS[unit] for n, unit in re.findall(r"([\d.]+)([a-z]+)", value))
    return _number(value)


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("true is no number")
    return value


def _names(value: object) -> object:
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _postgres_url(value: object) -> object:
    """SQLAlchemy's way to name the driver (postgresql+asyncpg://) is understood, since DATABASE_URL often has it."""
    if not isinstance(value, str) or "://" not in value:
        return value
    scheme, rest = value.split("://", 1)
    if scheme.split("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("not PostgreSQL")
    return f"postgresql://{rest}"


def _plain_name(value: object) -> object:
    """One that psql needs no quotes for, and that the server does not cut."""
    if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", str(value)) or value == "information_schema":
        raise ValueError("not a plain name")
    return value


def _place(value: object) -> object:
    """Producer and worker may start in different directories, so a path must not depend on that."""
    if not re.match(r"/|[a-z][a-z0-9+.-]*://.", str(value)):
        raise ValueError("neither an absolute path nor a URL")
    return value


def _binaries(value: object) -> object:
    if value not in {"auto", "wheel", "system"} and not Path(str(value)).is_dir():
        raise ValueError("no such directory")
    return value


Duration = Annotated[float, BeforeValidator(_seconds), Field(allow_inf_nan=False)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=1)]
Names = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_names)]
Url = Annotated[str, BeforeValidator(_postgres_url), Field(min_length=1)]
SchemaName = Annotated[str, BeforeValidator(_plain_name)]
PayloadPlace = Annotated[str, BeforeValidator(_place)]
Binaries = Annotated[str, BeforeValidator(_binaries)]

_A_URL = "postgresql://user:password@host:5432/database, or libpq's key=value form"
_A_DURATION = "seconds, or a duration such as 500ms, 30s, 5m, 1h"


def _setting(default: Any, meaning: str, allowed: str, **limits: Any) -> Any:
    return Field(default=default, description=meaning, json_schema_extra={"allowed": allowed}, **limits)


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Settings:
    """What an installation, a process and its connections can be told. `Settings.load()` reads them from everywhere."""

    database_url: Url | None = _setting(None, "Where the database is.", _A_URL, repr=False)
    listen_url: Url | None = _setting(
        None, "The direct address behind a pooler, for LISTEN and for migrations.", _A_URL, repr=False
    )
    schema: SchemaName = _setting(
        "watchbill",
        "The schema that holds everything; several installations can share a database.",
        "a plain name: a to z, 0 to 9 and _, not first a digit or pg_, at most 63 characters",
    )
    jcron_schema: SchemaName = _setting(
        "jcron",
        "The schema with the cron functions by pattern; the first installation in a database writes it.",
        "a plain name, as for schema",
    )
    app: str | None = _setting(None, "Where the application is.", "module:name", pattern=r"^[\w.]+(:[\w.]+)?$")
    embedded: bool = _setting(
        False, "Start a PostgreSQL of this project's own when no address is known.", "true or false"
    )
    embedded_binaries: Binaries = _setting(
        "auto", "Whose PostgreSQL the embedded server is.", "auto, wheel, system, or a directory that holds `postgres`"
    )
    pool_size: Count = _setting(
        4,
        "Connections that the pool of one process keeps at most; a worker has five more of its own.",
        "a whole number from 1",
    )
    prepared_statements: bool = _setting(
        True,
        "Prepare statements, except through a pooler that shows itself; false where one that does not loses them.",
        "true or false",
    )
    lease: Duration = _setting(
        30.0,
        "A node unheard of for this long is lost; longer than a failover.",
        f"{_A_DURATION}; from 1 to a day",
        ge=1,
        le=86_400,
    )
    node_name: str | None = _setting(
        None, "This node's name; unset: host, process and chance.", "1 to 190 characters", min_length=1, max_length=190
    )
    queues: Names = _setting(
        (),
        "Queues to serve; none named: those of the app's tasks, and default.",
        "names with commas between, or a list",
    )
    concurrency: Count | None = _setting(
        None, "Handlers that run at once; unset: chosen by the number of cores.", "a whole number from 1"
    )
    processes: Count = _setting(1, "Worker processes under one supervisor.", "a whole number from 1")
    jobs_per_child: Count | None = _setting(
        None, "Replace a child process, which runs CPU-bound tasks, after so many jobs.", "a whole number from 1"
    )
    memory_per_child: Count | None = _setting(
        None, "Replace such a child when it has had more memory than this, in MiB.", "a whole number from 1"
    )
    scheduler: bool = _setting(True, "Turn due schedules into jobs on this node.", "true or false")
    drain_timeout: Duration = _setting(
        30.0,
        "How long running handlers may end by themselves when the process stops.",
        f"{_A_DURATION}; at least 0",
        ge=0,
    )
    stuck_after: Duration = _setting(
        300.0,
        "A timed-out thread or a blocked event loop older than this ends the process.",
        f"{_A_DURATION}; at least 1",
        ge=1,
    )
    poll_interval: Duration = _setting(
        0.1, "The first pause between two looks at an empty queue.", f"{_A_DURATION}; at least 1ms", ge=0.001
    )
    poll_max_interval: Duration = _setting(5.0, "The longest such pause.", f"{_A_DURATION}; at least 1ms", ge=0.001)
    poll_multiplier: Annotated[float, BeforeValidator(_number)] = _setting(
        2.0, "By how much each pause is longer than the one before.", "a number from 1 to 100", ge=1, le=100
    )
    unknown_type_grace: Duration = _setting(
        3600.0,
        "How long a job of a type that no live node knows waits before it is dead.",
        f"{_A_DURATION}; at least 0",
        ge=0,
    )
    slot_retention: Duration = _setting(
        90 * 86_400.0,
        "How long what became of a schedule's slots is kept; dropped by the month, when all of it is older.",
        f"{_A_DURATION}; from 1d to 36500d",
        ge=86_400,
        le=36_500 * 86_400,
    )
    max_payload: Count = _setting(
        100_000, "The largest payload, in bytes of JSON.", "a whole number from 1 to 100000000", ge=1, le=100_000_000
    )
    max_result: Count = _setting(
        1_000_000, "The largest result, in bytes of JSON.", "a whole number from 1 to 100000000", ge=1, le=100_000_000
    )
    payload_store: PayloadPlace | None = _setting(
        None, "Where payloads go that are too large for the database.", "an absolute path, or a URL that fsspec knows"
    )
    payload_store_above: Count = _setting(
        50_000, "Payloads of more bytes go to the payload store, where there is one.", "a whole number from 1"
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "The least that is logged.", "debug, info, warning, error"
    )
    log_format: Literal["text", "json"] = _setting("text", "Lines for people or for machines.", "text, json")

    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(
        cls,
        *,
        project: Path | None = None,
        environ: Mapping[str, str] | None = None,
        origins: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Self:
        """From everywhere. An argument that is None was not given; `origins` says where others come from."""
        everywhere = _everywhere(project, os.environ if environ is None else environ, arguments, origins or {})
        found = _last_of_each(everywhere)
        values = {name: value.value for name, value in found.items()}
        try:
            return cls(**values, origins={name: value.origin for name, value in found.items()})
        except ValidationError as error:
            raise _explain(error, found) from None


def describe_settings() -> Iterator[tuple[str, Any, str, str]]:
    """(name, default, allowed, meaning) of each setting, for the reference and for messages."""
    for each in fields(Settings):
        if each.name != "origins":
            info: Any = each.default
            yield each.name, info.default, info.json_schema_extra["allowed"], info.description


_FOR_CHILDREN = "_WATCHBILL_SETTINGS"
_inherited: dict[str, Any] = {}


def for_children(origin: str, **settings: str) -> dict[str, str]:
    """The environment of a process that is to have these whatever its code says: a worker's child, a test's program."""
    return {_FOR_CHILDREN: json.dumps({**settings, "origins": dict.fromkeys(settings, origin)})}


def take_over() -> None:
    """Told to a worker's child, and not to the programs that a task may start there: those are their own masters."""
    _inherited.update(json.loads(os.environ.pop(_FOR_CHILDREN, "{}")))


def inherited() -> dict[str, Any]:
    """What whoever started this process has decided."""
    return _inherited or dict(json.loads(os.environ.get(_FOR_CHILDREN, "{}")))


class _Value(NamedTuple):
    name: str
    value: Any
    origin: str


def _last_of_each(values: Iterator[_Value]) -> dict[str, _Value]:
    """Later ones win; a name that is no setting stops here."""
    known = [name for name, *_ in describe_settings()]
    found: dict[str, _Value] = {}
    for each in values:
        if each.name not in known:
            raise _unknown(each, known)
        found[each.name] = each
    return found


def _everywhere(
    project: Path | None, environ: Mapping[str, str], arguments: Mapping[str, Any], origins: Mapping[str, str]
) -> Iterator[_Value]:
    """From the weakest to the strongest."""
    if environ.get("DATABASE_URL"):
        yield _Value("database_url", environ["DATABASE_URL"], "DATABASE_URL")
    yield from _from_file(project or _find_project(Path.cwd()))
    for variable, value in environ.items():
        if variable.startswith("WATCHBILL_") and value and _is_ours(variable):
            yield _Value(variable.removeprefix("WATCHBILL_").lower(), value, variable)
    for name, value in arguments.items():
        if value is not None:
            yield _Value(name, value, origins.get(name, f"the argument {name}"))


def _is_ours(variable: str) -> bool:
    known = any(variable == f"WATCHBILL_{name.upper()}" for name, *_ in describe_settings())
    return known or not _OF_KUBERNETES.fullmatch(variable)


def _find_project(start: Path) -> Path:
    return next((directory for directory in (start, *start.parents) if _is_project(directory)), start)


def _is_project(directory: Path) -> bool:
    try:
        return any((directory / mark).exists() for mark in ("watchbill.toml", "pyproject.toml", ".git"))
    except PermissionError:
        return False


def _from_file(project: Path) -> Iterator[_Value]:
    own, shared = project / "watchbill.toml", project / "pyproject.toml"
    of_own = _read_toml(own)
    tools = _table(_read_toml(shared), "tool", shared)
    of_shared = _table(tools, "watchbill", shared)
    if own.exists() and "watchbill" in tools:
        raise SettingsError(
            f"Settings stand in two files: {own} and [tool.watchbill] in {shared}.",
            hint="Move them all to one of the two.",
        )
    for name, value in of_own.items():
        yield _Value(name, value, _line_of(own, name))
    for name, value in of_shared.items():
        yield _Value(name, value, f"{_line_of(shared, name)} [tool.watchbill]")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} is not valid TOML: {error}.", hint="Correct it; https://toml.io has the rules."
        ) from None
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be read: {error.strerror}.", hint="Check what it is and who may read it."
        ) from None


def _table(outer: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    found = outer.get(name, {})
    if not isinstance(found, dict):
        raise SettingsError(f"{path}: {name} must be a table.", hint="Write [tool.watchbill] and one setting per line.")
    return found


def _line_of(path: Path, name: str) -> str:
    """`path:line` where the setting seems to be; the TOML reader itself does not tell."""
    text = path.read_text(encoding="utf-8")
    section = max(text.find("[tool.watchbill]"), 0)
    found = re.compile(rf"""^\s*["']?{re.escape(name)}["']?\s*[=.]""", re.MULTILINE).search(text, section)
    return f"{path}:{text.count(chr(10), 0, found.end()) + 1}" if found else str(path)


def _unknown(given: _Value, known: list[str]) -> SettingsError:
    near = difflib.get_close_matches(given.name, known, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Settings are: {', '.join(sorted(known))}."
    return SettingsError(f"Unknown setting {given.name} in {given.origin}.", hint=hint)


def _explain(error: ValidationError, found: Mapping[str, _Value]) -> SettingsError:
    allowed = {name: words for name, _, words, _ in describe_settings()}
    wrong = dict.fromkeys(str(each["loc"][0]) for each in error.errors())
    lines = [f"Setting {name} cannot be {_shown(found[name])} (in {found[name].origin})." for name in wrong]
    hints = [f"Allowed for {name}: {allowed[name]}.{_meant(found[name], allowed[name])}" for name in wrong]
    return SettingsError("\n".join(lines), hint="\n".join(hints))


def _meant(given: _Value, allowed: str) -> str:
    """A guess, where the allowed values are words."""
    words = [] if re.search(r"\d", allowed) else re.findall(r"\w+", allowed)
    near = difflib.get_close_matches(str(given.value).lower(), words, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def _shown(given: _Value) -> str:
    return (
        "that address (not shown, since it may hold a password)" if given.name.endswith("_url") else repr(given.value)
    )
