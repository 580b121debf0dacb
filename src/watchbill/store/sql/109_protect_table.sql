-- Row security. Off, it costs nothing: no table has a policy. `watchbill db tenants enable`
-- protects every table of _tenant_tables(). From then on the functions that make partitions protect
-- each of them, and the migrator protects new tables.

-- Whether the caller may see what belongs to a tenant in a table without row security.
CREATE OR REPLACE FUNCTION _sees_tenant(tenant text)
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT NOT _has_row_security()
    OR sees_all_tenants()
    OR coalesce(_sees_tenant.tenant = current_tenant(), false)
$$;

-- Lets each caller see and write only the rows of its tenant in this table. FORCE, because most
-- functions run as the owner. Locks the table IN ACCESS EXCLUSIVE MODE.
CREATE OR REPLACE FUNCTION _protect_table(relation regclass, by_schedule boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  visible text := CASE
      WHEN by_schedule THEN '(SELECT _caller_scope()) = ''''
        OR EXISTS (SELECT FROM schedules s WHERE s.id = schedule_id)'
      -- One subquery, because each one costs an enqueue several microseconds. First the case of
      -- workers, whose statements have many rows.
      ELSE 'CASE (SELECT _caller_scope())
          WHEN '''' THEN true
          WHEN tenant THEN true
          ELSE false
        END'
    END;
BEGIN
  EXECUTE format('DROP POLICY IF EXISTS tenant_rows ON %s', relation);
  EXECUTE format(
    'CREATE POLICY tenant_rows ON %s USING (%s) WITH CHECK (%s OR _refuse_tenant(%s))',
    relation, visible, visible, CASE WHEN by_schedule THEN 'NULL' ELSE 'tenant' END);
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', relation);
END $$;

-- Gives a new partition the policy of its parent, if that has one. Row security is not inherited: a
-- partition that is read by its own name has only its own.
CREATE OR REPLACE FUNCTION _protect_partition(parent regclass, partition regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF (SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = parent) THEN
    PERFORM _protect_table(partition, parent = 'slots'::regclass);
  END IF;
END $$;
