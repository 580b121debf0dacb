-- Declares nodes lost and reclaims their jobs. The caller names the epoch and the beat number of
-- nodes that sent no beat for a full lease on the caller's clock. Such a node is lost if its lease
-- has run out on the database's clock too, and it has sent no other beat. A beat of the future does
-- not renew a lease: the clock was set back after it, and the caller's clock decides. A lost job is
-- queued again, to run in quarantine. It is dead at the third loss in a row, or at the first loss
-- if it has only one attempt. Locks beats, nodes and jobs, in this order; leaves locked rows for
-- the next call. Then locks the states of the limit keys of all these jobs.
CREATE OR REPLACE FUNCTION reclaim(
  epochs bigint[] DEFAULT '{}',
  beats_seen bigint[] DEFAULT '{}',
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (id uuid, epoch bigint, state text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  node_epoch bigint;
  node_state text;
  node_fences bigint[];
  reclaimed record;
  freed text[];
  fences bigint[];
BEGIN
  PERFORM _check_shared_change('reclaim');
  PERFORM _check_isolation('reclaim');
  PERFORM _declare_lost(epochs, beats_seen, now);
  FOR node_epoch, node_state, node_fences IN
    SELECT nd.epoch, nd.state, held.fences
    FROM (SELECT c.epoch, array_agg(c.fence) AS fences FROM claims c GROUP BY 1) held
    JOIN nodes nd USING (epoch)
    WHERE nd.state IN ('lost', 'left')
  LOOP
    fences := fences || node_fences;
    BEGIN
      IF node_state = 'left' THEN
        -- The node left in good order, but could not release these jobs, because they were locked.
        SELECT r.freed INTO reclaimed FROM _release_claimed_jobs(node_fences, t) r;
      ELSE
        SELECT r.endings, r.freed INTO reclaimed FROM _reclaim_jobs(node_epoch, t, NULL) r;
        RETURN QUERY SELECT e.id, node_epoch, e.state FROM unnest(reclaimed.endings) e;
      END IF;
      freed := freed || reclaimed.freed;
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'could not reclaim the jobs of the node with epoch % together, will retry: %',
        node_epoch, SQLERRM;
      IF node_state = 'lost' THEN
        SELECT r.endings, r.freed INTO reclaimed FROM _reclaim_jobs_one_by_one(node_epoch, t) r;
        RETURN QUERY SELECT e.id, node_epoch, e.state FROM unnest(reclaimed.endings) e;
        freed := freed || reclaimed.freed;
      END IF;
    END;
  END LOOP;
  -- Frees the limit keys of all nodes in one call, because settle() locks its keys in one order
  -- too. Does so before it deletes claims, because settle() locks the claims last.
  PERFORM _unpark_freed(freed, t);
  PERFORM _delete_ended_claims(fences);
END $$;

-- Declares those of these nodes lost that have sent no heartbeat since `beats_seen`, and returns
-- their epochs. This is the first step of reclaim(); a node calls it to log which nodes are lost.
CREATE OR REPLACE FUNCTION _declare_lost(
  epochs bigint[], beats_seen bigint[], now timestamptz DEFAULT NULL
)
RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  lost bigint[];
BEGIN
  PERFORM _check_shared_change('_declare_lost');
  PERFORM _check_isolation('_declare_lost');
  lost := ARRAY(
    SELECT b.epoch
    FROM unnest(epochs, beats_seen) s(epoch, n)
    JOIN beats b ON b.epoch = s.epoch AND b.n = s.n
    JOIN nodes nd ON nd.epoch = b.epoch AND (b.at < t - nd.lease OR b.at > t)
    FOR UPDATE OF b, nd SKIP LOCKED);
  PERFORM _mark_node_lost(x.epoch, t) FROM unnest(lost) x(epoch);
  RETURN QUERY SELECT x.epoch FROM unnest(lost) x(epoch);
END $$;

-- Reclaims the jobs of a node one by one, after an error with all of them: a user's trigger may
-- refuse one job. That job stays in its claim for the next call.
CREATE OR REPLACE FUNCTION _reclaim_jobs_one_by_one(
  node_epoch bigint, t timestamptz, OUT endings ending[], OUT freed text[]
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  one uuid;
  reclaimed record;
BEGIN
  FOR one IN
    SELECT x.id
    FROM claims c
    CROSS JOIN LATERAL unnest(c.job_ids) x(id)
    JOIN jobs j ON j.id = x.id AND j.fence = c.fence
    WHERE c.epoch = node_epoch
  LOOP
    BEGIN
      SELECT r.endings, r.freed INTO reclaimed FROM _reclaim_jobs(node_epoch, t, one) r;
      endings := endings || reclaimed.endings;
      freed := freed || reclaimed.freed;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      -- Gives up, because the remaining jobs would wait for the same lock.
      RAISE;
    WHEN OTHERS THEN
      RAISE WARNING 'could not reclaim job % of the lost node with epoch %, will retry: %',
        one, node_epoch, SQLERRM;
    END;
  END LOOP;
END $$;

-- Reclaims all jobs of a node, or only the job `one`. Skips a job that the transaction of its
-- handler has locked and may still complete. A lost run counts as started when its node reported
-- that, or else when it was claimed. Returns the limit keys that are `freed`; the caller frees them
-- and deletes the claims.
CREATE OR REPLACE FUNCTION _reclaim_jobs(
  node_epoch bigint, t timestamptz, one uuid, OUT endings ending[], OUT freed text[]
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  due timestamptz;
  requeued uuid[];
BEGIN
  endings := ARRAY(
    SELECT ROW(
      j.id,
      j.fence,
      'lost',
      CASE
        WHEN j.canceling THEN 'canceled'
        WHEN j.max_attempts = 1 AND NOT _is_undoing(j.id, j.tenant)
          OR j.lost >= 2 AND NOT _has_stored_step(j) THEN 'dead'
        ELSE 'failed'
      END,
      extract(epoch FROM t - coalesce(r.started_at, c.at)),
      NULL,
      NULL,
      jsonb_build_object('kind', 'lost', 'message', 'the node that ran it was lost'))::ending
    FROM claims c
    CROSS JOIN LATERAL unnest(c.job_ids) x(id)
    JOIN jobs j ON j.id = x.id AND j.fence = c.fence
    LEFT JOIN runs r ON r.job_id = x.id AND r.fence = c.fence
    WHERE c.epoch = node_epoch
      AND (one IS NULL OR x.id = one)
    FOR UPDATE OF j SKIP LOCKED);
  PERFORM _cancel_jobs_of_steps(endings, false, t);
  endings := _begin_undos(endings, t);
  freed := (SELECT e.freed FROM _finish_jobs(endings, node_epoch, t) e);
  WITH u AS (
      UPDATE jobs j
      SET fence = 0,
        ended_at = t,
        lost = CASE WHEN _has_stored_step(j) THEN 1 ELSE j.lost + 1 END,
        class = 2,
        failed = true,
        wait = 'delayed',
        wait_key = NULL,
        expires_at = NULL,
        run_at = t + random() * power(2, least(j.lost, 10)) * interval '1 second'
      FROM unnest(endings) e
      JOIN jobs old ON old.id = e.id AND old.fence = e.fence
      WHERE j.id = e.id
        AND j.fence = e.fence
        AND e.state = 'failed'
      RETURNING
        j.id, j.run, j.run_at, old.run_at AS due_at, j.attempt, e.fence, e.age, j.queue, j.type,
        j.tenant, e.error),
    a AS (
      INSERT INTO attempts (
        job_id, run, attempt, fence, epoch, outcome, due_at, started_at, ended_at, queue, type,
        tenant, error, failure)
      SELECT
        u.id, u.run, u.attempt + 1, u.fence, node_epoch, 'lost', u.due_at, _started_at(t, u.age),
        t, u.queue, u.type, u.tenant, u.error, _failure_of(u.type, u.error)
      FROM u)
  SELECT min(u.run_at), array_agg(u.id) INTO due, requeued FROM u;
  freed := freed || _release_holds(requeued);
  PERFORM _note_alert_event('poison', x.type, x.jobs, t)
  FROM (
    SELECT j.type, count(*) AS jobs
    FROM jobs j
    WHERE j.id = ANY (requeued)
      AND j.lost >= 2
    GROUP BY 1
    ORDER BY 1) x;
  DELETE FROM runs r
  WHERE r.epoch = node_epoch
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = r.job_id AND j.fence = r.fence);
  PERFORM _wake_promoters(due, t);
END $$;

-- Says whether the run that holds this job has stored a step. A long job that goes on between its
-- losses is not the cause of them, so they are not losses in a row.
CREATE OR REPLACE FUNCTION _has_stored_step(j jobs)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT
    FROM steps s
    WHERE s.job_id = j.id
      AND s.tenant = j.tenant
      AND s.fence = j.fence)
$$;
