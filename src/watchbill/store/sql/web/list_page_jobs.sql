-- What a list shows of these jobs beside what job_page() returns: the payload if its text has at
-- most `longest` bytes, how long it is, the group of failures of the last error, and how many
-- attempts have failed like that. Locks nothing.
CREATE OR REPLACE FUNCTION _list_page_jobs(ids uuid[], longest int DEFAULT 4000)
RETURNS TABLE (
  id uuid,
  seq bigint,
  payload jsonb,
  size int,
  failure bigint,
  alike bigint
)
LANGUAGE sql STABLE AS $$
  SELECT
    j.id, j.seq, CASE WHEN t.size <= _list_page_jobs.longest THEN j.payload END, t.size, f.failure,
    g.attempts
  FROM unnest(_list_page_jobs.ids) x(id)
  CROSS JOIN LATERAL job_by_id(x.id) j
  CROSS JOIN LATERAL (SELECT octet_length(j.payload::text)) t(size)
  LEFT JOIN LATERAL (SELECT _failure_of(j.type, j.error) WHERE j.error IS NOT NULL) f(failure)
    ON true
  LEFT JOIN failure_groups g ON g.failure = f.failure AND g.tenant = j.tenant
$$;
