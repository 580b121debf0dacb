-- Lists samples of the backlog, the newest last: how many unfinished jobs there were, by what they
-- waited for. With `since` those since then, otherwise the newest sample only. `is_estimate` says
-- that the table of jobs was too large to be counted. A caller that sees one tenant gets only that
-- tenant's.
CREATE OR REPLACE FUNCTION sample_list(
  dimension text DEFAULT 'all',
  since timestamptz DEFAULT NULL,
  max int DEFAULT 10000
)
RETURNS TABLE (
  at timestamptz,
  name text,
  running bigint,
  ready bigint,
  scheduled bigint,
  retrying bigint,
  limited bigint,
  paused bigint,
  unsupported bigint,
  unmatched bigint,
  blocked bigint,
  oldest timestamptz,
  is_estimate boolean
)
LANGUAGE sql STABLE AS $$
  SELECT
    s.at, s.name, s.running, s.ready, s.scheduled, s.retrying, s.limited, s.paused, s.unsupported,
    s.unmatched, s.blocked, s.oldest, s.is_estimate
  FROM samples s
  WHERE s.dimension = sample_list.dimension
    AND s.at >= coalesce(sample_list.since, (SELECT max(x.at) FROM samples x))
  ORDER BY s.at, s.name
  LIMIT sample_list.max
$$;

-- Returns when the newest sample of this dimension was taken that the caller sees. Asks one grain
-- after the other, because the index begins with it.
CREATE OR REPLACE FUNCTION _find_last_sample(dimension text)
RETURNS timestamptz
LANGUAGE sql STABLE AS $$
  SELECT max((
    SELECT s.at
    FROM samples s
    WHERE s.grain = g.grain
      AND s.dimension = _find_last_sample.dimension
    ORDER BY s.at DESC
    LIMIT 1))
  FROM unnest('{ten_seconds,minute,hour}'::text[]) g(grain)
$$;
