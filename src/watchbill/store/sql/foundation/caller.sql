-- Returns the role in whose name the session acts: the role that it has switched to with SET ROLE,
-- or the role that logged in. In a function that runs with the rights of the owner, this still
-- returns the caller. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION _caller()
RETURNS name
LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('role'), 'none'), session_user)::name;

-- Returns who acts, for people to read: the setting watchbill.actor, or the session's user. Every
-- session can set it to any text; its first 500 characters count. PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION _actor()
RETURNS text
LANGUAGE sql STABLE
RETURN coalesce(nullif(left(current_setting('watchbill.actor', true), 500), ''), session_user);
