-- The places of limit keys: how many jobs of a key may start. docs/explanation/flow_control.md

-- Makes the states of keys that have none. Sorted against deadlocks: a second claim of a new key
-- waits here for the first.
CREATE OR REPLACE FUNCTION _make_limit_states(keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO limit_states (key, name)
  SELECT k.key, _limit_name(k.key)
  FROM unnest(keys) k(key)
  -- LIMIT keeps the planner from reading the whole table.
  WHERE (SELECT true FROM limit_states s WHERE s.key = k.key LIMIT 1) IS NULL
  ORDER BY k.key COLLATE "C"
  ON CONFLICT DO NOTHING;
END $$;

-- As _make_limit_states(), but makes no states while another transaction makes one of them. For a
-- claim that has made states before: two such claims may meet the keys of each other.
CREATE OR REPLACE FUNCTION _try_to_make_limit_states(keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1ms'
AS $$
BEGIN
  PERFORM _make_limit_states(keys);
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- Locks the states of keys, and makes those that do not exist. Returns the keys whose states
-- another transaction has locked, and does not wait for it. It waits for one that makes such a
-- state, if it may; but not while it holds a state that the other may want: unpark() makes states
-- and then waits for states.
CREATE OR REPLACE FUNCTION _lock_keys(keys text[], may_wait boolean)
RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  locked text[];
  busy text[];
BEGIN
  FOR attempt IN 1..2 LOOP
    locked := ARRAY(
      SELECT s.key FROM limit_states s WHERE s.key = ANY (keys) FOR UPDATE SKIP LOCKED);
    IF cardinality(locked) = cardinality(keys) THEN RETURN '{}'; END IF;
    busy := ARRAY(SELECT k FROM unnest(keys) k EXCEPT SELECT unnest(locked));
    EXIT WHEN attempt = 2;
    IF may_wait AND cardinality(locked) = 0 THEN
      PERFORM _make_limit_states(busy);
    ELSE
      PERFORM _try_to_make_limit_states(busy);
    END IF;
  END LOOP;
  RETURN busy;
END $$;

-- Counts the places of these keys; the result is in their order. The caller has locked the states
-- of all but the `busy` ones in an earlier statement.
CREATE OR REPLACE FUNCTION _count_places(keys text[], busy text[], t timestamptz)
RETURNS key_place[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
  counted key_place[];
  any_ordered boolean;
  any_rate boolean;
BEGIN
  SELECT
    coalesce(
      array_agg(
        ROW(
          coalesce(k.max - k.held, 2147483647), k.new_places, k.is_locked, k.is_ordered, k.key,
          NULL)::key_place),
      '{}'),
    bool_or(k.is_ordered), bool_or(k.new_places IS NOT NULL)
  INTO counted, any_ordered, any_rate
  FROM (
    SELECT
      k.key,
      k.key <> ALL (busy) AS is_locked,
      l.max,
      (SELECT count(*)::int FROM holds h WHERE h.key = k.key) AS held,
      _is_order_key(k.key) AS is_ordered,
      CASE WHEN l.rates IS NOT NULL THEN 0 END AS new_places
    FROM unnest(keys) WITH ORDINALITY k(key, number)
    -- LIMIT makes every plan look the keys up one by one, also one made when there were none.
    LEFT JOIN LATERAL (SELECT * FROM limits x WHERE x.name = _limit_name(k.key) LIMIT 1) l ON true
    ORDER BY k.number) k;
  IF any_ordered THEN counted := _count_ordered_places(counted); END IF;
  IF any_rate THEN counted := _count_rated_places(counted, t); END IF;
  RETURN counted;
END $$;

-- Finds the heads of ordered keys, and whether another job holds the key.
CREATE OR REPLACE FUNCTION _count_ordered_places(counted key_place[])
RETURNS key_place[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN ARRAY(
    SELECT ROW(
      CASE
        WHEN k.is_ordered THEN (
          SELECT 1 - count(*)
          FROM holds h
          WHERE h.key = k.key
            AND h.job_id IS DISTINCT FROM head.id)
        ELSE k.places
      END,
      k.new_places, k.is_locked, k.is_ordered, k.key, head.id)::key_place
    FROM unnest(counted) k
    LEFT JOIN LATERAL (
      SELECT coalesce(
        -- A job that has the key and is tried again. It keeps the key also before an earlier one
        -- that came late: its enqueue committed later, or it was finished and is run again.
        (
          SELECT j.id
          FROM holds h
          JOIN jobs j ON j.id = h.job_id
          WHERE h.key = k.key
            AND j.order_key = k.key
          LIMIT 1),
        (
          SELECT j.id
          FROM jobs j
          WHERE j.order_key = k.key
          ORDER BY j.seq
          LIMIT 1)) AS id
      WHERE k.is_ordered) head ON true);
END $$;

-- Counts how many starts the rates of keys allow now.
CREATE OR REPLACE FUNCTION _count_rated_places(counted key_place[], t timestamptz)
RETURNS key_place[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN ARRAY(
    SELECT ROW(
      least(k.places, r.free),
      coalesce(r.free - r.offered, k.new_places),
      k.is_locked, k.is_ordered, k.key, k.head)::key_place
    FROM unnest(counted) k
    LEFT JOIN LATERAL (
      SELECT f.free, s.offered
      FROM limit_states s
      JOIN limits l ON l.name = s.name
      CROSS JOIN LATERAL _count_free_starts(l.rates, s.windows, t) f
      WHERE s.key = k.key
        AND k.new_places IS NOT NULL
      LIMIT 1) r ON true);
END $$;
