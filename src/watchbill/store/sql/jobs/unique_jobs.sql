-- Unique jobs. A row of `uniques` names the job that has a key. Nothing else is written when that
-- job starts or ends: the enqueue of the next job of the key looks at the job. So a job without
-- such a key costs nothing, and neither does the claim or the end of one that has it.

-- Gives a new job its key and returns NULL, or returns the earlier job that has the key.
--
-- A job that has the key and waits is locked FOR SHARE until this transaction ends. Claims pass it
-- over until then, so it starts after the commit and sees what this transaction has written. Waits
-- for another transaction that gives the same key to a new job, and for one that replaces the job.
CREATE OR REPLACE FUNCTION _reserve_unique(n new_job, t timestamptz)
RETURNS uuid
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  new_key text := _unique_key(n);
  rule text := CASE
      WHEN n.unique_until IS NULL OR n.unique_until IN ('started', 'finished') THEN
        coalesce(n.unique_until, 'started')
      ELSE 'time'
    END;
  expiry timestamptz := CASE WHEN rule = 'time' THEN t + n.unique_until::interval END;
  u uniques;
BEGIN
  LOOP
    -- Two transactions that replace the same job wait for each other.
    IF n.debounce_wait IS NOT NULL OR n.on_duplicate = 'replace' THEN
      SELECT * INTO u
      FROM uniques x
      WHERE x.tenant = n.tenant
        AND x.type = n.type
        AND x.key = new_key
      FOR UPDATE;
    ELSE
      SELECT * INTO u
      FROM uniques x
      WHERE x.tenant = n.tenant
        AND x.type = n.type
        AND x.key = new_key;
    END IF;
    IF NOT FOUND THEN
      INSERT INTO uniques (tenant, type, key, job_id, until, expires_at)
      VALUES (n.tenant, n.type, new_key, n.id, rule, expiry)
      ON CONFLICT DO NOTHING;
      IF FOUND THEN RETURN NULL; END IF;
      CONTINUE;
    END IF;
    -- The same job is sent again.
    IF u.job_id = n.id THEN RETURN NULL; END IF;
    IF _has_unique_key(u, t) THEN RETURN u.job_id; END IF;
    -- Takes the key over, unless another transaction has just done so.
    UPDATE uniques x
    SET job_id = n.id, until = rule, expires_at = expiry
    WHERE x.tenant = n.tenant
      AND x.type = n.type
      AND x.key = new_key
      AND x.job_id = u.job_id;
    IF FOUND THEN RETURN NULL; END IF;
  END LOOP;
END $$;

