-- Lists what operators did, newest first, starting after the row `before`. `subject` is a kind and
-- a name, such as `queue mail`; with a star at its end, the beginning of one. Reads the index of
-- the subject or that of the time, and locks nothing.
CREATE OR REPLACE FUNCTION audit_list(
  subject text DEFAULT NULL,
  actor text DEFAULT NULL,
  action text DEFAULT NULL,
  tenant text DEFAULT NULL,
  since timestamptz DEFAULT NULL,
  before bigint DEFAULT NULL,
  max int DEFAULT 100
)
RETURNS SETOF audit
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    SELECT a.*
    FROM audit a
    WHERE (subject IS NULL
        OR CASE
          WHEN subject LIKE '%*' THEN starts_with(a.subject, left(subject, -1))
          ELSE a.subject = subject
        END)
      AND (actor IS NULL OR a.actor = actor)
      AND (action IS NULL OR a.action = action)
      AND (tenant IS NULL OR a.tenant = tenant)
      AND (since IS NULL OR a.at >= since)
      AND (before IS NULL
        OR (a.at, a.id) < (SELECT x.at, x.id FROM audit x WHERE x.id = before))
    ORDER BY a.at DESC, a.id DESC
    LIMIT greatest(max, 0);
END $$;
