-- Makes a job of a schedule now, in addition to its slots. Returns the id of the job; NULL if the
-- schedule does not exist or makes no jobs. `overlap` says what to do while an earlier job of the
-- schedule has not ended: `allow` runs the new job beside it, `skip` raises WB011, `queue` lets the
-- new job wait for it, and `cancel_previous` cancels it first. Locks the timer; all checks are of
-- the schedule as it is after that.
CREATE OR REPLACE FUNCTION run_schedule(
  name text,
  tenant text DEFAULT _session_tenant(),
  payload jsonb DEFAULT NULL,
  overlap text DEFAULT 'allow',
  now timestamptz DEFAULT NULL
)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  s schedules;
  job uuid;
BEGIN
  IF overlap NOT IN ('allow', 'skip', 'queue', 'cancel_previous') THEN
    RAISE EXCEPTION 'overlap % is invalid: it must be allow, skip, queue or cancel_previous',
        quote_nullable(overlap)
      USING ERRCODE = 'WB003';
  END IF;
  s := _lock_schedule_to_run(
    (SELECT x.id FROM schedules x WHERE x.tenant = tenant AND x.name = name), t);
  IF s.id IS NULL THEN RETURN NULL; END IF;
  PERFORM _check_given_payload(s, payload);
  IF s.command IS NOT NULL THEN PERFORM _check_command_start(s, NULL); END IF;
  job := _run_schedule_outside_slots(s, 'hand', payload, t, overlap);
  PERFORM _audit('run_schedule', 'schedule ' || name, tenant, jsonb_build_object('job', job), t);
  RETURN job;
END $$;

-- Counts a run of a schedule, and returns the schedule as it is after that; NULL if it is gone.
-- Locks the timer, as every writer of `slots` does, so the caller sees every job that a tick has
-- made. The lock can take long, and the schedule may change until then: a check of an earlier read
-- would be of another schedule than the one that runs.
CREATE OR REPLACE FUNCTION _lock_schedule_to_run(schedule_id bigint, t timestamptz)
RETURNS schedules
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  s schedules;
BEGIN
  UPDATE timers x
  SET runs = x.runs + 1, last_run = t
  WHERE x.schedule_id = schedule_id;
  SELECT * INTO s FROM schedules x WHERE x.id = schedule_id;
  RETURN s;
END $$;

-- Raises if a schedule cannot take the payload of a run by hand. Only a task takes one: as the
-- payload of a SQL command, it would be the command that a worker runs.
CREATE OR REPLACE FUNCTION _check_given_payload(s schedules, payload jsonb)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF payload IS NULL THEN
    RETURN;
  ELSIF s.type IS NULL
    OR s.command IS NOT NULL
    OR starts_with(s.type, 'watchbill.')
    OR jsonb_typeof(payload) <> 'object' THEN
    RAISE EXCEPTION 'payload is invalid: %', CASE
      WHEN s.type = 'watchbill.flow'
        THEN format('schedule %L starts a chain, whose steps have their own payloads', s.name)
      WHEN jsonb_typeof(payload) <> 'object'
        THEN 'it must be a JSON object, one key per parameter'
      ELSE format('schedule %L has no task to take it', s.name)
    END USING ERRCODE = 'WB003';
  ELSIF NOT _is_small(payload) AND octet_length(payload::text) > 100000000 THEN
    PERFORM _refuse_job(s.type, 'the payload must have at most 100000000 bytes as text');
  END IF;
END $$;

-- Makes a job of a schedule outside its slots. The row in `slots` has the time at which the job was
-- made. _lock_schedule_to_run() has returned the schedule, and so holds the lock of its timer.
CREATE OR REPLACE FUNCTION _run_schedule_outside_slots(
  s schedules, kind text, payload jsonb, t timestamptz, overlap text DEFAULT 'allow'
)
RETURNS uuid
LANGUAGE plpgsql VOLATILE
SET timezone = 'UTC'
AS $$
DECLARE
  job uuid;
  instant timestamptz := t;
  -- The earlier jobs of the schedule that have not ended, without those of a backfill, the last one
  -- first; NULL if `overlap` allows them.
  unfinished uuid[];
  refusal text; -- by a quota of the tenant
