"""Schedules on a terminal: when, how it goes, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import typer

from watchbill.cli.output import print_facts, print_table
from watchbill.model.schedule import FLOW

if TYPE_CHECKING:
    from watchbill.model.schedule import Reason, ScheduleRecord, SlotRecord

# What `show` says in other words, and what it leaves out because it is as usual.
_TOLD = {"name", "pattern", "every", "at", "tz", "type", "command", "status", "runs", "enabled", "hash"}
_USUAL = {
    "tenant": "default", "dst": "default", "version": 1, "queue": "default", "priority": 0, "catch_up": 100,
    "run_on_start": False, "orphaned": False, "differs_from_code": False, "successes": 0, "failures": 0, "skips": 0,
    "missed_slots": 0, "running": 0,
}  # fmt: skip


def print_list(found: Iterable[ScheduleRecord]) -> None:
    rows = [
        (_name(s), when(s), what(s), local(s.next_run), local(s.last_run), s.last_outcome, s.runs, status(s))
        for s in found
    ]
    print_table(("name", "when", "runs", "next", "last", "outcome", "jobs", "status"), rows)


def print_schedule(found: ScheduleRecord, differences: list[tuple[str, Any, Any]]) -> None:
    facts: dict[str, object] = {"name": found.name, "when": when(found)}
    if found.pattern:
        facts["meaning"] = meaning(found)
    facts |= {"runs": what(found), "status": status(found)}
    if differences:
        facts["in the code"] = ", ".join(f"{option}: {code}" for option, code, _ in differences)
    for name, value in asdict(found).items():
        if name not in _TOLD and value not in (None, [], {}, _USUAL.get(name)):
            facts[name] = _shown(value)
    print_facts(facts)


def print_history(slots: Iterable[SlotRecord]) -> None:
    rows = [
        (_slot(s), s.outcome or "not ended", local(s.started_at), duration(s.duration), s.node, s.job_id, _remark(s))
        for s in slots
    ]
    print_table(("slot", "outcome", "started", "took", "node", "job", "remark"), rows)


def print_reasons(found: ScheduleRecord, reasons: list[Reason]) -> None:
    """Whether it fires, and when, in its own zone; then all that the database has to say."""
    from watchbill.client.plans_schedules import zone_of

    decisive, said = reasons[0], typer.style(found.name, bold=True)
    if not decisive.fires:
        said += f" {typer.style('does not fire', fg='yellow')}"
    elif decisive.next_run is None:
        said += f" {typer.style('fires', fg='green')}"
    else:
        at = decisive.next_run.astimezone(zone_of(found))
        said += f" {typer.style('fires', fg='green')} {at:%a} {at.isoformat(sep=' ')} ({until(at)})"
    typer.echo(said)
    for reason in reasons:
        typer.echo(f"  - {reason.reason}")


def _name(found: ScheduleRecord) -> str:
    return found.name if found.tenant == "default" else f"{found.name} ({found.tenant})"


def when(found: ScheduleRecord) -> str:
    zone = "" if found.tz == "UTC" else f" {found.tz}"
    if found.pattern is not None:
        return f"{found.pattern}{zone}"
    if found.every is not None:
        return f"every {duration(found.every)}"
    at_start = "when the cluster starts" if found.run_on_start else "on demand"
    return at_start if found.at is None else f"at {local(found.at)}"


def meaning(found: ScheduleRecord) -> str:
    from watchbill.cron import Cron

    assert found.pattern is not None
    return Cron(found.pattern, found.tz, found.dst).explain()  # type: ignore[arg-type]


def what(found: ScheduleRecord) -> str:
    if found.command is not None:
        return f"SQL: {' '.join(found.command.split())[:40]}"
    if found.type == FLOW:
        return "flow: " + ", ".join(dict.fromkeys(job["type"] for job in found.payload["jobs"]))[:60]
    return found.type or "only an event"


def status(found: ScheduleRecord) -> str:
    words = [found.status.replace("_", " ")]
    if found.orphaned and found.status != "orphaned":
        words.append("orphaned")
    if found.differs_from_code:
        words.append("differs from code")
    if found.overdue is not None:
        words.append("overdue")
    return ", ".join(words)


def local(value: datetime | None) -> str:
    return "" if value is None else f"{value.astimezone():%Y-%m-%d %H:%M:%S}"


def duration(value: timedelta | None) -> str:
    """In the largest units that fit: 90 s is `1m30s`, a tenth of a second `100ms`."""
    if value is None:
        return ""
    seconds = value.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    parts, rest = [], round(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        parts += [f"{count}{unit}"] * bool(count)
    return "".join(parts)


def until(moment: datetime) -> str:
    left = moment - datetime.now(UTC)
    return f"in {duration(left)}" if left > timedelta(0) else "due"


def _slot(found: SlotRecord) -> str:
    if found.kind != "clock":
        return f"{local(found.slot)} ({'by hand' if found.kind == 'hand' else 'on start'})"
    return local(found.slot) if found.until is None else f"{local(found.slot)} to {local(found.until)} ({found.count})"


def _remark(found: SlotRecord) -> str:
    late = "" if found.overdue_at is None else f"overdue since {local(found.due_by)}"
    text = found.error or found.reason or late
    return text.splitlines()[0][:80] if text else ""


def _shown(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone().isoformat(sep=" ", timespec="seconds")
    if isinstance(value, timedelta):
        return duration(value)
    return ", ".join(value) if isinstance(value, list) else value


def as_data(found: Any) -> Mapping[str, Any]:
    """For --json: instants in UTC, durations in seconds."""
    return {name: _plain(value) for name, value in asdict(found).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value
