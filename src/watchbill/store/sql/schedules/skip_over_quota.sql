-- after: tick
-- Skips slots whose job would exceed a quota of its tenant. The slots are recorded with the reason,
-- and the next slot fires if the quota has room again. Once a tenant is refused, its later slots of
-- this tick are skipped too, so that no job waits for a job that was not made.
CREATE OR REPLACE FUNCTION _skip_slots_over_quota(firings firing[])
RETURNS firing[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  n int;
  f firing;
  refused jsonb := '{}'; -- tenant -> reason
BEGIN
  FOR n IN
    SELECT x.ordinality
    FROM unnest(firings) WITH ORDINALITY x
    WHERE x.job_id IS NOT NULL
      AND _may_have_quota(x.tenant)
    ORDER BY x.slot, x.schedule_id
  LOOP
    f := firings[n];
    IF NOT refused ? f.tenant THEN
      refused := refused || _try_to_take_quota(f.tenant, f.payload);
    END IF;
    IF refused ? f.tenant THEN
      f.outcome := 'skipped';
      f.reason := refused->>f.tenant;
      f.job_id := NULL;
      firings[n] := f;
    END IF;
  END LOOP;
  RETURN firings;
END $$;

-- Counts a job against the quotas of its tenant. If one of them is full, returns the reason under
-- the name of the tenant instead of raising.
CREATE OR REPLACE FUNCTION _try_to_take_quota(tenant text, payload jsonb)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  reason text;
BEGIN
  PERFORM _take_quota(tenant, 1, _payload_size(payload, NULL));
  RETURN '{}';
EXCEPTION WHEN SQLSTATE 'WB015' OR SQLSTATE 'WB016' OR SQLSTATE 'WB008' THEN
  GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT;
  RETURN jsonb_build_object(tenant, reason);
END $$;
