-- The role in whose name the session acts: the one it has switched to, or the one that logged in. A
-- function that runs with the rights of the owner still sees its caller here. Inlined.
CREATE OR REPLACE FUNCTION _caller()
RETURNS name
LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('role'), 'none'), session_user)::name;
