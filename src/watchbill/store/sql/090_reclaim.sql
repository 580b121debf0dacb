-- Declares nodes lost and takes back what they held. The caller names (epoch, n) pairs whose beat it has itself seen unchanged for a full lease on its own
-- clock; the database's clock must agree, and a heartbeat that commits first wins. What somebody has locked (a beat, or a claim in a transaction that was left
-- open) is passed over until the next call: one session that hangs must not keep everybody's lost jobs waiting.
-- A lost job comes back to run alone; at the third loss in a row, or at the first when it has one attempt only, it is dead.
CREATE OR REPLACE FUNCTION reclaim(epochs bigint[] DEFAULT '{}', beats_seen bigint[] DEFAULT '{}', now timestamptz DEFAULT NULL)
RETURNS TABLE (id uuid, epoch bigint, state text) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(reclaim.now, clock());
  gone bigint;
  how text;
BEGIN
  PERFORM check_isolation('reclaim');
  PERFORM lose(x.epoch, t) FROM (
    SELECT b.epoch FROM unnest(reclaim.epochs, reclaim.beats_seen) s(epoch, n) JOIN beats b ON b.epoch = s.epoch AND b.n = s.n
      JOIN nodes nd ON nd.epoch = b.epoch AND b.at < t - nd.lease FOR UPDATE OF b, nd SKIP LOCKED) x;
  FOR gone, how IN SELECT nd.epoch, nd.state FROM (SELECT DISTINCT c.epoch FROM claims c) held JOIN nodes nd USING (epoch) WHERE nd.state IN ('lost', 'left') LOOP
    BEGIN
      IF how = 'left' THEN                               -- it left politely while somebody had these locked: no loss
        PERFORM release_claims(ARRAY(SELECT c.fence FROM claims c WHERE c.epoch = gone), t);
      ELSE
        RETURN QUERY SELECT r.id, gone, r.state FROM take_back(gone, t, NULL) r;
      END IF;
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'what node % held cannot be taken back at once: %', gone, SQLERRM;
      IF how = 'lost' THEN RETURN QUERY SELECT r.id, gone, r.state FROM take_back_each(gone, t) r; END IF;
    END;
  END LOOP;
END $$;

