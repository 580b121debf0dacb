-- Raises if the jobs of a tenant are in another cell, or on their way there. The DETAIL is JSON,
-- with the cell if the tenant has arrived in it. Enqueues call this only if the filter of quotas
-- says that the tenant may have one, so that it costs others nothing.
CREATE OR REPLACE FUNCTION _refuse_moved(tenant text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  m tenant_moves;
BEGIN
  SELECT * INTO m FROM tenant_moves x WHERE x.tenant = tenant AND x.state <> 'arrived';
  IF NOT FOUND THEN RETURN; END IF;
  RAISE EXCEPTION '%', CASE m.state
      WHEN 'moved' THEN format('tenant %L has moved to cell %s', tenant, m.cell)
      WHEN 'arriving' THEN format('tenant %L is on its way here from cell %s', tenant, m.cell)
      ELSE format('tenant %L is on its way to cell %s', tenant, m.cell)
    END
    USING ERRCODE = 'WB016',
      DETAIL = jsonb_build_object(
        'tenant', tenant, 'cell', CASE WHEN m.state = 'moved' THEN m.cell END),
      HINT = CASE m.state
        WHEN 'moved' THEN 'send its jobs there'
        ELSE 'try again in a moment; `watchbill cells move` continues a move that was interrupted'
      END;
END $$;
