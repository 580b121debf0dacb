-- Releases the unfinished jobs of these claims, without using up an attempt. Returns how many.
-- Locks the jobs, and leaves those that are locked for the next call. Then locks the states of
-- their limit keys.
CREATE OR REPLACE FUNCTION _release_claims(fences bigint[], t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  released int;
  freed text[];
BEGIN
  SELECT r.released, r.freed INTO released, freed FROM _release_claimed_jobs(fences, t) r;
  PERFORM _unpark_freed(freed, t);
  PERFORM _delete_ended_claims(fences);
  RETURN released;
END $$;

-- Releases jobs as _release_claims() does, but leaves the claims and the limit keys that are
-- `freed` to the caller. settle() locks claims last, so the caller must unpark the keys first.
CREATE OR REPLACE FUNCTION _release_claimed_jobs(
  fences bigint[], t timestamptz, OUT released int, OUT freed text[]
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  ids uuid[];
BEGIN
  WITH held AS MATERIALIZED (
      SELECT j.ctid AS tid
      FROM claims c
      CROSS JOIN LATERAL unnest(c.job_ids) x(id)
      JOIN jobs j ON j.id = x.id AND j.fence = c.fence
      WHERE c.fence = ANY (fences)
      FOR UPDATE OF j SKIP LOCKED),
    u AS (
      UPDATE jobs j
      SET fence = 0, failed = false, lane = _find_ready_lane(j.queue, j.route_key, j.lane)
      FROM held
      WHERE j.ctid = held.tid
        AND NOT j.canceling
      RETURNING j.id)
  SELECT array_agg(u.id) INTO ids FROM u;
  freed := _release_holds(ids) || _finish_canceled_jobs(fences, t);
  IF ids IS NOT NULL THEN PERFORM _wake_workers(''); END IF;
  released := coalesce(cardinality(ids), 0);
END $$;

-- Ends the jobs of these claims that have a stop request, or lets them undo their steps. Locks
-- them. Returns the limit keys that have a place now.
CREATE OR REPLACE FUNCTION _finish_canceled_jobs(fences bigint[], t timestamptz)
RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  endings ending[] := ARRAY(
    SELECT ROW(j.id, j.fence, 'released', 'canceled', NULL, NULL, NULL, NULL)::ending
    FROM claims c
    CROSS JOIN LATERAL unnest(c.job_ids) x(id)
    JOIN jobs j ON j.id = x.id AND j.fence = c.fence
    WHERE c.fence = ANY (fences)
      AND j.canceling
    FOR UPDATE OF j SKIP LOCKED);
  freed text[];
BEGIN
  IF cardinality(endings) = 0 THEN RETURN NULL; END IF;
  PERFORM _cancel_jobs_of_steps(endings, false, t);
  endings := _begin_undos(endings, t);
  freed := (SELECT e.freed FROM _finish_jobs(endings, NULL, t) e);
  RETURN freed || _requeue_jobs(endings, NULL, t);
END $$;

-- Deletes the claims among these whose jobs have all ended or were taken away; returns how many.
-- Skips those that are locked, so that functions which delete claims in different orders never wait
-- for each other; sweep_claims() deletes them later.
CREATE OR REPLACE FUNCTION _delete_ended_claims(fences bigint[])
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  deleted int;
BEGIN
  WITH ended AS MATERIALIZED (
    SELECT c.ctid AS tid
    FROM claims c
    WHERE c.fence = ANY (fences)
      AND NOT EXISTS (
        SELECT
        FROM unnest(c.job_ids) x(id)
        JOIN jobs j ON j.id = x.id AND j.fence = c.fence)
    FOR UPDATE SKIP LOCKED)
  DELETE FROM claims c
  USING ended
  WHERE c.ctid = ended.tid;
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted;
END $$;
