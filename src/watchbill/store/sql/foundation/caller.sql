-- Returns the role in whose name the session acts: the role that it has switched to with SET ROLE,
-- or the role that logged in. In a function that runs with the rights of the owner, this still
-- returns the caller. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION _caller()
RETURNS name
LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('role'), 'none'), session_user)::name;
