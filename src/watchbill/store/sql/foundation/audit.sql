-- Writes to the table audit what an operator did. The actor is the setting watchbill.actor, or the
-- session's user. Every session can set watchbill.actor to any name, so the column login_role
-- records the session's user as well.
CREATE OR REPLACE FUNCTION _audit(
  action text, subject text, tenant text, detail jsonb, t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO audit (at, actor, action, subject, tenant, detail)
  VALUES (
    t,
    coalesce(nullif(current_setting('watchbill.actor', true), ''), session_user),
    action, subject, tenant, detail);
END $$;
