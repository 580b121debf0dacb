-- Does one step of retention for the table finished_succeeded, finished_otherwise, attempts or
-- job_logs: drops the partition of the oldest day that ended longer ago than `keep`, or deletes up
-- to `max` such rows of the default partition. Before it drops a day, deletes the idempotency keys
-- of the day's jobs, up to `max` per call. Frees the ordered keys that dead jobs keep. `done` says
-- what was done; NULL if nothing is too old. `more` is true if there is more to do: call again.
-- With `detach`, the table of a day is not dropped, but left outside the history, to be archived.
--
-- Locks the parent IN ACCESS EXCLUSIVE MODE, and gives up after 50 ms, because settle() waits for
-- that lock. `locked` names the parent if a reader holds it, or if another session removes history
-- or makes partitions at this moment: call again later.
CREATE OR REPLACE FUNCTION prune_history(
  parent text,
  keep interval,
  max int DEFAULT 5000,
  now timestamptz DEFAULT NULL,
  detach boolean DEFAULT false,
  OUT done text,
  OUT more boolean,
  OUT locked text
)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '50ms'
AS $$
DECLARE
  before timestamptz := _retention_start(keep, now);
  day text;
  deleted bigint;
BEGIN
  PERFORM _check_shared_change('prune_history');
  PERFORM _check_history_table(parent);
  PERFORM _note_retention(parent, keep, _clock(now));
  more := false;
  IF NOT pg_try_advisory_xact_lock(_lock_class_partitions(), 'jobs'::regclass::oid::int) THEN
    locked := parent;
    RETURN;
  END IF;
  SELECT e.name INTO day FROM _list_expired_days(parent, before) e ORDER BY 1 LIMIT 1;
  IF day IS NULL THEN
    deleted := _prune_default_partition(parent, before, max);
    done := deleted || ' rows of ' || parent || '_default';
    more := deleted = max;
    IF deleted = 0 THEN done := NULL; END IF;
    RETURN;
  END IF;
  IF parent NOT IN ('attempts', 'job_logs') THEN
    EXECUTE format(
        'DELETE FROM idempotency
        WHERE ctid = ANY (ARRAY(
          SELECT i.ctid
          FROM %I f
          JOIN idempotency i ON i.job_id = f.id AND i.tenant = f.tenant
          WHERE f.idempotency_key IS NOT NULL
            AND i.expires_at IS NULL
          LIMIT $1))',
        day)
      USING max;
    GET DIAGNOSTICS deleted = ROW_COUNT;
    IF deleted = max THEN
      done := deleted || ' idempotency keys of ' || day;
      more := true;
      RETURN;
    END IF;
  END IF;
  BEGIN
    -- Locks the parent before the partition, as every writer does. The other order could cause a
    -- deadlock.
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', parent);
    IF parent = 'finished_otherwise' THEN PERFORM _free_keys_of_day(day); END IF;
    IF parent = 'finished_succeeded' THEN PERFORM _keep_results_of_day(day); END IF;
    EXECUTE format(
      CASE WHEN detach THEN 'ALTER TABLE %2$I DETACH PARTITION %1$I' ELSE 'DROP TABLE %1$I' END,
      day, parent);
    done := day;
    more := true;
  EXCEPTION WHEN lock_not_available THEN
    locked := parent;
  END;
END $$;

-- Notes how long this table is kept, for the alert `retention`: the nodes' settings say so, and no
-- table does. The mark is never due.
CREATE OR REPLACE FUNCTION _note_retention(parent text, keep interval, t timestamptz)
RETURNS void
LANGUAGE sql VOLATILE AS $$
  INSERT INTO chore_marks AS m (chore, due_at, last_at, pace)
  VALUES ('prune ' || parent, 'infinity', t, extract(epoch FROM keep))
  ON CONFLICT (chore) DO UPDATE
  SET last_at = EXCLUDED.last_at,
    pace = EXCLUDED.pace
$$;

-- Returns the instant before which rows are too old to be kept.
CREATE OR REPLACE FUNCTION _retention_start(keep interval, now timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF keep IS NULL OR keep < interval '1 hour' THEN
    RAISE EXCEPTION 'keep % is invalid', coalesce(keep::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give at least an hour';
  END IF;
  RETURN _clock(now) - keep;
END $$;

-- Deletes old rows of the default partition, which has the rows of days without a partition of
-- their own. Deletes the idempotency keys of these jobs as well, and frees their ordered keys.
CREATE OR REPLACE FUNCTION _prune_default_partition(parent text, before timestamptz, max int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  deleted bigint;
  ids uuid[];
  order_keys text[];
  statement text := CASE
    WHEN parent IN ('attempts', 'job_logs') THEN
      'WITH d AS (
        DELETE FROM %1$I
        WHERE ctid = ANY (ARRAY(
          SELECT a.ctid
          FROM %1$I a
          WHERE a.ended_at < $1
          LIMIT $2
          FOR UPDATE SKIP LOCKED))
        RETURNING 1)
      SELECT count(*), NULL::uuid[], NULL::text[] FROM d'
    ELSE
      'WITH d AS (
        DELETE FROM %1$I
        WHERE ctid = ANY (ARRAY(
          SELECT f.ctid
          FROM %1$I f
          WHERE f.finished_at < $1
          LIMIT $2
          FOR UPDATE SKIP LOCKED))
        RETURNING id, tenant, idempotency_key, order_key),
      k AS (
        DELETE FROM idempotency i
        USING d
        WHERE i.job_id = d.id
          AND i.tenant = d.tenant
          AND d.idempotency_key IS NOT NULL
          AND i.expires_at IS NULL)
      SELECT
        count(*),
        array_agg(d.id) FILTER (WHERE d.order_key IS NOT NULL),
        array_agg(d.order_key) FILTER (WHERE d.order_key IS NOT NULL)
      FROM d'
  END;
BEGIN
  IF parent = 'finished_succeeded' THEN PERFORM _keep_results_of_day(parent || '_default'); END IF;
  EXECUTE format(statement, parent || '_default') INTO deleted, ids, order_keys USING before, max;
  PERFORM _free_keys_of_deleted_jobs(ids, order_keys);
  RETURN deleted;
END $$;

-- Keeps the results of a day that blocked jobs will take, beside their dependencies. Begins with
-- those dependencies, because they are few.
CREATE OR REPLACE FUNCTION _keep_results_of_day(day text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  EXECUTE format(
    'UPDATE dependencies d
    SET result = f.result
    FROM %I f
    WHERE d.arguments IS NOT NULL
      AND d.result IS NULL
      AND d.outcome = ''succeeded''
      AND f.id = d.parent
      AND f.tenant = d.tenant
      AND EXISTS (
        SELECT
        FROM jobs j
        WHERE j.id = d.child
          AND j.tenant = d.tenant
          AND j.wait = ''blocked'')',
    day);
END $$;

-- Frees the ordered keys that dead jobs of a day keep. Begins with the keys that are held, because
-- they are few. The caller has locked the parent of the partition.
CREATE OR REPLACE FUNCTION _free_keys_of_day(day text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  ids uuid[];
  order_keys text[];
BEGIN
  EXECUTE format(
      'SELECT array_agg(f.id), array_agg(f.order_key)
      FROM holds h
      JOIN %I f ON f.id = h.job_id
      WHERE h.key >= ''order:''
        AND h.key < ''order;''',
      day)
    INTO ids, order_keys;
  PERFORM _free_keys_of_deleted_jobs(ids, order_keys);
END $$;
