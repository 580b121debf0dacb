-- Returns the first line of a message, in which a mark stands for each part that differs from job
-- to job. Reads at most 2,000 characters, and cuts the result, not the message: a long id must not
-- move the place of the cut. PostgreSQL takes the longest alternative that matches at a place.
CREATE OR REPLACE FUNCTION _failure_pattern(message text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN left(
  regexp_replace(
    coalesce(substring(left(message, 2000) COLLATE "C" FROM '\S[^\r\n]*'), ''),
    -- quoted texts; an apostrophe inside a word quotes nothing
    '"[^"]*"|`[^`]*`|“[^”]*”|«[^»]*»|(?<![[:alnum:]])''[^'']*''(?![[:alnum:]])'
    -- mail addresses
    || '|[[:alnum:]._%+-]+@[[:alnum:].-]+'
    -- UUIDs, and other hexadecimal numbers of eight digits or more
    || '|[[:xdigit:]]{8}-([[:xdigit:]]{4}-){3}[[:xdigit:]]{12}'
    || '|(?<![[:alnum:]])(0x[[:xdigit:]]+|[[:xdigit:]]{8,})(?![[:alnum:]])'
    -- numbers, times and network addresses
    || '|((?<![[:alnum:]])[-+])?[0-9]+([.,:][0-9]+)*([eE][-+]?[0-9]+)?',
    '?', 'g'),
  500);

-- Computes the number of a group of failures from the type of the job, the class of the exception
-- and the first line of the message. Messages that differ only in numbers, ids, quoted texts or
-- addresses give the same number.
CREATE OR REPLACE FUNCTION failure_key(type text, exception text, message text)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (
  'x' || substr(
    md5(concat_ws(
      E'\x1f', coalesce(type, ''), coalesce(exception, ''), _failure_pattern(message))),
    1, 16))::bit(64)::bigint;

-- As failure_key(), of an error as it is stored with a job.
CREATE OR REPLACE FUNCTION _failure_of(type text, error jsonb)
RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN failure_key(type, coalesce(error->>'type', error->>'kind'), error->>'message');
