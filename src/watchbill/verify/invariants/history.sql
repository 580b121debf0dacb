-- Invariants of finished jobs and of attempts.

-- name: once_in_history
-- kind: S
-- scans: finished_jobs by id
-- says: a job is in history once
SELECT 'job ' || x.id, format('history has it twice, as %s and %s', x.state, f.state)
FROM {table} x
JOIN {schema}.finished_jobs f
  ON f.id = x.id AND f.tenant = x.tenant AND f.finished_at >= x.created_at - interval '1 day'
WHERE {part}
  AND (f.tableoid, f.ctid) > (x.tableoid, x.ctid)

-- name: outcome_fits_state
-- kind: S
-- scans: finished_jobs by id
-- says: the outcome of the last run fits the state of a finished job
SELECT 'job ' || x.id, format('it is %s, and its last run has %s', x.state, x.outcome)
FROM {table} x
WHERE {part}
  AND CASE x.state
    WHEN 'succeeded' THEN x.outcome <> 'skipped'
    WHEN 'dead' THEN x.outcome = 'skipped'
  END

-- name: finished_attempts_within_bound
-- kind: S
-- scans: finished_jobs by id
-- says: a finished job has used at most the attempts that it may have
SELECT 'job ' || x.id, format('it has used %s of %s attempts', x.attempt, x.max_attempts)
FROM {table} x
WHERE {part}
  AND x.attempt NOT BETWEEN 0 AND x.max_attempts

-- name: finished_fence_was_drawn
-- kind: S
-- scans: finished_jobs by id
-- says: no fence in history is larger than the last one that was drawn
SELECT 'job ' || x.id, format('fence %s was never drawn', x.fence)
FROM {table} x
WHERE {part}
  AND x.fence > (
    SELECT ((i.generation + {schema}._server_timeline())::bigint << 40) + s.last_value
    FROM {schema}.installation i
    CROSS JOIN {schema}.fence_seq s)

-- name: run_is_recorded_once
-- kind: S
-- scans: attempts by job_id
-- says: each run of a job has one row of attempts
SELECT 'job ' || x.job_id, format('run %s has several rows in attempts', x.run)
FROM {table} x
JOIN {schema}.attempts a
  ON a.job_id = x.job_id
    AND a.run = x.run
    AND a.ended_at BETWEEN x.ended_at - interval '2 days' AND x.ended_at + interval '2 days'
WHERE {part}
  AND (a.tableoid, a.ctid) > (x.tableoid, x.ctid)
