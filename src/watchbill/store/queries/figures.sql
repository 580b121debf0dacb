-- These statements read figures: what has ended, what waits, what fails.

-- name: figures
SELECT
  at, name, succeeded, skipped, failed, timed_out, lost, snoozed, dead, canceled, run_seconds,
  wait_seconds, is_counted
FROM {schema}.figure_list(%s::text, %s::text, %s::timestamptz)

-- name: samples
SELECT
  at, name, running, ready, scheduled, retrying, limited, paused, unsupported, unmatched, blocked,
  oldest, is_estimate
FROM {schema}.sample_list(%s::text, %s::timestamptz)

-- name: queue_figures
SELECT
  queue, running, ready, scheduled, retrying, limited, paused, unsupported, unmatched, blocked,
  oldest, is_estimate, sampled_at, trend, ended_lately, ended, failed, dead, run_seconds,
  wait_seconds, nodes, draining_nodes, max, fair_by, token_group, paused_at, paused_by,
  pause_reason
FROM {schema}._list_queue_figures(%s::text, %s::int)

-- name: failures
SELECT failure, tenant, type, exception, message, example, first, last, attempts, dead
FROM {schema}.failure_list(%s::timestamptz, max => %s::int)

-- name: metrics
SELECT metric, labels, value
FROM {schema}.metric_list()

-- name: archives
SELECT partition, place, row_count, bytes, sha256, at
FROM {schema}.archive_list(%s::text)

-- name: rebuild_figures
SELECT {schema}.rebuild_figures(%s::timestamptz)
