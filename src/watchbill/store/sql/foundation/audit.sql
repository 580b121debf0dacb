-- Writes to the table audit what an operator did. Every session can give _actor() any name, so the
-- column login_role records the session's user as well.
CREATE OR REPLACE FUNCTION _audit(
  action text, subject text, tenant text, detail jsonb, t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO audit (at, actor, action, subject, tenant, detail)
  VALUES (t, _actor(), action, subject, tenant, detail);
END $$;
