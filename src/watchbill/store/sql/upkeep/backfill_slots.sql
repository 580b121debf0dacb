-- Makes jobs for the slots that a schedule had, or would have had, between two instants. Their rows
-- of `slots` have the kind `backfill` and the slot's own time, which the handler reads. Each slot
-- gets one such job, however often a backfill is started. If the schedule does not allow its jobs
-- to overlap, each job of the operation waits for the one before it.

-- Checks the arguments of a backfill, and completes them: `schedule`, `from` and `until` (instants
-- as the parser of filters writes them, of the past), `tenant`, and `only_missed`, which leaves out
-- slots whose job has succeeded or has not ended.
CREATE OR REPLACE FUNCTION _complete_backfill(
  arguments jsonb, owner_tenant text, t timestamptz
)
RETURNS jsonb
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  tenant text := coalesce(owner_tenant, arguments->>'tenant', _session_tenant());
  first timestamptz := _read_argument_time(arguments, 'from');
  until timestamptz := _read_argument_time(arguments, 'until');
  s schedules;
BEGIN
  SELECT *
  INTO s
  FROM schedules x
  WHERE x.tenant = tenant
    AND x.name = arguments->>'schedule';
  IF s.id IS NULL OR num_nonnulls(s.type, s.command) = 0 THEN
    RAISE EXCEPTION 'there is no schedule % that makes jobs',
        coalesce(quote_literal(arguments->>'schedule'), 'without a name')
      USING ERRCODE = 'WB003', HINT = 'schedule_list() shows the schedules of a tenant';
  ELSIF first > until OR until > t THEN
    RAISE EXCEPTION 'arguments are invalid: from % until %', first, until
      USING ERRCODE = 'WB003', HINT = 'give two instants of the past, the earlier one first';
  END IF;
  IF s.command IS NOT NULL THEN PERFORM _check_command_start(s, NULL); END IF;
  RETURN jsonb_build_object(
    'schedule', s.name, 'schedule_id', s.id, 'tenant', tenant,
    'from', _write_filter_time(first), 'until', _write_filter_time(until),
    'only_missed', coalesce(arguments->'only_missed' = 'true', false));
END $$;

CREATE OR REPLACE FUNCTION _read_argument_time(arguments jsonb, name text)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF arguments->>name ~ '^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?\+00:00$' THEN
    RETURN (arguments->>name)::timestamptz;
  END IF;
  RAISE invalid_datetime_format;
EXCEPTION WHEN data_exception THEN
  RAISE EXCEPTION 'argument % is invalid: %', name, coalesce(arguments->>name, 'it is missing')
    USING ERRCODE = 'WB003', HINT = 'write an instant like 2026-03-29T02:30:00+00:00';
END $$;

-- Says why a backfill makes no job for a slot; NULL: it makes one.
CREATE OR REPLACE FUNCTION _find_backfill_obstacle(
  schedule_id bigint, slot timestamptz, only_missed boolean
)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT max(
    CASE
      WHEN s.kind = 'backfill' THEN 'a backfill has made its job already'
      WHEN s.outcome IS NULL THEN 'its job has not ended'
      ELSE 'its job has succeeded'
    END)
  FROM slots s
  WHERE s.schedule_id = _find_backfill_obstacle.schedule_id
    AND s.slot = _find_backfill_obstacle.slot
    AND s.job_id IS NOT NULL
    AND (
      s.kind = 'backfill'
      OR only_missed AND (s.outcome IS NULL OR s.outcome = 'succeeded'))
$$;

-- Makes the jobs of the next slots. Locks the timer before it reads the schedule, as a tick does,
-- so no other backfill makes a job for the same slot. A tick leaves the schedule to the next one.
CREATE OR REPLACE FUNCTION _backfill_slots(op bulk_operations, most int, t timestamptz)
RETURNS bulk_operations
LANGUAGE plpgsql VOLATILE
SET timezone = 'UTC'
AS $$
#variable_conflict use_variable
DECLARE
  began timestamptz := clock_timestamp();
  seen_before bigint := op.seen;
  done_before bigint := op.done;
  until timestamptz := op.arguments->>'until';
  slot timestamptz;
  reason text;
  s schedules := _lock_schedule_to_backfill(op);
