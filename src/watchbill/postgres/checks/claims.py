"""Looks for jobs that run nowhere: claimed, as their row says, but named by no claim, through which alone the jobs of a
lost node are found. Nothing of ours leaves one behind; a trigger that keeps rows from being deleted may, or a hand."""

from __future__ import annotations

import psycopg
from psycopg import sql

from watchbill.postgres.checks.finding import Finding, Patient

_SHOWN = 5
_PATIENCE = "5s"
_LARGEST = 512 * 2**20  # bytes: the whole table is read, for an index on `fence` would cost every claim
_SIZE = "SELECT pg_relation_size(c), pg_size_pretty(pg_relation_size(c)) FROM to_regclass(%s) c"
_UNNAMED = """
    SELECT j.id::text, count(*) OVER () FROM {schema}.jobs j WHERE j.fence <> 0 AND NOT EXISTS (
      SELECT FROM {schema}.claims c JOIN {schema}.nodes n USING (epoch) WHERE c.fence = j.fence) LIMIT %s
"""


def check_claims(patient: Patient) -> Finding:
    if patient.is_standby:
        return Finding("claims", "skipped", "Not on a standby; see above.")
    try:
        with patient.connection.transaction():
            patient.ask("SELECT set_config('statement_timeout', %s, true)", _PATIENCE)
            return _look(patient)
    except psycopg.errors.QueryCanceled:
        return Finding("claims", "skipped", f"Not looked at: to read the table jobs takes longer than {_PATIENCE}.")


def _look(patient: Patient) -> Finding:
    [(size, words)] = patient.ask(_SIZE, sql.Identifier(patient.settings.schema, "jobs").as_string(None))
    if size is None:
        return Finding("claims", "skipped", "Not there yet; see the schema.")
    if size > _LARGEST:
        return Finding("claims", "skipped", f"Not looked at: the table jobs has {words}, and all of it would be read.")
    unnamed = patient.ask_schema(_UNNAMED, _SHOWN)
    if not unnamed:
        return Finding("claims", "ok", "Every job that is claimed is named by a claim.")
    number = unnamed[0][1]
    jobs = "1 job is" if number == 1 else f"{number:,} jobs are"
    ways_out = [f"  watchbill jobs release {name}" for name, _ in unnamed]
    hint = "\n".join(["What no node runs any more, let run again:", *ways_out, *["  ..."] * (number > _SHOWN)])
    return Finding("claims", "wrong", f"{jobs} claimed and named by no claim, so nobody would take them back.", hint)
