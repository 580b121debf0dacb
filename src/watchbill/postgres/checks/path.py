"""Checks of what stands between us and the server: poolers, and whether LISTEN comes through."""

from __future__ import annotations

import secrets

import psycopg
from psycopg import sql

from watchbill.errors import NoDatabase
from watchbill.postgres.checks.finding import Finding, Patient, open_for_checks
from watchbill.postgres.connect import Connection

_TRIES = 5
_PATIENCE = 5.0
_DUPLICATE = b"42P05"


def check_pooler(patient: Patient) -> Finding:
    if not patient.is_pooled:
        return Finding("pooler", "ok", "None: connections go straight to the server.")
    if not _shares_sessions(patient):
        return Finding("pooler", "ok", "One that gives each client a session of its own.")
    faults = []
    if not patient.settings.listen_url:
        faults.append(("LISTEN does not pass it", "Set listen_url (WATCHBILL_LISTEN_URL) to the server's direct address."))
    if patient.settings.prepared_statements and _loses_prepared(patient):
        faults.append(
            (
                "it loses prepared statements",
                "Set prepared_statements to false, or max_prepared_statements in PgBouncer 1.21 or newer.",
            )
        )
    if not faults:
        return Finding("pooler", "ok", "One in transaction mode, and Watchbill is set up for it.")
    what, hints = zip(*faults, strict=True)
    return Finding("pooler", "wrong", f"A pooler in transaction mode: {'; '.join(what)}.", "\n".join(hints))


def _shares_sessions(patient: Patient) -> bool:
    """Two clients that are both connected meet the same session of the server: proof of transaction mode.

    Other clients may come in between, so one miss proves nothing.
    """
    with patient.connect() as other:
        return any(_session(patient.connection) == _session(other) for _ in range(_TRIES))


def _session(connection: Connection) -> object:
    return connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()


def _loses_prepared(patient: Patient) -> bool:
    """Two clients prepare under one name. Where they share a session, only a pooler that renames keeps them apart."""
    name = f"watchbill_doctor_{secrets.token_hex(4)}"
    with patient.connect() as other:
        results = [client.pgconn.prepare(name.encode(), b"SELECT 1") for client in (patient.connection, other)]
    lost = any(result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) == _DUPLICATE for result in results)
    if lost:
        patient.connection.execute(sql.SQL("DEALLOCATE {}").format(sql.Identifier(name)), prepare=False)
    return lost


def check_listen(patient: Patient) -> Finding:
    """A message sent through the ordinary address must arrive at the one that listens."""
    direct = patient.settings.listen_url
    if patient.is_standby:
        return Finding("listen", "skipped", "Not on a standby; see above.")
    if not direct and patient.is_pooled and _shares_sessions(patient):
        return Finding("listen", "skipped", "Not through this pooler; see above.")
    try:
        with open_for_checks(direct or patient.url) as listener:
            heard = _round_trip(patient, listener)
    except NoDatabase as error:
        return Finding("listen", "wrong", f"listen_url: {error.message}", error.hint or "")
    if heard:
        return Finding("listen", "ok", "A notification comes through.")
    hint = "Let listen_url name the same server and database as database_url, without a pooler between."
    return Finding("listen", "wrong", f"No notification came through within {_PATIENCE:.0f} s.", hint)


def _round_trip(patient: Patient, listener: Connection) -> bool:
    channel = f"watchbill_doctor_{secrets.token_hex(4)}"
    listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)), prepare=False)
    patient.ask("SELECT pg_notify(%s, '')", channel)
    return any(note.channel == channel for note in listener.notifies(timeout=_PATIENCE, stop_after=1))
