-- These statements are about tenants and row security.

-- name: tenant_tables
SELECT relation::text, is_protected FROM {schema}._list_tenant_tables()

-- name: schema_owner
SELECT r.rolname::text, r.rolsuper OR r.rolbypassrls
FROM pg_namespace n
JOIN pg_roles r ON r.oid = n.nspowner
WHERE n.nspname = %s

-- name: protect_table
SELECT {schema}._protect_table(t.relation, t.by_schedule)
FROM {schema}._list_tenant_tables() t
WHERE t.relation = %s::regclass

-- name: unprotect_table
SELECT {schema}._unprotect_table(%s::regclass)

-- name: bind_role
INSERT INTO {schema}.tenant_roles (role, tenant)
SELECT r.oid, %s::text
FROM pg_roles r
WHERE r.rolname = %s
ON CONFLICT DO NOTHING

-- name: unbind_role
DELETE FROM {schema}.tenant_roles b
USING pg_roles r
WHERE r.oid = b.role
  AND r.rolname = %s
  AND b.tenant = %s

-- name: unbound_groups_of_role
-- The groups of these kinds to which a role belongs, although it is bound to a tenant.
SELECT g.rolname
FROM {schema}.installation i
CROSS JOIN unnest(%s::text[]) kind
JOIN pg_roles g ON g.rolname = i.role_prefix || '_' || kind
JOIN pg_roles r ON r.rolname = %s AND NOT r.rolsuper
WHERE pg_has_role(r.oid, g.oid, 'MEMBER')
  AND EXISTS (SELECT FROM {schema}.tenant_roles b WHERE b.role = r.oid)
ORDER BY 1

-- name: default_tenant_of_role
SELECT substr(c.setting, length('watchbill.tenant=') + 1)
FROM pg_db_role_setting s
JOIN pg_roles r ON r.oid = s.setrole
CROSS JOIN unnest(s.setconfig) c(setting)
WHERE r.rolname = %s
  AND s.setdatabase = 0
  AND starts_with(c.setting, 'watchbill.tenant=')

-- name: tenants_of_role
SELECT b.tenant
FROM {schema}.tenant_roles b
JOIN pg_roles r ON r.oid = b.role
WHERE r.rolname = %s
ORDER BY 1

-- name: bound_roles
SELECT b.role::text, array_agg(b.tenant ORDER BY b.tenant)
FROM {schema}.tenant_roles b
GROUP BY 1
ORDER BY 1

-- name: tenant_moves
SELECT tenant, state, cell FROM {schema}._list_tenant_moves(%s::text)

-- name: start_leaving
SELECT move, state FROM {schema}._start_leaving(%s::text, %s::text)

-- name: expect_tenant
SELECT {schema}._expect_tenant(%s::text, %s::text, %s::uuid)

-- name: read_leaving
SELECT {schema}._read_leaving(%s::text)

-- name: depart_tenant
SELECT {schema}._depart_tenant(%s::text)

-- name: read_moved_rows
SELECT rows::text, last FROM {schema}._read_moved_rows(%s::text, %s::uuid, %s::bigint, %s::int)

-- name: receive_rows
SELECT {schema}._receive_rows(%s::text, %s::uuid, %s::jsonb)

-- name: arrive_tenant
SELECT {schema}._arrive_tenant(%s::text, %s::uuid, %s::bigint)

-- name: finish_leaving
SELECT {schema}._finish_leaving(%s::text, %s::uuid)

-- name: end_arrival
SELECT {schema}._end_arrival(%s::text, %s::uuid)
