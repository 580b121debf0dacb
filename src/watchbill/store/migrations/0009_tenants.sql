-- Tenants: see docs/explanation/security.md.

-- Roles that may act for these tenants only. A number, not a name: it survives a rename of the
-- role.
CREATE TABLE tenant_roles (
  role regrole NOT NULL,
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  PRIMARY KEY (role, tenant)
);
