-- Rates: when a key may start its next job. docs/explanation/flow_control.md

-- The windows in which the rates of a key count its starts now: at most `most` in any window of the
-- length `span`. Above a count of 1,000, the starts of a `part` of the window are one entry, and
-- leave the window when the part does. Starts that are spaced are a window of one start. `times`
-- begins with what left the window last. There may be no stored window of this length, because the
-- rate is new: then the starts of the longest one count.
CREATE OR REPLACE FUNCTION _read_windows(rates rate[], windows rate_window[])
RETURNS TABLE (
  per interval,
  most int,
  span interval,
  part interval, -- NULL: each start is an entry
  grace interval, -- NULL: starts are not spaced
  times timestamptz[],
  totals bigint[]
)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
  SELECT
    r.per,
    CASE WHEN e.is_even THEN 1 ELSE r.count END,
    CASE WHEN e.is_even THEN e.step ELSE r.per + coalesce(e.part, interval '0') END,
    e.part,
    CASE WHEN e.is_even THEN least(e.step / 2, interval '1 second') END,
    CASE
      WHEN w.per IS NOT NULL THEN w.times
      ELSE '{-infinity}' || (windows[cardinality(windows)]).times[2:]
    END,
    coalesce(w.totals, (windows[cardinality(windows)]).totals, '{0}')
  FROM unnest(rates) r
  CROSS JOIN LATERAL (
    SELECT
      r.evenly AND r.count > 1 AS is_even,
      -- Rounded up to a microsecond.
      CASE WHEN r.evenly AND r.count > 1
        THEN r.per / (r.count - 1) + CASE WHEN r.per / (r.count - 1) * (r.count - 1) < r.per
          THEN interval '1 microsecond' ELSE interval '0' END
      END AS step,
      CASE WHEN r.count > 1000 AND NOT r.evenly
        THEN greatest(r.per / 1000, interval '1 microsecond')
      END AS part
    OFFSET 0) e
  LEFT JOIN unnest(windows) w ON w.per = r.per;
END;

-- How many jobs the rates of a key allow to start at the time `t`. None, if that is before what
-- left a window last: a claim may have read the clock before the call that took it out.
CREATE OR REPLACE FUNCTION _count_free_starts(
  rates rate[], windows rate_window[], t timestamptz
)
RETURNS TABLE (free int)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
  SELECT greatest(0, min(coalesce(
      w.most - w.totals[cardinality(w.totals)]
        + w.totals[width_bucket(t - w.span, w.times)], 0)))::int
  FROM _read_windows(rates, windows) w;
END;

-- When the rates of a key allow so many jobs to start; NULL: never.
CREATE OR REPLACE FUNCTION _find_free_time(
  rates rate[], windows rate_window[], number int
)
RETURNS TABLE (at timestamptz)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
  SELECT CASE
      WHEN number <= min(w.most) THEN max(w.times[1 + width_bucket(
        w.totals[cardinality(w.totals)] - w.most + number - 1, w.totals)] + w.span)
    END
  FROM _read_windows(rates, windows) w;
END;

-- Adds so many starts at the time `t` to the windows of a key, takes out those that have left, and
-- counts how many more may start. A claim may have read the clock before another one that was here
-- first: its starts count at the time of the last ones. But if these are later by more than ten
-- seconds, the clock was set back, and they count as of now. A spaced start that is late by no more
-- than the grace counts at the time when it was due, so that it does not put off the next.
CREATE OR REPLACE FUNCTION _add_starts(
  rates rate[], windows rate_window[], number int, t timestamptz
)
RETURNS TABLE (windows rate_window[], counts_until timestamptz, free int)
LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
  SELECT
    array_agg(
      ROW(
        y.per, y.times[greatest(1, y.gone):], y.totals[greatest(1, y.gone):])::rate_window
      ORDER BY y.per),
    max(y.at + y.span),
    greatest(0, min(coalesce(
      y.most - y.totals[cardinality(y.totals)] + y.totals[y.gone], 0)))::int
  FROM (
    SELECT x.*, width_bucket(t - x.span, x.times) AS gone
    FROM (
      SELECT
        a.per, a.most, a.span, a.at,
        CASE WHEN a.at = a.last THEN a.times ELSE a.times || a.at END AS times,
        CASE WHEN a.at = a.last THEN a.totals[:a.n - 1] ELSE a.totals END
          || a.totals[a.n] + number AS totals
      FROM (
        SELECT
          c.*,
          CASE
            WHEN number = 0 THEN c.last
            WHEN c.last + c.span BETWEEN t - c.grace AND t THEN c.last + c.span
            ELSE greatest(c.last, coalesce(date_bin(c.part, t, '2000-01-01Z'), t))
          END AS at
        FROM (
          SELECT
            w.per, w.most, w.span, w.part, w.grace, w.totals, n.n, s.times, s.times[n.n] AS last
          FROM _read_windows(rates, windows) w
          CROSS JOIN LATERAL (SELECT cardinality(w.times) AS n) n
          CROSS JOIN LATERAL (
            SELECT CASE
                WHEN w.times[n.n] > t + interval '10 seconds'
                  THEN '{-infinity}' || ARRAY(SELECT least(e, t) FROM unnest(w.times[2:]) e)
                ELSE w.times
              END AS times
            OFFSET 0) s
          OFFSET 0) c
        OFFSET 0) a
      OFFSET 0) x
    OFFSET 0) y;
END;

-- Counts so many starts of keys with a rate; NULL: none, but jobs were made ready for all places
-- that are free, 10,000 at most. Then says when there is a place for which no job was made ready,
-- and tells the promoters. The caller has locked the states.
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
    SET
      windows = x.windows, counts_until = x.counts_until, offered = x.offered, next_at = x.next_at
    FROM (
      SELECT k.key, a.windows, a.counts_until, p.offered, n.at AS next_at
      FROM unnest(keys, starts) k(key, starts)
      JOIN limits l ON l.name = _limit_name(k.key)
      JOIN limit_states o ON o.key = k.key
      CROSS JOIN LATERAL _add_starts(l.rates, o.windows, coalesce(k.starts, 0), t) a
      CROSS JOIN LATERAL (
        SELECT least(a.free, greatest(0, o.offered + coalesce(-k.starts, 10000))) AS offered
        OFFSET 0) p
      LEFT JOIN LATERAL (
        SELECT greatest(d.at, t) AS at
        FROM _find_free_time(l.rates, a.windows, p.offered + 1) d
        WHERE EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = k.key)) n ON true
      OFFSET 0) x
    WHERE s.key = x.key
      AND (s.windows, s.offered, s.next_at) IS DISTINCT FROM (x.windows, x.offered, x.next_at)
    RETURNING s.next_at)
  SELECT min(u.next_at) INTO due FROM u;
  IF due IS NOT NULL THEN PERFORM _wake_promoters(due, t); END IF;
END $$;
