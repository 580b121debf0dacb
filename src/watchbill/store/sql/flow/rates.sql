-- Rates: when a key may start its next job. docs/explanation/flow_control.md

-- The microseconds between two starts of a rate, when the burst is used up. With `burst` starts at
-- once and one more after each of these steps, no window of `per` has more than `count` starts,
-- both ends included. Rounded up, or the last start of a window could be a microsecond early. If
-- `count` is 1, so is the burst: the next start is a microsecond after the window of the last one.
CREATE OR REPLACE FUNCTION _rate_step(count int, per interval, burst int)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
    WHEN count = 1 THEN extract(epoch FROM per) * 1000000 + 1
    ELSE ceil(extract(epoch FROM per) * 1000000 / (count - burst))
  END::bigint;

-- How late a start may be without putting off the ones that follow. A window then has no more than
-- `count` starts as long as this is less than a step, but if `count` is 1, any two starts must be a
-- window apart.
CREATE OR REPLACE FUNCTION _rate_grace(count int, step bigint)
RETURNS interval
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN count = 1 THEN 0 ELSE least(step / 2, 1000000) END * interval '1 microsecond';

-- The latest arrival that starts at the time `t`, and before, lead to.
CREATE OR REPLACE FUNCTION _latest_arrival(burst int, step bigint, t timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
RETURN t + burst * step * interval '1 microsecond';

-- How many starts of a burst are used up, at the time `t`.
CREATE OR REPLACE FUNCTION _taken_places(
  arrival timestamptz, burst int, step bigint, t timestamptz
)
RETURNS int
LANGUAGE sql STABLE
RETURN least(burst, ceil(greatest(0, extract(epoch FROM arrival - t) * 1000000) / step));

-- Counts so many starts of keys with a rate. Then says when the rates allow the next of the jobs
-- that are parked on these keys, and tells the promoters. The places that are free now are those of
-- jobs that were made ready before, so the next is the first place that is not free yet. A call of
-- promote() that is due makes jobs ready for places that came since, and a claim does not put it
-- off. The caller has locked the states. If an arrival is later than the rule allows, the clock was
-- set back, and the arrival is set back too; not if it is only later by some seconds, because a
-- claim may read the clock long before it comes here.
CREATE OR REPLACE FUNCTION _count_starts(keys text[], starts int[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  due timestamptz;
BEGIN
  WITH u AS (
    UPDATE limit_states s
    SET arrival = x.arrival, next_at = x.next_at
    FROM (
      SELECT
        k.key,
        a.arrival,
        CASE
          WHEN NOT EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = k.key)
            THEN NULL
          WHEN k.starts > 0 AND o.next_at <= t THEN o.next_at
          WHEN p.taken > 0 THEN a.arrival - (p.taken - 1) * r.step * interval '1 microsecond'
        END AS next_at
      FROM unnest(keys, starts) k(key, starts)
      JOIN limits l ON l.name = _limit_name(k.key)
      JOIN limit_states o ON o.key = k.key
      CROSS JOIN LATERAL (SELECT _rate_step(l.count, l.per, l.burst) AS step OFFSET 0) r
      CROSS JOIN LATERAL (SELECT _latest_arrival(l.burst, r.step, t) AS arrival OFFSET 0) m
      CROSS JOIN LATERAL (
        SELECT CASE
            WHEN o.arrival > m.arrival + interval '10 seconds' THEN m.arrival
            WHEN k.starts = 0 OR o.arrival > t - _rate_grace(l.count, r.step) THEN o.arrival
            ELSE t
          END + k.starts * r.step * interval '1 microsecond' AS arrival
        OFFSET 0) a
      CROSS JOIN LATERAL (
        SELECT _taken_places(a.arrival, l.burst, r.step, t) AS taken
        OFFSET 0) p) x
    WHERE s.key = x.key
      AND (s.arrival, s.next_at) IS DISTINCT FROM (x.arrival, x.next_at)
    RETURNING s.next_at)
  SELECT min(u.next_at) INTO due FROM u;
  IF due IS NOT NULL THEN PERFORM _wake_promoters(due, t); END IF;
END $$;
