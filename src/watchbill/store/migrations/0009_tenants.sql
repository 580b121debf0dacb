-- Creates the table that binds roles to tenants: see docs/explanation/security.md.

-- Lists the roles that may act for certain tenants only. A role is stored by its number, which
-- survives a rename.
CREATE TABLE tenant_roles (
  role regrole NOT NULL,
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  PRIMARY KEY (role, tenant)
);
