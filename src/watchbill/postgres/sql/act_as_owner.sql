-- If the session's role is a member of the role that owns the schema, migrates as that owner, so
-- that it also owns what is new.
SELECT set_config('role', r.rolname, true)
FROM pg_namespace n
JOIN pg_roles r ON r.oid = n.nspowner
WHERE n.nspname = {schema}
  AND r.rolname <> current_user
  AND NOT starts_with(r.rolname, 'pg_')
  AND pg_has_role(r.oid, 'MEMBER');
