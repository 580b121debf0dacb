-- after: job_cause job_by_id
-- Lists the keys of a job that keep it: a full limit, a rate, an order. Asks the function that
-- claims ask, so it knows of a job that no claim has parked yet. If none of the keys is full and
-- the job is parked, a node makes it ready soon.
CREATE OR REPLACE FUNCTION _explain_limits(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  parked_on text := CASE WHEN j.wait = 'parked' THEN j.wait_key END;
  keys text[] := array_remove(array_remove(j.limit_keys, parked_on) || parked_on, NULL);
  place key_place;
  is_kept boolean := false;
BEGIN
  IF coalesce(cardinality(keys), 0) = 0 THEN RETURN; END IF;
  FOREACH place IN ARRAY _count_places(keys, '{}', t) LOOP
    IF place.is_ordered AND (place.head IS DISTINCT FROM j.id OR place.places <= 0) THEN
      RETURN QUERY SELECT * FROM _explain_order(j, place, t);
      is_kept := true;
    ELSIF NOT place.is_ordered AND place.places <= 0 THEN
      RETURN QUERY SELECT * FROM _explain_full_key(j, place, t);
      is_kept := true;
    END IF;
  END LOOP;
  IF parked_on IS NOT NULL AND NOT is_kept THEN
    RETURN QUERY
      SELECT
        9,
        'limited',
        format(
          'it was set aside for the limit %s, which has room now; a node makes it ready within '
            'ten seconds', _show_key(parked_on)),
        NULL::timestamptz,
        NULL::timestamptz,
        false,
        '{}'::text[],
        jsonb_build_object('key', parked_on);
  END IF;
END $$;

-- Returns a key without the prefix `key:`, which the keys of named limits have in the database.
CREATE OR REPLACE FUNCTION _show_key(key text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN regexp_replace(key, '^key:', '');

-- Says that a limit is full and who holds it, or that its rate allows no start now.
CREATE OR REPLACE FUNCTION _explain_full_key(j jobs, place key_place, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  rule limits;
  held int := (SELECT count(*) FROM holds h WHERE h.key = place.key);
  next_at timestamptz;
  name text := _show_key(place.key);
  is_rate boolean;
BEGIN
  SELECT * INTO rule FROM limits l WHERE l.name = _limit_name(place.key);
  is_rate := rule.max IS NULL OR held < rule.max;
  IF is_rate THEN
    SELECT f.at
    INTO next_at
    FROM limit_states s
    CROSS JOIN LATERAL _find_free_time(rule.rates, s.windows, 1) f
    WHERE s.key = place.key;
  END IF;
  RETURN QUERY
    SELECT
      9,
      CASE WHEN is_rate THEN 'rate' ELSE 'limited' END,
      CASE
        WHEN is_rate THEN format('the rate of the limit %s allows no start now', name)
          || coalesce(format('; the next is at %s', date_trunc('milliseconds', next_at)), '')
        WHEN rule.max = 0 THEN
          format('it waits for the limit %s, which is 0, so that no job of it starts', name)
        ELSE format(
          'it waits for the limit %s, which %s', name,
          _describe_holders(place.key, held, '{holds,hold}'))
      END,
      next_at,
      NULL::timestamptz,
      coalesce(rule.max = 0, false),
      ARRAY[
        format('watchbill limits show %s', _shell_word(_limit_name(place.key))),
        format('watchbill limits set %s', _shell_word(_limit_name(place.key)))
          || CASE WHEN is_rate THEN ' --rate COUNT/DURATION' ELSE ' --max NUMBER' END],
      jsonb_strip_nulls(jsonb_build_object(
        'key', place.key, 'kind', _limit_kind(place.key), 'max', rule.max, 'held', held,
        'before', _count_waiters_before(j, place.key)));
END $$;

-- Says which jobs hold a key, and that they do what `verbs` says, in the singular and the plural:
-- names one of them that the caller may see.
CREATE OR REPLACE FUNCTION _describe_holders(key text, held int, verbs text[])
RETURNS text
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  holder text := (
    SELECT format('job %s (%s)', v.id, v.state)
    FROM (SELECT h.job_id FROM holds h WHERE h.key = key LIMIT 5) o
    CROSS JOIN LATERAL job_by_id(o.job_id) v
    LIMIT 1);
BEGIN
  RETURN CASE
      WHEN held = 1 THEN format('%s %s', coalesce(holder, 'another job'), verbs[1])
      ELSE format('%s jobs %s', held, verbs[2]) || coalesce(', such as ' || holder, '')
    END;
END $$;

-- Returns what kind of limit a key belongs to.
CREATE OR REPLACE FUNCTION _limit_kind(key text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE split_part(key, ':', 1) WHEN 'key' THEN 'limit' ELSE split_part(key, ':', 1) END;

-- Counts the jobs that are parked on a key before this one, up to 1,000; NULL if this job is not
-- parked on it. Only for a caller that acts for all tenants: to pass by the jobs of others would
-- have no bound.
CREATE OR REPLACE FUNCTION _count_waiters_before(j jobs, key text)
RETURNS int
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  IF j.wait IS DISTINCT FROM 'parked' OR j.wait_key <> key OR NOT _acts_for_all_tenants() THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT count(*)
    FROM (
      (
        SELECT
        FROM jobs x
        WHERE x.wait = 'parked'
          AND x.wait_key = key
          AND x.lane = j.lane
          AND x.priority > j.priority
        LIMIT 1000)
      UNION ALL
      (
        SELECT
        FROM jobs x
        WHERE x.wait = 'parked'
          AND x.wait_key = key
          AND x.lane = j.lane
          AND x.priority = j.priority
          AND (x.run_at, x.id) < (j.run_at, j.id)
        LIMIT 1000)
      LIMIT 1000) b);
END $$;

-- Says which earlier job of an ordered key is open, or which dead one keeps the key.
CREATE OR REPLACE FUNCTION _explain_order(j jobs, place key_place, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  keeper uuid := coalesce(
    (
      SELECT h.job_id
      FROM holds h
      WHERE h.key = place.key
        AND h.job_id <> j.id
      LIMIT 1),
    nullif(place.head, j.id));
  v job;
  is_dead boolean;
BEGIN
  SELECT * INTO v FROM job_by_id(keeper);
  is_dead := coalesce(v.state = 'dead', false);
  RETURN QUERY
    SELECT
      9,
      'ordered',
      CASE
        WHEN is_dead THEN format(
          'it waits for the ordered key %s, which the dead job %s keeps; retry that job, or clear '
            'the limit', place.key, v.id)
        WHEN v.id IS NULL
          THEN format('another job of the ordered key %s comes before it', place.key)
        WHEN v.run_at > t AND v.finished_at IS NULL AND v.fence IS NULL THEN format(
          'job %s (%s) comes before it in the ordered key %s, and is due at %s',
          v.id, v.state, place.key, date_trunc('second', v.run_at))
        ELSE format(
          'job %s (%s) comes before it in the ordered key %s', v.id, v.state, place.key)
      END,
      NULL::timestamptz,
      NULL::timestamptz,
      is_dead,
      CASE
        WHEN is_dead THEN ARRAY[
          format('watchbill jobs retry %s', v.id),
          format('watchbill limits clear %s', _shell_word(place.key))]
        WHEN v.id IS NOT NULL THEN ARRAY[format('watchbill jobs why %s', v.id)]
        ELSE '{}'
      END,
      jsonb_strip_nulls(jsonb_build_object('key', place.key, 'job', v.id, 'state', v.state));
END $$;

-- Says that the queue of a job runs as many jobs as it may. No claim parks such a job: it takes
-- none.
CREATE OR REPLACE FUNCTION _explain_queue_limit(j jobs)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
DECLARE
  most int := (SELECT q.max FROM queues q WHERE q.name = j.queue);
  key text := _queue_key(j.queue);
  held int;
BEGIN
  IF most IS NULL THEN RETURN; END IF;
  held := (SELECT count(*) FROM holds h WHERE h.key = _queue_key(j.queue));
  IF held < most THEN RETURN; END IF;
  RETURN QUERY
    SELECT
      9,
      'limited',
      format(
        'queue %s may run %s at once', j.queue,
        CASE most WHEN 1 THEN '1 job' ELSE format('%s jobs', most) END)
        || CASE
          WHEN most = 0 THEN ', so that no job of it starts'
          ELSE format(', and %s', _describe_holders(key, held, '{does,do}'))
        END,
      NULL::timestamptz,
      NULL::timestamptz,
      most = 0,
      ARRAY[
        format('watchbill limits show %s', _shell_word(key)),
        format('watchbill limits set %s --max NUMBER', _shell_word(key))],
      jsonb_build_object('key', key, 'kind', 'queue', 'max', most, 'held', held);
END $$;
