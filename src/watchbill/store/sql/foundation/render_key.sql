-- Replaces the parameters of a format such as 'account:{account}' with values from the payload and
-- the tenant of a job; {{ and }} become single braces. If the payload lacks a parameter, returns
-- `or_else`, or raises if `or_else` is NULL. `option` names the format in the error.
CREATE OR REPLACE FUNCTION _render_key(
  format text, payload jsonb, tenant text, type text, option text, or_else text DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  rendered text := '';
  part text;
  name text;
BEGIN
  FOR part IN
    SELECT m[1]
    FROM regexp_matches(format, '(\{\{|\}\}|\{[^{}]*\}|[^{}]+|[{}])', 'g') m
  LOOP
    IF part IN ('{', '}') THEN
      PERFORM _refuse_job(
        type,
        pg_catalog.format('%s=%L has a single brace: write {{ or }} for a brace', option,
          format));
    END IF;
    name := trim(BOTH '{}' FROM part);
    rendered := rendered || CASE
        WHEN part IN ('{{', '}}') THEN left(part, 1)
        WHEN NOT starts_with(part, '{') THEN part
        WHEN name = 'tenant' THEN tenant
        WHEN payload ? name THEN coalesce(payload->>name, 'null')
      END;
    IF rendered IS NULL THEN
      IF or_else IS NOT NULL THEN RETURN or_else; END IF;
      PERFORM _refuse_job(
        type,
        pg_catalog.format('%s=%L needs the parameter %L, which the payload lacks', option,
          format, name));
    END IF;
  END LOOP;
  IF octet_length(rendered) > 1000 THEN
    PERFORM _refuse_job(
      type,
      pg_catalog.format('%s makes a key of %s bytes, the limit is 1000', option,
        octet_length(rendered)));
  END IF;
  RETURN rendered;
END $$;
