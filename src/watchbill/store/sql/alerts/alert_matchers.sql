-- Says whether an alert fits a matcher: an object with some of the fields rule, subject, severity
-- and tenant. Each has a pattern, or several of which one must fit; `*` stands for any text. An
-- empty matcher fits every alert.
CREATE OR REPLACE FUNCTION _matches_alert(
  matcher jsonb, rule text, subject text, severity text, tenant text
)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT bool_and(EXISTS (
    SELECT
    FROM jsonb_array_elements_text(
      CASE jsonb_typeof(m.value) WHEN 'array' THEN m.value ELSE jsonb_build_array(m.value) END)
      p(pattern)
    WHERE CASE m.key
        WHEN 'rule' THEN rule
        WHEN 'subject' THEN subject
        WHEN 'severity' THEN severity
        WHEN 'tenant' THEN tenant
      END LIKE replace(
        replace(replace(replace(p.pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')))
    IS NOT FALSE
  FROM jsonb_each(matcher) m
$$;

CREATE OR REPLACE FUNCTION _check_alert_matcher(matcher jsonb)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  wrong text;
BEGIN
  IF matcher IS NULL OR jsonb_typeof(matcher) <> 'object' THEN
    wrong := 'it is not an object';
  ELSIF length(matcher::text) > 4000 THEN
    wrong := 'it has more than 4000 characters';
  ELSE
    SELECT CASE
        WHEN m.key IN ('rule', 'subject', 'severity', 'tenant')
          THEN format('the field %s has no text', quote_literal(m.key))
        ELSE format('there is no field %s', quote_literal(m.key))
      END
    INTO wrong
    FROM jsonb_each(matcher) m
    WHERE m.key NOT IN ('rule', 'subject', 'severity', 'tenant')
      OR CASE jsonb_typeof(m.value)
          WHEN 'string' THEN false
          WHEN 'array' THEN m.value = '[]' OR EXISTS (
            SELECT FROM jsonb_array_elements(m.value) e WHERE jsonb_typeof(e) <> 'string')
          ELSE true
        END
    LIMIT 1;
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'matcher is invalid: %', wrong
      USING ERRCODE = 'WB003',
        HINT = 'give patterns for rule, subject, severity and tenant, such as {"rule": "backlog"}';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION _is_silenced(a alerts, t timestamptz)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT
    FROM silences s
    WHERE s.until > t
      AND _matches_alert(s.matcher, a.rule, a.subject, a.severity, a.tenant))
$$;
