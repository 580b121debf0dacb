-- Lists the ids of the jobs that depend on this job, or on which it depends, directly or through
-- other jobs: the nearest first, at most `max`.
CREATE OR REPLACE FUNCTION dependency_graph(id uuid, max int DEFAULT 1000)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  members uuid[] := ARRAY[id];
  -- NULL if the caller cannot see the job: then it must not see the ids of related jobs either.
  tenant text := (_named_job(id)).tenant;
  newest uuid[] := members;
BEGIN
  WHILE cardinality(newest) > 0 AND cardinality(members) < max LOOP
    newest := ARRAY(
      SELECT x.id
      FROM (
        SELECT d.parent AS id
        FROM dependencies d
        WHERE d.child = ANY (newest)
          AND d.tenant = tenant
        UNION
        SELECT d.child
        FROM dependencies d
        WHERE d.parent = ANY (newest)
          AND d.tenant = tenant
        EXCEPT
        SELECT unnest(members)) x
      ORDER BY 1
      LIMIT max - cardinality(members));
    members := members || newest;
  END LOOP;
  RETURN QUERY SELECT unnest(members);
END $$;
