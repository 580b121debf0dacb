"""Looks whether schedules fire: those that are late, that nobody declares any more, and runs that should have ended."""

from __future__ import annotations

from psycopg import sql

from watchbill.postgres.checks.finding import Finding, Patient

_SHOWN = 5
_LATE = """
    SELECT s.name::text FROM {schema}.timers t JOIN {schema}.schedules s ON s.id = t.schedule_id
    WHERE t.next_run < {schema}.clock() - interval '1 minute' ORDER BY t.next_run LIMIT %s
"""
_ORPHANED = """
    SELECT s.name::text FROM {schema}.schedules s WHERE s.id = ANY (
        {schema}.orphans(ARRAY(SELECT o.id FROM {schema}.schedules o WHERE o.owner IS NOT NULL AND o.enabled)))
    ORDER BY s.name LIMIT %s
"""
_OVERDUE = "SELECT o.name::text FROM {schema}.overdue o GROUP BY 1 ORDER BY min(o.due_by) LIMIT %s"


def check_schedules(patient: Patient) -> Finding:
    name = sql.SQL("{}.schedule_stats(int, timestamptz)").format(sql.Identifier(patient.settings.schema))
    if not patient.ask("SELECT WHERE to_regprocedure(%s) IS NOT NULL", name.as_string(None)):
        return Finding("schedules", "skipped", "Not there yet; see the schema.")
    query = "SELECT schedules, late, orphaned, overdue, next_run, capped FROM {schema}.schedule_stats()"
    [(number, late, orphaned, overdue, next_run, capped)] = patient.ask_schema(query)
    if not number:
        return Finding("schedules", "ok", "There are none.")
    all_of_them = f"{number:,}{'+' if capped else ''}"
    if late or orphaned or overdue:
        said, hints = zip(*_faults(patient, late, orphaned, overdue), strict=True)
        says = f"Of {all_of_them}: {'; '.join(said)}."
        return Finding("schedules", "wrong" if late else "note", says, "\n".join(hints))
    coming = "nothing is to come" if next_run is None else f"the next is due at {next_run:%Y-%m-%d %H:%M:%S %Z}"
    return Finding("schedules", "ok", f"{all_of_them}; {coming}.")


def _faults(patient: Patient, late: int, orphaned: int, overdue: int) -> list[tuple[str, str]]:
    """What is wrong, and what to do about it."""
    faults = []
    if late:
        says = f"{late:,} due for longer than a minute, and nobody fires them ({_names(patient, _LATE)})"
        faults.append((says, _who_would_fire(patient)))
    if orphaned:
        says = f"{orphaned:,} orphaned, declared by no live node ({_names(patient, _ORPHANED)})"
        faults.append(
            (says, "Remove what is not wanted (watchbill schedules remove NAME), or deploy code that declares it.")
        )
    if overdue:
        runs = "1 run" if overdue == 1 else f"{overdue:,} runs"
        says = f"{runs} that should have ended by now ({_names(patient, _OVERDUE)})"
        faults.append((says, "See what became of it: watchbill schedules history NAME."))
    return faults


def _who_would_fire(patient: Patient) -> str:
    [(nodes,)] = patient.ask_schema("SELECT count(*) FROM {schema}.nodes WHERE state = 'active'")
    if not nodes:
        return "No node is alive: start `watchbill worker`, or let something call execute_due()."
    return "Nodes are alive: let one schedule (without --no-scheduler or WATCHBILL_SCHEDULER=false), and read its log."


def _names(patient: Patient, query: str) -> str:
    names = [name for (name,) in patient.ask_schema(query, _SHOWN + 1)]
    return ", ".join(names[:_SHOWN] + ["..."] * (len(names) > _SHOWN))
