-- Settles runs with different outcomes: locks the jobs and decides their states, moves finished
-- jobs into the history, and requeues the other jobs.
CREATE OR REPLACE FUNCTION _settle_each(
  epoch bigint,
  ids uuid[],
  fences bigint[],
  outcomes text[],
  ages float8[],
  delays interval[],
  results jsonb[],
  errors jsonb[],
  t timestamptz,
  -- True if the caller's transaction ends right after this call, so that it may lock limit keys.
  locks_keys boolean
)
RETURNS TABLE (id uuid, state text, run_at timestamptz)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  endings ending[];
  children uuid[];
  freed text[];
BEGIN
  PERFORM _check_outcomes(outcomes);
  IF cardinality(outcomes) <> cardinality(ids) THEN
    RAISE EXCEPTION 'outcomes is invalid: % outcomes for % jobs',
      cardinality(outcomes), cardinality(ids)
      USING ERRCODE = 'WB003', HINT = 'give one outcome per job';
  ELSIF EXISTS (SELECT FROM unnest(delays) d WHERE d > interval '100 years') THEN
    RAISE EXCEPTION 'delays is invalid: a delay must be at most 100 years'
      USING ERRCODE = 'WB003';
  END IF;
  endings := ARRAY(
    SELECT ROW(
      i.id,
      i.fence,
      CASE
        WHEN i.outcome = 'canceled' AND NOT j.canceling THEN 'failed'
        WHEN i.outcome = 'suspended' AND j.canceling THEN 'canceled'
        -- All attempts are spent before the job undoes its steps.
        WHEN i.outcome IN ('failed', 'timed_out') AND j.attempt >= j.max_attempts THEN 'undone'
        ELSE i.outcome
      END,
      CASE
        WHEN i.outcome = 'undone' THEN
          CASE WHEN i.error->>'kind' = 'canceled' THEN 'canceled' ELSE 'dead' END
        WHEN i.outcome IN ('succeeded', 'skipped') THEN 'succeeded'
        WHEN j.canceling THEN 'canceled'
        WHEN i.outcome IN ('failed', 'timed_out', 'canceled') THEN
          CASE
            WHEN j.attempt + 1 >= j.max_attempts OR i.error->>'kind' = 'permanent' THEN 'dead'
            ELSE 'failed'
          END
        ELSE 'queued'
      END,
      i.age,
      CASE WHEN i.delay < interval '0' THEN interval '0' ELSE i.delay END,
      CASE WHEN i.outcome <> 'suspended' OR NOT j.canceling THEN i.result END,
      i.error)::ending
    FROM unnest(ids, fences, outcomes, ages, delays, results, errors)
      i(id, fence, outcome, age, delay, result, error)
    JOIN jobs j ON j.id = i.id AND j.fence = i.fence AND i.fence <> 0
    FOR UPDATE OF j);
  PERFORM _cancel_jobs_of_steps(endings, false, t);
  endings := _begin_undos(endings, t);
  SELECT f.children, f.freed INTO children, freed
  FROM _finish_jobs(endings, epoch, t) f;
  freed := freed || _requeue_jobs(endings, epoch, t);
  IF locks_keys THEN
    IF cardinality(endings) < cardinality(ids) THEN
      PERFORM _unpark_completed(
        ARRAY(
          SELECT x
          FROM unnest(ids) x
          WHERE NOT EXISTS (SELECT FROM unnest(endings) e WHERE e.id = x)),
        freed, t);
    END IF;
    PERFORM _unpark_freed(freed, t);
  END IF;
  RETURN QUERY
    SELECT i.id, n.state, j.run_at
    FROM unnest(ids, outcomes) i(id, outcome)
    LEFT JOIN unnest(endings) n ON n.id = i.id
    LEFT JOIN jobs j ON j.id = n.id AND n.state IN ('failed', 'queued')
    WHERE n.state IS DISTINCT FROM 'succeeded'
    UNION ALL
    SELECT c, 'blocked', NULL FROM unnest(children) c;
END $$;

CREATE OR REPLACE FUNCTION _check_outcomes(outcomes text[])
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  known text[] :=
    '{succeeded,skipped,failed,timed_out,canceled,snoozed,released,suspended,undone,unsupported}';
  word text;
BEGIN
  IF outcomes <@ known THEN RETURN; END IF;
  SELECT coalesce(x, 'NULL') INTO word
  FROM unnest(outcomes) x
  WHERE x IS NULL
    OR x <> ALL (known)
  LIMIT 1;
  RAISE EXCEPTION 'outcome % is invalid', quote_literal(word)
    USING ERRCODE = 'WB003', HINT = 'the outcomes are ' || array_to_string(known, ', ');
END $$;

-- Settles one job in the caller's transaction. Raises if the job has another fence now.
CREATE OR REPLACE FUNCTION _settle_one(
  job_id uuid,
  job_fence bigint,
  outcome text,
  age float8,
  delay interval,
  result jsonb,
  error jsonb,
  now timestamptz
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  s text;
  due timestamptz;
BEGIN
  SELECT x.state, x.run_at INTO s, due
  FROM _settle_each(
    (SELECT c.epoch FROM claims c WHERE c.fence = job_fence),
    ARRAY[job_id], ARRAY[job_fence], ARRAY[outcome], ARRAY[age], ARRAY[delay], ARRAY[result],
    ARRAY[error], t, false) x
  WHERE x.id IS NOT DISTINCT FROM job_id;
  IF FOUND AND s IS NULL THEN
    PERFORM _refuse_stale_fence(job_id, job_fence);
  END IF;
  -- Notifies promoters of the retry, because the caller may be a program that does not promote
  -- jobs.
  IF due > t THEN PERFORM _wake_promoters(due, t); END IF;
  RETURN coalesce(s, 'succeeded');
END $$;
