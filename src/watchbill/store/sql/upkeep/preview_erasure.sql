-- Lists what erase_tenant() would delete now. Changes nothing. Reads the whole history, so it may
-- take minutes.
CREATE OR REPLACE FUNCTION preview_erasure(tenant text)
RETURNS TABLE (what text, row_count bigint)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_sees_all_tenants(tenant);
  RETURN QUERY
    SELECT c.what, c.row_count
    FROM (
      SELECT 'jobs', count(*) FROM jobs x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'finished_jobs', count(*)
      FROM finished_jobs x
      WHERE x.tenant = tenant
      UNION ALL
      SELECT 'attempts', count(*) FROM attempts x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'job_logs', count(*) FROM job_logs x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'schedules', count(*) FROM schedules x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'slots', count(*)
      FROM slots x
      JOIN schedules s ON s.id = x.schedule_id
      WHERE s.tenant = tenant
      UNION ALL
      SELECT 'idempotency', count(*) FROM idempotency x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'uniques', count(*) FROM uniques x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'connector_endpoints', count(*)
      FROM connector_endpoints x
      WHERE x.tenant = tenant
      UNION ALL
      SELECT 'audit', count(*) FROM audit x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'bulk_operations', count(*) FROM bulk_operations x WHERE x.tenant = tenant
      UNION ALL
      SELECT 'quotas', count(*)
      FROM tenants x
      WHERE x.tenant = tenant) c(what, row_count)
    WHERE c.row_count > 0;
END $$;