-- Declares a node lost whose process is known to be dead, before its lease has run out: the caller has looked for that process on its own machine.
-- False when it has beaten since, or somebody has it locked.
CREATE OR REPLACE FUNCTION bury(epoch bigint, beat bigint, now timestamptz DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM check_isolation('bury');
  PERFORM FROM beats b JOIN nodes nd ON nd.epoch = b.epoch WHERE b.epoch = bury.epoch AND b.n = bury.beat FOR UPDATE OF b, nd SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM lose(bury.epoch, coalesce(bury.now, clock()));
  RETURN true;
END $$;

-- The caller has locked its beat and its row: no claim of this node is under way, and later ones find it lost.
CREATE OR REPLACE FUNCTION lose(epoch bigint, t timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  UPDATE nodes n SET state = 'lost', ended_at = coalesce((SELECT b.at FROM beats b WHERE b.epoch = lose.epoch), lose.t) WHERE n.epoch = lose.epoch;   -- when it was last heard of
  DELETE FROM beats b WHERE b.epoch = lose.epoch;
  DELETE FROM runs r WHERE r.epoch = lose.epoch;
  DELETE FROM node_types nt WHERE nt.epoch = lose.epoch;
  DELETE FROM declarations d WHERE d.epoch = lose.epoch;
  PERFORM release_held();
END $$;

-- One by one, after a refusal: a job that somebody's trigger does not let go must not keep all others from being taken back. It stays with its claim for the next pass.
CREATE OR REPLACE FUNCTION take_back_each(epoch bigint, t timestamptz) RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  one uuid;
BEGIN
  FOR one IN SELECT x.id FROM claims c CROSS JOIN LATERAL unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence WHERE c.epoch = take_back_each.epoch LOOP
    BEGIN
      RETURN QUERY SELECT r.id, r.state FROM take_back(take_back_each.epoch, take_back_each.t, one) r;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      RAISE;                                             -- each of them would wait as long
    WHEN OTHERS THEN
      RAISE WARNING 'job % cannot be taken back from node %, which is lost: %', one, take_back_each.epoch, SQLERRM;
    END;
  END LOOP;
END $$;

-- All that the node held, or this one. What a job locked by its handler's own open transaction is, is not known yet: it stays for the next pass.
CREATE OR REPLACE FUNCTION take_back(epoch bigint, t timestamptz, one uuid) RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  endings ending[] := ARRAY(
    SELECT ROW(j.id, j.fence, 'lost', CASE WHEN j.canceling THEN 'canceled' WHEN j.max_attempts = 1 OR j.lost >= 2 THEN 'dead' ELSE 'failed' END,
      NULL, NULL, NULL, jsonb_build_object('kind', 'lost', 'message', 'the node that ran it was lost'))::ending
    FROM claims c CROSS JOIN LATERAL unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence
    WHERE c.epoch = take_back.epoch AND (take_back.one IS NULL OR x.id = take_back.one) FOR UPDATE OF j SKIP LOCKED);
  due timestamptz;
BEGIN
  PERFORM finish(endings, take_back.epoch, t);
  WITH u AS (UPDATE jobs j SET fence = 0, ended_at = t, lost = j.lost + 1, alone = true, failed = true, wait = 'delayed',
        run_at = t + random() * power(2, least(j.lost, 10)) * interval '1 second'
      FROM unnest(endings) e WHERE j.id = e.id AND j.fence = e.fence AND e.state = 'failed'
      RETURNING j.id, j.run, j.run_at, j.attempt, e.fence, j.queue, j.type, j.tenant, e.error),
    a AS (INSERT INTO attempts (job_id, run, attempt, fence, epoch, outcome, ended_at, queue, type, tenant, error)
      SELECT u.id, u.run, u.attempt, u.fence, take_back.epoch, 'lost', t, u.queue, u.type, u.tenant, u.error FROM u)
  SELECT min(u.run_at) INTO due FROM u;
  DELETE FROM claims c WHERE c.epoch = take_back.epoch
    AND NOT EXISTS (SELECT FROM unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence);
  PERFORM wake_later(due, t);
  RETURN QUERY SELECT e.id, e.state FROM unnest(endings) e;
END $$;

-- Jobs of types that no live node handles are dead after the grace; a node that handles them stops that clock.
CREATE OR REPLACE FUNCTION expire_unsupported(grace interval DEFAULT '1 hour', max int DEFAULT 1000, now timestamptz DEFAULT NULL)
RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(expire_unsupported.now, clock());
  endings ending[];
BEGIN
  DELETE FROM unsupported_types u WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.wait = 'unsupported' AND j.type = u.type AND j.version = u.version);
  UPDATE unsupported_types u SET since = t WHERE EXISTS (
    SELECT FROM node_types nt JOIN nodes n USING (epoch) WHERE n.state = 'active' AND nt.type = u.type AND nt.version >= u.version);
  INSERT INTO unsupported_types (type, version, since) SELECT DISTINCT j.type, j.version, t FROM jobs j WHERE j.wait = 'unsupported'
    ORDER BY 1, 2 ON CONFLICT DO NOTHING;                -- a settle under way may have relied on a row that the DELETE above took in an earlier pass
  endings := ARRAY(SELECT ROW(j.id, 0, 'unsupported', 'dead', NULL, NULL, NULL,
      jsonb_build_object('kind', 'unsupported', 'message', format('no live node handles type %s, version %s', j.type, j.version)))::ending
    FROM unsupported_types u JOIN jobs j ON j.wait = 'unsupported' AND j.type = u.type AND j.version = u.version
    WHERE greatest(j.run_at, u.since) <= t - expire_unsupported.grace AND j.fence = 0 LIMIT expire_unsupported.max FOR UPDATE OF j SKIP LOCKED);
  PERFORM finish(endings, NULL, t);
  RETURN cardinality(endings);
END $$;

-- Claims of live nodes whose jobs have all ended, left behind by callers who settle job by job and close nothing.
CREATE OR REPLACE FUNCTION sweep_claims(older interval DEFAULT '1 minute', now timestamptz DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  n int;
BEGIN
  DELETE FROM claims c WHERE c.at < coalesce(sweep_claims.now, clock()) - sweep_claims.older
    AND NOT EXISTS (SELECT FROM unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence);
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END $$;
