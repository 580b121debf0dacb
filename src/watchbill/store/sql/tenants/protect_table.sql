-- after: current_tenant
-- Row security limits each caller to the rows of its tenant. While it is off it costs nothing,
-- because no table has a policy. `watchbill db tenants enable` protects every table that
-- _list_tenant_tables() names. From then on the functions that make partitions protect each new
-- partition, and the migrator protects each new table.

-- Says whether the caller may see what belongs to a tenant. It is for tables that have no row
-- security.
CREATE OR REPLACE FUNCTION _sees_tenant(tenant text)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT NOT _has_row_security()
    OR sees_all_tenants()
    OR coalesce(_sees_tenant.tenant = current_tenant(), false)
$$;

-- Lets each caller see and write only the rows of its tenant in this table. Also FORCEs the policy
-- on the owner, because most functions run as the owner. Locks the table IN ACCESS EXCLUSIVE MODE.
CREATE OR REPLACE FUNCTION _protect_table(relation regclass, by_schedule boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  visible text := CASE
      WHEN by_schedule THEN '(SELECT _find_visible_tenant()) = ''''
        OR EXISTS (SELECT FROM schedules s WHERE s.id = schedule_id)'
      -- Uses only one subquery, because each one costs an enqueue several microseconds. The first
      -- WHEN is for workers, whose statements have many rows.
      ELSE 'CASE (SELECT _find_visible_tenant())
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

-- Gives a new partition the policy of its parent, if the parent has one. PostgreSQL does not apply
-- the parent's policy when a partition is read by its own name.
CREATE OR REPLACE FUNCTION _protect_partition(parent regclass, partition regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF (SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = parent) THEN
    PERFORM _protect_table(partition, parent = 'slots'::regclass);
  END IF;
END $$;
