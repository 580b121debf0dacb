-- Looking jobs up: by id through both tables' indexes, in lists by keyset (newest first, after the last id seen), never by OFFSET.

CREATE OR REPLACE FUNCTION job_by_id(id uuid) RETURNS SETOF job LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
BEGIN
  IF EXISTS (SELECT FROM jobs j WHERE j.id = job_by_id.id) THEN
    RETURN QUERY SELECT * FROM job v WHERE v.id = job_by_id.id AND v.finished_at IS NULL;
  ELSE
    RETURN QUERY SELECT * FROM job v WHERE v.id = job_by_id.id AND v.finished_at >= history_from(job_by_id.id);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION ending_of(id uuid) RETURNS TABLE (state text, result jsonb, error jsonb) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT f.state, f.result, f.error FROM finished_jobs f WHERE f.id = ending_of.id AND f.finished_at >= history_from(ending_of.id) LIMIT 1 $$;

CREATE OR REPLACE FUNCTION last_message(id uuid, ended_at timestamptz) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT a.error->>'message' FROM attempts a WHERE a.job_id = last_message.id AND a.ended_at = last_message.ended_at ORDER BY a.run DESC LIMIT 1 $$;

CREATE OR REPLACE FUNCTION is_listed(j jobs, states text[], type text, queue text, tenant text, message text) RETURNS boolean LANGUAGE sql STABLE
  RETURN CASE WHEN (j).fence <> 0 THEN 'running' WHEN (j).wait = 'blocked' THEN 'blocked' WHEN (j).failed THEN 'failed' ELSE 'queued' END = ANY (states)
    AND (type IS NULL OR (j).type = type) AND (queue IS NULL OR (j).queue = queue) AND (tenant IS NULL OR (j).tenant = tenant)
    AND (message IS NULL OR last_message((j).id, (j).ended_at) = message);

-- Ids first, each table in the order of its index and no further than the page; planned anew, so that only partitions of these states are looked at.
-- What is running or failed may be rare among ten million queued ones: unless those are wanted too it is found through the claims, and through its own index.
CREATE OR REPLACE FUNCTION job_list(states text[] DEFAULT NULL, type text DEFAULT NULL, queue text DEFAULT NULL, tenant text DEFAULT NULL,
  after uuid DEFAULT NULL, message text DEFAULT NULL, max int DEFAULT 50)
