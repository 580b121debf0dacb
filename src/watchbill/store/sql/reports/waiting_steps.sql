-- after: steps_view
-- Lists the steps in which suspended jobs wait, the oldest first: those that wait for this signal,
-- or all of them.
CREATE OR REPLACE FUNCTION waiting_steps(
  signal text DEFAULT NULL,
  tenant text DEFAULT NULL,
  max int DEFAULT 50
)
RETURNS SETOF waiting_step
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    SELECT *
    FROM waiting_step w
    WHERE (signal IS NULL OR signal = ANY (w.signals))
      AND (tenant IS NULL OR w.tenant = tenant)
    ORDER BY w.since, w.job_id, w.seq
    LIMIT max;
END $$;
