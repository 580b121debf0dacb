-- Invariants of the schema itself. A migration may be under way, so a second look decides.

-- name: public_calls_nothing
-- kind: E
-- says: PUBLIC may call none of our functions
SELECT 'function ' || p.oid::regprocedure, 'PUBLIC may call it', p.xmin::text
FROM pg_proc p
CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
WHERE p.pronamespace = (
    SELECT c.relnamespace FROM pg_class c WHERE c.oid = '{schema}.jobs'::regclass)
  AND a.grantee = 0
  AND a.privilege_type = 'EXECUTE'

-- name: row_security_is_complete
-- kind: E
-- says: if row security is on, every table with a tenant has its policy, forced upon the owner
SELECT
  'schema {schema}', 'row security is on, and these have no policy: ' || string_agg(
    t.relation::text, ', ' ORDER BY t.relation::text), NULL
FROM {schema}._list_tenant_tables() t
WHERE NOT t.is_protected
  AND {schema}._has_row_security()
HAVING count(*) > 0