-- Whether the job that a key names still has it. Locks a job that waits FOR SHARE, and so waits for
-- a claim of it to commit.
CREATE OR REPLACE FUNCTION _has_unique_key(u uniques, t timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF u.until = 'time' THEN RETURN u.expires_at > t; END IF;
  IF u.until = 'finished' THEN
    RETURN EXISTS (
      SELECT FROM jobs j WHERE j.id = u.job_id AND j.tenant = u.tenant AND j.type = u.type);
  END IF;
  PERFORM
  FROM jobs j
  WHERE j.id = u.job_id
    AND j.tenant = u.tenant
    AND j.type = u.type
    AND j.fence = 0
  FOR SHARE;
  RETURN FOUND;
END $$;

-- Does what `on_duplicate` of a new job says, if an earlier job has its unique key: keeps or
-- replaces the earlier job, or refuses the new one. Returns what its enqueue returns.
CREATE OR REPLACE FUNCTION _resolve_duplicate(n new_job, earlier_job uuid, t timestamptz)
RETURNS enqueued_job
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  IF n.on_duplicate = 'reject' THEN
    PERFORM _refuse_duplicate(n, earlier_job);
  ELSIF n.debounce_wait IS NOT NULL OR n.on_duplicate = 'replace' THEN
    PERFORM _replace_job(n, earlier_job, t);
  END IF;
  UPDATE idempotency i
  SET job_id = earlier_job
  WHERE i.tenant = n.tenant
    AND i.type = n.type
    AND i.key = n.idempotency_key
    AND i.job_id = n.id;
  RETURN ROW(
    earlier_job, _own_job_seq(earlier_job, n.tenant, n.type), false, false)::enqueued_job;
END $$;

-- Raises the error that an earlier job has the unique key of a new one, and says until when.
CREATE OR REPLACE FUNCTION _refuse_duplicate(n new_job, earlier_job uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  rule text;
BEGIN
  SELECT x.until
  INTO rule
  FROM uniques x
  WHERE x.tenant = n.tenant
    AND x.type = n.type
    AND x.key = _unique_key(n);
  RAISE EXCEPTION 'job % has %', earlier_job, CASE
      WHEN n.unique_by IS NULL THEN
        format('the same arguments, which are the unique key of type %L', n.type)
      ELSE format('the unique key %L of type %L', _unique_key(n), n.type)
    END
    USING ERRCODE = 'WB014', HINT = 'enqueue it when ' || CASE rule
        WHEN 'time' THEN 'the time of that job''s key is over'
        WHEN 'finished' THEN 'that job has ended'
        ELSE 'that job has started'
      END;
END $$;

-- Gives a waiting job the arguments and options of a new one; it keeps its id and its place in the
-- order of enqueue. A debounced job is due after its wait, and at most debounce_max after it was
-- made. A job that is tried again lets go of an ordered key that the new one does not have. If the
-- new one depends on other jobs, the waiting job depends on these, and no longer on its own. Raises
-- if the earlier job no longer waits. The caller has locked the key of the job; this waits for
-- transactions that share the job.
CREATE OR REPLACE FUNCTION _replace_job(n new_job, earlier_job uuid, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  due timestamptz;
  old_keys text[];
  new_keys text[];
  growth bigint;
BEGIN
  IF _may_have_quota(n.tenant) THEN
    -- There is no new job, so only a larger payload counts.
    growth := _payload_size(n.payload, n.meta) - (
      SELECT _payload_size(j.payload, j.meta) FROM jobs j WHERE j.id = earlier_job AND j.fence = 0);
    IF growth > 0 THEN PERFORM _take_quota(n.tenant, 0, growth); END IF;
  END IF;
  UPDATE jobs j
  SET run_at = d.due,
    policy = CASE WHEN n.retry IS NULL THEN 1 ELSE _policy_id(n.retry) END,
    timeout = extract(epoch FROM n.timeout),
    version = n.version,
    priority = n.priority,
    max_attempts = n.max_attempts,
    attempt = 0,
    failed = false,
    class = CASE WHEN j.class = 2 THEN 2 ELSE f.class END,
    lane = f.lane,
    limit_keys = f.limit_keys,
    order_key = f.order_key,
    route_key = f.route_key,
    queue = n.queue,
    wait = CASE WHEN j.wait = 'blocked' THEN 'blocked' WHEN d.due > t THEN 'delayed' END,
    wait_key = NULL,
    created_by = n.created_by,
    payload = n.payload,
    meta = n.meta,
    expires_at = _expiry(n, t)
  FROM _job_flow(n) f, (
    SELECT CASE
        WHEN n.debounce_wait IS NULL THEN coalesce(n.run_at, t + n.delay, t)
        WHEN n.debounce_max IS NULL THEN t + n.debounce_wait
        ELSE least(t + n.debounce_wait, greatest(e.created_at + n.debounce_max, t))
      END AS due,
      e.limit_keys
    FROM jobs e
    WHERE e.id = earlier_job) d
  WHERE j.id = earlier_job
    AND j.tenant = n.tenant
    AND j.type = n.type
    AND j.fence = 0
    -- Its steps belong to its arguments.
    AND NOT EXISTS (SELECT FROM steps s WHERE s.job_id = j.id AND s.tenant = j.tenant)
  RETURNING j.run_at, d.limit_keys, coalesce(j.limit_keys, '{}') INTO due, old_keys, new_keys;
  -- The earlier job was enqueued with a rule by which it keeps the key when it no longer waits.
  IF NOT FOUND THEN PERFORM _refuse_duplicate(n, earlier_job); END IF;
  IF old_keys IS NOT NULL THEN
    DELETE FROM holds h
    WHERE h.job_id = earlier_job
      AND h.key = ANY (old_keys)
      AND h.key <> ALL (new_keys);
    PERFORM _announce_if_waiting(old_keys);
  END IF;
  IF cardinality(n.depends_on) > 0 THEN
    PERFORM _replace_dependencies(n, earlier_job, n.depends_on, t);
  ELSIF due > t THEN
    PERFORM _wake_promoters(due, t);
  ELSE
    PERFORM _wake_workers(n.queue);
  END IF;
END $$;

-- Lets a waiting job depend on the parents of a new one that has replaced it. Raises if one of them
-- waits for the job itself.
CREATE OR REPLACE FUNCTION _replace_dependencies(
  n new_job,
  earlier_job uuid,
  parents uuid[],
  t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  PERFORM FROM jobs j WHERE j.id = earlier_job AND j.fence = 0 FOR UPDATE;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM _refuse_job(
    n.type,
    format('it replaces job %s and depends on job %s, which waits for that one', earlier_job, p))
  FROM unnest(parents) p
  WHERE p = earlier_job
    OR EXISTS (SELECT FROM ancestors(p) a WHERE a.id = earlier_job);
  DELETE FROM dependencies d WHERE d.child = earlier_job AND d.tenant = n.tenant;
  n.id := earlier_job;
  n.depends_on := parents;
  PERFORM _add_dependencies(ARRAY[n], ARRAY[earlier_job], ARRAY[true], t);
END $$;
