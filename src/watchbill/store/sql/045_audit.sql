-- Records what an operator did. The actor is the setting watchbill.actor, or the session's user. As
-- everyone can set that to any name, the column login_role records the session's user beside it.
CREATE OR REPLACE FUNCTION _audit(
  action text,
  subject text,
  tenant text,
  detail jsonb,
  now timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  INSERT INTO audit (at, actor, action, subject, tenant, detail)
  VALUES (
    coalesce(_audit.now, _clock()),
    coalesce(nullif(current_setting('watchbill.actor', true), ''), session_user),
    _audit.action, _audit.subject, _audit.tenant, _audit.detail);
END $$;
