"""The SQL reference: its blocks run from top to bottom, and it leaves out no function that users may call."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "sql.md"
SCHEDULES = PAGE.with_name("schedules_sql.md")
INTERNAL = {
    "adopt_server",
    "arm_schedule",
    "backoff",
    "cancel_error",
    "chained_slots",
    "check_active",
    "check_command",
    "check_isolation",
    "check_outcomes",
    "check_schedule",
    "clock",
    "close_slots",
    "cron_after",
    "cron_apply",
    "cron_bare_span",
    "cron_before",
    "cron_between",
    "cron_bounds",
    "cron_distance",
    "cron_distance_about",
    "cron_distance_word",
    "cron_duration",
    "cron_every_after",
    "cron_every_before",
    "cron_extension",
    "cron_extensions",
    "cron_fields",
    "cron_find_month",
    "cron_frequency",
    "cron_has_year",
    "cron_holds",
    "cron_is_leap",
    "cron_item",
    "cron_item_place",
    "cron_items",
    "cron_january",
    "cron_last_trigger",
    "cron_last_useless",
    "cron_last_where",
    "cron_latest_segment",
    "cron_list",
    "cron_macro",
    "cron_mapped",
    "cron_matches",
    "cron_modulo",
    "cron_month_days",
    "cron_month_in_year",
    "cron_month_number",
    "cron_month_specials",
    "cron_month_start",
    "cron_month_wall",
    "cron_moved_on",
    "cron_nearest_workdays",
    "cron_next",
    "cron_next_within",
    "cron_parse_modifier",
    "cron_parse_weeks",
    "cron_parse_zone",
    "cron_part",
    "cron_parts",
    "cron_pass_from",
    "cron_position",
    "cron_prev",
    "cron_reach",
    "cron_refuse",
    "cron_refuse_count",
    "cron_refuse_item",
    "cron_refuse_macro",
    "cron_refuse_name",
    "cron_refuse_second",
    "cron_refuse_small",
    "cron_refuse_zone",
    "cron_result",
    "cron_result_before",
    "cron_rotate_weeks",
    "cron_seconds",
    "cron_seconds_up",
    "cron_segment_before",
    "cron_shown",
    "cron_shows",
    "cron_span",
    "cron_span_of_all",
    "cron_trigger_after",
    "cron_trigger_before",
    "cron_unit_size",
    "cron_upcoming",
    "cron_value",
    "cron_week_days",
    "cron_week_specials",
    "cron_window",
    "cron_window_length",
    "cron_year",
    "cron_years",
    "cron_zone",
    "declare_schedule",
    "differs_from_code",
    "due_slots",
    "end_one",
    "ending_of",
    "execute_command",
    "finish",
    "finish_canceled",
    "fire_due",
    "first_slot",
    "history_from",
    "hold_orphans",
    "id_horizon",
    "insert_jobs",
    "insert_jobs_one_by_one",
    "is_cluster_start",
    "is_plain_job",
    "is_valid_cron",
    "jittered",
    "job_payload",
    "lose",
    "make_slot_partitions",
    "new_job_fault",
    "new_schedule",
    "next_fence",
    "next_run",
    "note",
    "note_overdue",
    "orphans",
    "park_paused",
    "parse_cron",
    "pick_above",
    "pick_alone",
    "pick_once",
    "pick_ready",
    "pick_unsupported",
    "policy",
    "prev_run",
    "preview_slots",
    "put_back",
    "queue_behind",
    "record_runs",
    "refuse_job",
    "refuse_schedule",
    "refuse_taken_name",
    "release_claims",
    "release_held",
    "reopen_slot",
    "revive",
    "rhythm",
    "run_apart",
    "schedule_counts",
    "schedule_defaults",
    "schedule_definition",
    "schedule_fault",
    "schedule_with",
    "seq_of",
    "server_timeline",
    "settle_each",
    "settle_here",
    "slot_after",
    "slot_before",
    "slot_event",
    "slot_meta",
    "stop_previous",
    "switch_schedule",
    "take_back",
    "take_key",
    "undo_if_finished",
    "unpaused",
    "uuid7_in_order",
    "uuid_time",
    "wake",
    "wake_channel",
    "wake_key",
    "wake_later",
    "wake_schedulers",
    "write_schedule",
    "zone_far_first",
    "zone_far_segment",
    "zone_first",
    "zone_like",
    "zone_missing",
    "zone_names",
    "zone_near",
    "zone_near_first",
    "zone_number",
    "zone_second",
    "zone_segment",
}


def test_every_block_runs(schema_database: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 15
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for block in blocks:
            for statement in block.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode())
        outcomes = connection.execute("SELECT DISTINCT outcome FROM foliot.attempt").fetchall()
    assert {"succeeded", "failed"} <= {word for (word,) in outcomes}, "the examples did not do what they show"


def test_every_block_about_schedules_runs(schema_database: str) -> None:
    blocks = re.findall(r"```sql\n(.*?)```", SCHEDULES.read_text(), re.DOTALL)
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for block in blocks:
            for statement in block.split(";\n"):
                if statement.strip():
                    connection.execute(statement.encode())
        names = connection.execute("SELECT name FROM foliot.schedule ORDER BY 1").fetchall()
    assert names == [("nightly",), ("tidy",)], "the examples did not do what they show"


def test_every_public_function_is_described(schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        names = connection.execute(
            "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'foliot'::regnamespace"
        ).fetchall()
    page = PAGE.read_text() + SCHEDULES.read_text()
    missing = sorted(name for (name,) in names if name not in INTERNAL and f"{name}(" not in page)
    assert not missing


def test_every_error_code_is_listed() -> None:
    sources = Path(__file__).parents[2].joinpath("src/foliot/store/sql").glob("*.sql")
    raised = {code for file in sources for code in re.findall(r"FO\d{3}", file.read_text())}
    assert raised == set(re.findall(r"FO\d{3}", PAGE.read_text()))
