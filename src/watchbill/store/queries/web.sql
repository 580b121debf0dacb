-- These statements are sent by the dashboard and the HTTP API.

-- name: web_facts
-- Returns what decides in whose name the dashboard acts: the names of the group roles, whether rows
-- are kept apart by tenants, and of which groups the login is a member.
SELECT
  i.role_prefix,
  (SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = '{schema}.jobs'::regclass),
  session_user::text,
  ARRAY(
    SELECT k.kind
    FROM unnest('{{producer,worker,operator,reader}}'::text[]) k(kind)
    JOIN pg_roles g ON g.rolname = i.role_prefix || '_' || k.kind
    WHERE pg_has_role(session_user, g.oid, 'MEMBER'))
FROM {schema}.installation i
