"""Compares the time zones in the schema, which the SQL cron engine reads, with those that the Python engine reads."""

from __future__ import annotations

import zoneinfo

from watchbill.postgres.checks.finding import Finding, Patient
from watchbill.postgres.zones import local_release, local_zones, stored_release, zone_digests

_SHOWN = 20


def check_zone_table(patient: Patient) -> Finding:
    """The engines must give the same instants, so their zones must be equal to the second."""
    schema = patient.settings.schema
    if not patient.ask("SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'zones'", schema):
        return Finding("zone table", "skipped", "Not there yet; see the schema.")
    if not zoneinfo.available_timezones():
        return Finding("zone table", "skipped", "Python has no time zone data; see the zones.")
    theirs = zone_digests(patient.connection, schema)
    if not theirs:
        says = "The table zones is empty: in SQL, schedules know UTC and offsets only."
        return Finding("zone table", "note", says, "Run `watchbill db migrate`.")
    ours = {row.name: row.digest for row in local_zones()}
    other = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    if not other:
        return Finding("zone table", "ok", f"Schedules in SQL and in Python count on the same {len(ours)} zones.")
    says = f"Schedules in SQL and in Python would differ in {_listed(other)}."
    return Finding("zone table", "wrong", says, _way_out(patient))


def _listed(names: list[str]) -> str:
    if len(names) == 1:
        return names[0]
    more = "" if len(names) <= _SHOWN else " and so on"
    return f"{len(names)} zones: {', '.join(names[:_SHOWN])}{more}"


def _way_out(patient: Patient) -> str:
    stored, here = stored_release(patient.connection, patient.settings.schema), local_release()
    if stored is None or stored < here:
        return f"Run `watchbill db migrate`: the schema has tzdata {stored and stored.tzdata}, here is {here.tzdata}."
    if stored > here:
        return (
            f"Update tzdata on this machine to {stored.tzdata}, which the schema has; here is {here.tzdata or 'none'}."
        )
    release = here.tzdata or "of an unknown release"
    return f"Both are tzdata {release}, built in different ways: use the same package of it on all machines."
