-- Lists the tables whose rows belong to tenants, partitions included. With `by_schedule` the rows
-- have no column `tenant`, and belong to the tenant of their schedule.
CREATE OR REPLACE FUNCTION _list_tenant_tables()
RETURNS TABLE (relation regclass, by_schedule boolean, is_protected boolean)
LANGUAGE sql STABLE AS $$
  SELECT
    c.oid::regclass,
    s.relid IS NOT NULL,
    c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (
      SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'tenant_rows')
  FROM pg_class c
  LEFT JOIN pg_partition_tree('slots') s ON s.relid = c.oid
  WHERE c.relnamespace = (SELECT j.relnamespace FROM pg_class j WHERE j.oid = 'jobs'::regclass)
    AND c.relkind IN ('r', 'p')
    AND c.oid <> 'tenant_roles'::regclass
    AND (
      s.relid IS NOT NULL
      OR EXISTS (
        SELECT
        FROM pg_attribute a
        WHERE a.attrelid = c.oid
          AND a.attname = 'tenant'
          AND NOT a.attisdropped))
  ORDER BY c.relkind DESC, c.relname
$$;

-- Removes from a table what _protect_table() has added.
CREATE OR REPLACE FUNCTION _unprotect_table(relation regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  EXECUTE format(
    'ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY', relation);
  EXECUTE format('DROP POLICY IF EXISTS tenant_rows ON %s', relation);
END $$;

-- Turns the security barrier of the views on or off. Without the barrier, PostgreSQL may evaluate a
-- condition of the reader's query on rows that the view does not show, and so reveal them.
CREATE OR REPLACE FUNCTION _set_view_security_barriers(value boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  names text[] :=
    '{job,running_job,attempt,step,waiting_step,schedule,timer,slot,overdue}';
  name text;
BEGIN
  FOREACH name IN ARRAY names LOOP
    EXECUTE format('ALTER VIEW %I SET (security_barrier = %s)', name, value);
  END LOOP;
END $$;

-- Protects the tables that a migration has made while row security is on.
CREATE OR REPLACE FUNCTION _protect_new_tables()
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF NOT _has_row_security() THEN RETURN; END IF;
  PERFORM _protect_table(t.relation, t.by_schedule)
  FROM _list_tenant_tables() t
  WHERE NOT t.is_protected;
  PERFORM _set_view_security_barriers(true);
END $$;