BEGIN
  IF s.id IS NULL THEN RETURN NULL; END IF;
  IF overlap <> 'allow' AND num_nonnulls(s.type, s.command) > 0 THEN
    unfinished := (
      SELECT array_agg(o.job_id ORDER BY o.fired_at DESC, o.slot DESC)
      FROM slots o
      WHERE o.schedule_id = s.id
        AND o.outcome IS NULL
        AND o.job_id IS NOT NULL
        AND o.kind <> 'backfill');
  END IF;
  IF _may_have_quota(s.tenant) AND num_nonnulls(s.type, s.command) > 0 THEN
    IF kind = 'start' THEN
      -- The job of a cluster start is skipped if a quota is full. An error would also stop the
      -- other schedules that run at the start.
      refusal := _try_to_take_quota(s.tenant, _make_schedule_payload(s))->>s.tenant;
    ELSE
      PERFORM _take_quota(
        s.tenant, 1, _payload_size(coalesce(payload, _make_schedule_payload(s)), NULL));
    END IF;
  END IF;
  IF unfinished IS NOT NULL AND overlap = 'skip' THEN
    RAISE EXCEPTION 'schedule % is running: job % has not ended',
        quote_literal(s.name), unfinished[1]
      USING ERRCODE = 'WB011';
  END IF;
  LOOP
    IF num_nonnulls(s.type, s.command) > 0 AND refusal IS NULL THEN
      job := uuid7(instant);
    END IF;
    INSERT INTO slots (
      schedule_id, slot, kind, job_id, outcome, reason, fired_at, finished_at, due_by)
    VALUES (
      s.id, instant, kind, job,
      CASE WHEN refusal IS NOT NULL THEN 'skipped' WHEN job IS NULL THEN 'fired' END, refusal, t,
      CASE WHEN job IS NULL AND refusal IS NULL THEN t END, instant + s.deadline)
    ON CONFLICT DO NOTHING;
    EXIT WHEN FOUND;
    instant := instant + interval '1 microsecond';
  END LOOP;
  IF refusal IS NOT NULL THEN
    UPDATE timers x SET runs = x.runs - 1 WHERE x.schedule_id = s.id;
  END IF;
  IF job IS NOT NULL THEN
    INSERT INTO jobs (
      id, run_at, created_at, policy, timeout, version, priority, max_attempts, class, lane, wait,
      limit_keys, queue, type, tenant, schedule_id, created_by, payload, meta, expires_at)
    VALUES (
      job, t, instant, s.policy, extract(epoch FROM s.timeout), s.version,
      s.priority, s.max_attempts,
      CASE WHEN s.max_attempts = 1 OR s.expires IS NOT NULL THEN 1 ELSE 0 END,
      _find_slot_lane(s.queue, coalesce(payload, _make_schedule_payload(s)), s.tenant, s.type),
      CASE WHEN unfinished IS NOT NULL THEN 'blocked' END,
      CASE WHEN _may_have_quota(s.tenant) THEN _quota_keys(NULL, s.tenant) END, s.queue,
      coalesce(s.type, 'watchbill.sql'), s.tenant, s.id, _actor(),
      coalesce(payload, _make_schedule_payload(s)), _make_slot_meta(s.name, NULL, s.context),
      t + s.expires);
    IF unfinished IS NULL THEN
      PERFORM _wake_workers(s.queue);
    ELSE
      PERFORM _block_jobs_behind_parents(ARRAY[job], unfinished[:1], ARRAY[s.tenant], '{}', t);
    END IF;
    IF unfinished IS NOT NULL AND overlap = 'cancel_previous' THEN
      PERFORM _cancel_schedule_jobs(unfinished, 'the schedule was run by hand', t);
    END IF;
  END IF;
  RETURN job;
END $$;
