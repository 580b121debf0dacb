-- A node's life: register, heartbeat, drain, leave. The beat row is the lease; who has none is lost.

CREATE OR REPLACE FUNCTION register(
  name text, lease interval DEFAULT '30 seconds', app text DEFAULT NULL, types jsonb DEFAULT '{}', labels jsonb DEFAULT '{}',
  host text DEFAULT NULL, pid int DEFAULT NULL, instance uuid DEFAULT NULL, watchbill_version text DEFAULT NULL, now timestamptz DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(register.now, clock());
  e bigint;
BEGIN
  IF coalesce(register.name, '') = '' THEN
    RAISE EXCEPTION 'a node needs a name' USING ERRCODE = 'WB003';
  ELSIF length(register.name) > 200 THEN
    RAISE EXCEPTION 'a node''s name of % characters is too long', length(register.name) USING ERRCODE = 'WB003', HINT = 'it has at most 200';
  ELSIF coalesce(register.lease, interval '0') < interval '1 second' THEN
    RAISE EXCEPTION 'a lease of % is too short', coalesce(register.lease::text, 'NULL') USING ERRCODE = 'WB003', HINT = 'the shortest lease is one second';
  ELSIF register.lease > interval '1 day' THEN
    RAISE EXCEPTION 'a lease of % is too long', register.lease USING ERRCODE = 'WB003', HINT = 'for so long its jobs would wait if it died; the longest lease is a day';
  ELSIF jsonb_typeof(register.types) <> 'object' OR jsonb_path_exists(register.types, 'strict $.* ? (@.type() != "number" || @ < 1 || @ > 2147483647 || @.floor() != @)', silent => true) THEN
    RAISE EXCEPTION 'types cannot be %', register.types USING ERRCODE = 'WB003', HINT = 'an object: each type with the newest version of its payload, as in {"mail.send": 1}';
  END IF;
  PERFORM adopt_server();
  e := next_fence();
  INSERT INTO nodes (epoch, name, app, host, pid, instance, lease, labels, watchbill_version, started_at)
    VALUES (e, register.name, register.app, register.host, register.pid, coalesce(register.instance, gen_random_uuid()), register.lease,
      coalesce(register.labels, '{}'), register.watchbill_version, t)
    ON CONFLICT (name) WHERE state IN ('active', 'draining') DO NOTHING;
  IF NOT FOUND THEN
    SELECT n.epoch INTO e FROM nodes n WHERE n.name = register.name AND n.state = 'active' AND n.instance = register.instance;
    IF FOUND THEN RETURN e; END IF;                      -- our own, sent again after a lost reply
    RAISE EXCEPTION 'a node named % is alive', quote_literal(register.name) USING ERRCODE = 'WB002',
      DETAIL = coalesce((SELECT format('epoch %s, host %s, pid %s, last beat %s', n.epoch, n.host, n.pid, b.at)   -- NULL, when it has just left, would be an error of its own
        FROM nodes n LEFT JOIN beats b USING (epoch) WHERE n.name = register.name AND n.state IN ('active', 'draining')), 'it has just left'),
      HINT = 'give another name, or wait until its lease has run out';
  END IF;
  INSERT INTO beats (epoch, at) VALUES (e, t);
  INSERT INTO node_types (epoch, type, version)
    SELECT e, k.key, k.value::int FROM jsonb_each_text(coalesce(register.types, '{}')) k;
  RETURN e;
END $$;

-- Renews the lease, records handlers that have run for longer than a beat, and returns the jobs that were asked to stop.
-- running: [{"id": ..., "fence": ..., "age": seconds, "progress": {...}}]; NULL says nothing about them.
CREATE OR REPLACE FUNCTION heartbeat(epoch bigint, running jsonb DEFAULT NULL, now timestamptz DEFAULT NULL)
RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(heartbeat.now, clock());
BEGIN
  UPDATE beats b SET at = t, n = b.n + 1 WHERE b.epoch = heartbeat.epoch;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'node % is lost', heartbeat.epoch USING ERRCODE = 'WB001', HINT = 'register again; what it held is given to others';
  END IF;
  IF heartbeat.running IS NOT NULL THEN
    PERFORM record_runs(heartbeat.epoch, heartbeat.running, t);
  END IF;
  RETURN stop_requests(heartbeat.epoch);
END $$;

CREATE OR REPLACE FUNCTION record_runs(epoch bigint, running jsonb, now timestamptz)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  IF EXISTS (SELECT FROM jsonb_array_elements(CASE jsonb_typeof(record_runs.running) WHEN 'array' THEN record_runs.running ELSE '[0]' END) r
      WHERE (jsonb_typeof(r->'id'), jsonb_typeof(r->'fence'), coalesce(jsonb_typeof(r->'age'), 'number')) IS DISTINCT FROM ('string', 'number', 'number')) THEN
    RAISE EXCEPTION 'running cannot be %', record_runs.running USING ERRCODE = 'WB003', HINT = 'an array of objects, as in [{"id": "...", "fence": 7, "age": 12.5}]';
  END IF;
  DELETE FROM runs r WHERE r.epoch = record_runs.epoch
    AND NOT EXISTS (SELECT FROM jsonb_to_recordset(record_runs.running) AS x(id uuid, fence bigint) WHERE x.id = r.job_id AND x.fence = r.fence);
  INSERT INTO runs AS r (job_id, fence, epoch, started_at, seen_at, progress)
    SELECT DISTINCT ON (x.id) x.id, x.fence, record_runs.epoch, began(record_runs.now, coalesce(x.age, 0)), record_runs.now, x.progress
    FROM jsonb_to_recordset(record_runs.running) AS x(id uuid, fence bigint, age float8, progress jsonb)
    ORDER BY x.id, x.fence DESC                          -- a job taken away and claimed again may run here twice
    ON CONFLICT (job_id) DO UPDATE SET fence = EXCLUDED.fence, epoch = EXCLUDED.epoch, seen_at = EXCLUDED.seen_at, progress = EXCLUDED.progress,
      started_at = CASE WHEN r.fence = EXCLUDED.fence THEN r.started_at ELSE EXCLUDED.started_at END
    WHERE EXCLUDED.fence >= r.fence;                     -- a frozen node's late beat must not overwrite its successor's row
END $$;

CREATE OR REPLACE FUNCTION stop_requests(epoch bigint) RETURNS uuid[] LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT coalesce(array_agg(c.job_id), '{}') FROM cancels c WHERE c.epoch = stop_requests.epoch $$;

-- An operator's wish: the node finishes what it runs, gives back the rest and stops.
CREATE OR REPLACE FUNCTION drain(name text, now timestamptz DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM FROM nodes n WHERE n.name = drain.name AND n.state = 'active' FOR UPDATE;   -- a claim's KEY SHARE does not meet a plain UPDATE
  UPDATE nodes n SET state = 'draining' WHERE n.name = drain.name AND n.state = 'active';
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM note('drain', 'node ' || drain.name, NULL, NULL, drain.now);
  PERFORM pg_notify(wake_channel(), '');                 -- its next claim tells it, so let there be one
  RETURN true;
END $$;

-- Releases, unspent, whatever these claims still hold. Rows that somebody else has locked stay for the next call.
CREATE OR REPLACE FUNCTION release_claims(fences bigint[], t timestamptz) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  released int;
BEGIN
  WITH held AS MATERIALIZED (
      SELECT j.ctid AS tid FROM claims c CROSS JOIN LATERAL unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence
      WHERE c.fence = ANY (release_claims.fences) FOR UPDATE OF j SKIP LOCKED)
  UPDATE jobs j SET fence = 0, failed = false FROM held WHERE j.ctid = held.tid AND NOT j.canceling;
  GET DIAGNOSTICS released = ROW_COUNT;
  PERFORM finish_canceled(release_claims.fences, release_claims.t);
  DELETE FROM claims c WHERE c.fence = ANY (release_claims.fences)
    AND NOT EXISTS (SELECT FROM unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence);
  IF released > 0 THEN PERFORM wake(''); END IF;
  RETURN released;
END $$;

-- After a claim whose reply was lost, and once per lease: the node names the fences it knows, and gives back all others it holds.
CREATE OR REPLACE FUNCTION abandon(epoch bigint, known bigint[], now timestamptz DEFAULT NULL) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM FROM nodes n WHERE n.epoch = abandon.epoch FOR UPDATE;   -- waits for a claim of ours that is still under way
  RETURN release_claims(ARRAY(SELECT c.fence FROM claims c WHERE c.epoch = abandon.epoch AND c.fence <> ALL (abandon.known)),
    coalesce(abandon.now, clock()));
END $$;

-- A polite end: nothing is lost, what was held goes back unspent.
CREATE OR REPLACE FUNCTION leave(epoch bigint, now timestamptz DEFAULT NULL) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(leave.now, clock());
  released int;
BEGIN
  DELETE FROM beats b WHERE b.epoch = leave.epoch;       -- beats before nodes, as reclaim does: two orders would deadlock
  PERFORM FROM nodes n WHERE n.epoch = leave.epoch FOR UPDATE;
  UPDATE nodes n SET state = 'left', ended_at = t WHERE n.epoch = leave.epoch AND n.state IN ('active', 'draining');
  IF NOT FOUND THEN RETURN 0; END IF;
  DELETE FROM declarations d WHERE d.epoch = leave.epoch;
  PERFORM release_held();
  released := release_claims(ARRAY(SELECT c.fence FROM claims c WHERE c.epoch = leave.epoch), t);
  DELETE FROM runs r WHERE r.epoch = leave.epoch;
  DELETE FROM node_types nt WHERE nt.epoch = leave.epoch;
  RETURN released;
END $$;