RETURNS SETOF job LANGUAGE plpgsql STABLE SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  wanted text[] := CASE WHEN cardinality(job_list.states) > 0 THEN job_list.states ELSE '{blocked,queued,running,failed,succeeded,dead,canceled}' END;
  below uuid := coalesce(job_list.after, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  waiting boolean := wanted && '{blocked,queued}';
BEGIN
  RETURN QUERY SELECT v.* FROM (
    (SELECT j.id FROM jobs j WHERE waiting
      AND j.id < below AND is_listed(j, wanted, job_list.type, job_list.queue, job_list.tenant, job_list.message) ORDER BY j.id DESC LIMIT job_list.max)
    UNION ALL
    (SELECT j.id FROM claims c CROSS JOIN unnest(c.job_ids) held(id) JOIN jobs j ON j.id = held.id AND j.fence = c.fence WHERE NOT waiting AND 'running' = ANY (wanted)
      AND j.id < below AND is_listed(j, wanted, job_list.type, job_list.queue, job_list.tenant, job_list.message) ORDER BY j.id DESC LIMIT job_list.max)
    UNION ALL
    (SELECT j.id FROM jobs j WHERE NOT waiting AND 'failed' = ANY (wanted) AND j.failed AND j.fence = 0
      AND j.id < below AND is_listed(j, wanted, job_list.type, job_list.queue, job_list.tenant, job_list.message) ORDER BY j.id DESC LIMIT job_list.max)
    UNION ALL
    (SELECT f.id FROM finished_jobs f WHERE f.id < below AND f.state = ANY (wanted)
      AND (job_list.type IS NULL OR f.type = job_list.type) AND (job_list.queue IS NULL OR f.queue = job_list.queue)
      AND (job_list.tenant IS NULL OR f.tenant = job_list.tenant) AND (job_list.message IS NULL OR f.error->>'message' = job_list.message)
      ORDER BY f.id DESC LIMIT job_list.max)
    ORDER BY 1 DESC LIMIT job_list.max) page(id), job_by_id(page.id) v ORDER BY v.id DESC;
END $$;

CREATE OR REPLACE FUNCTION dead_groups(type text DEFAULT NULL, tenant text DEFAULT NULL)
RETURNS TABLE (type text, message text, count bigint, first timestamptz, last timestamptz, example uuid) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT f.type, coalesce(f.error->>'message', ''), count(*), min(f.finished_at), max(f.finished_at), (array_agg(f.id ORDER BY f.finished_at DESC))[1]
  FROM finished_jobs f WHERE f.state = 'dead' AND (dead_groups.type IS NULL OR f.type = dead_groups.type) AND (dead_groups.tenant IS NULL OR f.tenant = dead_groups.tenant)
  GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 1000 $$;

-- All that match, at most `max` a call: call it until it answers 0. Jobs that are claimed meanwhile are passed over, and queued ones that have this run_at already.
CREATE OR REPLACE FUNCTION reschedule_many(states text[], type text DEFAULT NULL, queue text DEFAULT NULL, tenant text DEFAULT NULL, message text DEFAULT NULL,
  max int DEFAULT 1000, run_at timestamptz DEFAULT NULL, now timestamptz DEFAULT NULL) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(reschedule_many.now, clock());
  last_id uuid;
  l record;
  n int := 0;
BEGIN
  IF 'running' = ANY (reschedule_many.states) THEN
    RAISE EXCEPTION 'running jobs cannot be rescheduled' USING ERRCODE = 'WB008', HINT = 'cancel or release them first';
  ELSIF coalesce(cardinality(reschedule_many.states), 0) = 0 THEN
    RAISE EXCEPTION 'reschedule jobs of which states?' USING ERRCODE = 'WB003', HINT = 'name them: blocked, queued, failed, succeeded, dead, canceled';
  ELSIF NOT reschedule_many.states <@ '{blocked,queued,failed,succeeded,dead,canceled}' THEN
    RAISE EXCEPTION 'there is no such state among %', reschedule_many.states USING ERRCODE = 'WB003', HINT = 'the states are blocked, queued, failed, succeeded, dead, canceled';
  END IF;
  LOOP
    FOR l IN SELECT * FROM job_list(reschedule_many.states, reschedule_many.type, reschedule_many.queue, reschedule_many.tenant, last_id, reschedule_many.message,
        reschedule_many.max) LOOP
      last_id := l.id;
      CONTINUE WHEN l.state IN ('blocked', 'queued') AND (l.run_at = reschedule_many.run_at OR reschedule_many.run_at IS NULL AND l.run_at <= t);
      BEGIN
        IF reschedule(l.id, reschedule_many.run_at, t) IS NOT NULL THEN n := n + 1; END IF;
      EXCEPTION WHEN SQLSTATE 'WB008' THEN NULL;         -- claimed since it was listed
      END;
      IF n >= reschedule_many.max THEN RETURN n; END IF;
    END LOOP;
    IF NOT FOUND THEN RETURN n; END IF;
  END LOOP;
END $$;

-- Deletes finished jobs that match, with their attempts and keys, at most `max` a call.
CREATE OR REPLACE FUNCTION purge(states text[], type text DEFAULT NULL, queue text DEFAULT NULL, tenant text DEFAULT NULL, message text DEFAULT NULL,
  max int DEFAULT 1000, now timestamptz DEFAULT NULL) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  ids uuid[];
BEGIN
  IF NOT purge.states <@ '{succeeded,dead,canceled}'::text[] THEN
    RAISE EXCEPTION 'only finished jobs can be purged' USING ERRCODE = 'WB008', HINT = 'cancel them first';
  ELSIF coalesce(cardinality(purge.states), 0) = 0 THEN
    RAISE EXCEPTION 'purge jobs of which states?' USING ERRCODE = 'WB003', HINT = 'name them: succeeded, dead, canceled';
  END IF;
  ids := ARRAY(SELECT l.id FROM job_list(purge.states, purge.type, purge.queue, purge.tenant, NULL, purge.message, purge.max) l);
  ids := ARRAY(SELECT f.id FROM finished_jobs f WHERE f.id = ANY (ids) AND f.state = ANY (purge.states) FOR UPDATE SKIP LOCKED);   -- not those that come back to life
  DELETE FROM finished_jobs f WHERE f.id = ANY (ids);
  DELETE FROM attempts a WHERE a.job_id = ANY (ids);
  DELETE FROM idempotency i WHERE i.job_id = ANY (ids);
  DELETE FROM dependencies d WHERE d.ctid = ANY (ARRAY(SELECT x.ctid FROM dependencies x WHERE x.child = ANY (ids) FOR UPDATE SKIP LOCKED));   -- sweep_dependencies finds the others
  IF cardinality(ids) > 0 THEN
    PERFORM note('purge', cardinality(ids) || ' jobs', purge.tenant, jsonb_build_object('states', purge.states, 'type', purge.type, 'queue', purge.queue, 'message', purge.message), purge.now);
  END IF;
  RETURN cardinality(ids);
END $$;