BEGIN
  FOR i IN 1 .. most LOOP
    EXIT WHEN clock_timestamp() > began + interval '200 ms' AND op.seen > seen_before;
    slot := _find_next_slot(
      s,
      coalesce(
        op.reached_slot, (op.arguments->>'from')::timestamptz - interval '1 microsecond'));
    IF slot IS NULL OR slot > until THEN
      op.state := 'done';
      EXIT;
    END IF;
    reason := _find_backfill_obstacle(s.id, slot, (op.arguments->>'only_missed')::boolean);
    IF reason IS NULL THEN
      BEGIN
        op.reached := _make_backfill_job(op, s, slot, op.done > done_before, t);
      EXCEPTION WHEN SQLSTATE 'WB015' THEN
        op.state := 'paused';
        op.error := SQLERRM;
        EXIT;
      END;
    END IF;
    op.reached_slot := slot;
    op := _count_outcome(op, CASE WHEN reason IS NULL THEN 'done' ELSE 'skipped' END, reason);
  END LOOP;
  IF op.done > done_before THEN
    UPDATE timers x
    SET runs = x.runs + op.done - done_before, last_run = t
    WHERE x.schedule_id = s.id;
    PERFORM _wake_workers(s.queue);
  END IF;
  RETURN op;
END $$;

-- Returns the schedule of a backfill, and keeps ticks and other backfills from it. Raises if it is
-- gone, or if it has become one that the creator of the operation may not run.
CREATE OR REPLACE FUNCTION _lock_schedule_to_backfill(op bulk_operations)
RETURNS schedules
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  s schedules;
  id bigint := (op.arguments->>'schedule_id')::bigint;
BEGIN
  PERFORM FROM timers x WHERE x.schedule_id = id FOR NO KEY UPDATE;
  SELECT * INTO s FROM schedules x WHERE x.id = id;
  IF s.id IS NULL OR num_nonnulls(s.type, s.command) = 0 THEN
    RAISE EXCEPTION 'the schedule is gone, or makes no jobs any more' USING ERRCODE = 'WB003';
  ELSIF s.command IS NOT NULL AND op.tenant IS NOT NULL THEN
    RAISE EXCEPTION 'only an operator for all tenants runs SQL commands of the past'
      USING ERRCODE = 'WB013';
  END IF;
  RETURN s;
END $$;

-- Makes the job of one slot. `is_new`: this transaction has made the last job of the operation.
-- Raises if a quota of the tenant is full.
CREATE OR REPLACE FUNCTION _make_backfill_job(
  op bulk_operations, s schedules, slot timestamptz, is_new boolean, t timestamptz
)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  payload jsonb := _make_schedule_payload(s);
  job uuid := uuid7(t + op.done * interval '1 microsecond');
  previous uuid;
BEGIN
  IF s.overlap <> 'allow' THEN
    previous := (SELECT j.id FROM jobs j WHERE j.id = op.reached AND j.tenant = s.tenant);
  END IF;
  IF _may_have_quota(s.tenant) THEN
    PERFORM _take_quota(s.tenant, 1, _payload_size(payload, NULL));
  END IF;
  INSERT INTO slots (schedule_id, slot, kind, job_id, fired_at)
  VALUES (s.id, slot, 'backfill', job, t);
  INSERT INTO jobs (
    id, run_at, created_at, policy, timeout, version, priority, max_attempts, class, lane, wait,
    limit_keys, queue, type, tenant, schedule_id, slot, created_by, payload, meta, expires_at)
  VALUES (
    job, t, t, s.policy, extract(epoch FROM s.timeout), s.version, s.priority, s.max_attempts,
    CASE WHEN s.max_attempts = 1 OR s.expires IS NOT NULL THEN 1 ELSE 0 END,
    _find_slot_lane(s.queue, payload, s.tenant, s.type),
    CASE WHEN previous IS NOT NULL THEN 'blocked' END,
    CASE WHEN _may_have_quota(s.tenant) THEN _quota_keys(NULL, s.tenant) END, s.queue,
    coalesce(s.type, 'watchbill.sql'), s.tenant, s.id, slot, op.created_by, payload,
    _make_slot_meta(s.name, slot, s.context), t + s.expires);
  IF previous IS NOT NULL THEN
    PERFORM _block_jobs_behind_parents(
      ARRAY[job], ARRAY[previous], ARRAY[s.tenant],
      CASE WHEN is_new THEN ARRAY[previous] ELSE '{}' END, t);
  END IF;
  RETURN job;
END $$;
