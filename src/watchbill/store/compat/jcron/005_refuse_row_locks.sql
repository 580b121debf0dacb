-- Has one row, which the views with UNION join. PostgreSQL silently ignores FOR UPDATE on a UNION.
-- But it refuses to lock rows of a materialized view, with an error that contains the name of that
-- view: here the function to call. PUBLIC may read it, because the views read it with the rights of
-- their caller.
CREATE MATERIALIZED VIEW @facade@.@prefix@claim_next_job_in_place_of_for_update AS
SELECT 1 AS one;
-- Tells the planner that the condition `one = 1` has one row.
CREATE UNIQUE INDEX ON @facade@.@prefix@claim_next_job_in_place_of_for_update (one);
GRANT SELECT ON @facade@.@prefix@claim_next_job_in_place_of_for_update TO PUBLIC;
