-- Creates or replaces a route, to which alerts are sent. `target` of a webhook is its address, or a
-- reference to it (env:NAME or file:PATH); of a Slack-compatible hook a reference, because such an
-- address is a secret; of mail the addresses, separated by commas; of a command its name in the
-- setting alert_commands of the workers, which has the command itself. `secret` is a reference to
-- the secret that signs webhooks. `matcher` says which alerts it takes. Only operators that see all
-- tenants may do this. A route that is not enabled gets nothing but tests: what it was still to
-- deliver is given up.
CREATE OR REPLACE FUNCTION set_alert_route(
  name text,
  kind text,
  target text DEFAULT NULL,
  secret text DEFAULT NULL,
  matcher jsonb DEFAULT '{}',
  is_enabled boolean DEFAULT true,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('set_alert_route');
  PERFORM _check_alert_route(
    set_alert_route.name, set_alert_route.kind, set_alert_route.target, set_alert_route.secret);
  PERFORM _check_alert_matcher(set_alert_route.matcher);
  INSERT INTO alert_routes AS r (
    name, kind, target, secret, matcher, is_enabled, changed_by, changed_at)
  VALUES (
    set_alert_route.name, set_alert_route.kind, set_alert_route.target, set_alert_route.secret,
    set_alert_route.matcher, set_alert_route.is_enabled, _actor(), t)
  ON CONFLICT (name) DO UPDATE
  SET kind = EXCLUDED.kind,
    target = EXCLUDED.target,
    secret = EXCLUDED.secret,
    matcher = EXCLUDED.matcher,
    is_enabled = EXCLUDED.is_enabled,
    changed_by = EXCLUDED.changed_by,
    changed_at = EXCLUDED.changed_at;
  IF NOT set_alert_route.is_enabled THEN
    UPDATE alert_deliveries d
    SET state = 'given_up', ended_at = t, error = 'the route was disabled'
    WHERE d.route = set_alert_route.name
      AND d.event <> 'test'
      AND d.ended_at IS NULL;
  END IF;
  PERFORM _audit(
    'set_alert_route', 'route ' || set_alert_route.name, NULL,
    jsonb_build_object(
      'kind', set_alert_route.kind, 'matcher', set_alert_route.matcher,
      'is_enabled', set_alert_route.is_enabled),
    t);
END $$;

-- Raises unless a route can be like this.
CREATE OR REPLACE FUNCTION _check_alert_route(name text, kind text, target text, secret text)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  wrong text := CASE
      WHEN (name ~ '^[A-Za-z0-9._-]{1,100}$') IS NOT TRUE THEN
        'name is invalid: give up to 100 letters, digits and characters of ._-'
      WHEN (kind IN ('webhook', 'slack', 'mail', 'command', 'log')) IS NOT TRUE THEN
        'kind is invalid: give webhook, slack, mail, command or log'
      WHEN kind = 'log' AND target IS NOT NULL THEN 'target is invalid: a log has none'
      WHEN kind <> 'log' AND (length(target) BETWEEN 1 AND 2000) IS NOT TRUE THEN
        'target is invalid: give an address, or the name of a command'
      WHEN kind = 'webhook' AND target !~ '^(https?://[^[:space:]]+|(env|file):.+)$' THEN
        'target is invalid: give an address with http:// or https://, or a reference to one, '
        'env:NAME or file:PATH'
      WHEN kind = 'slack' AND target !~ '^(env|file):.+$' THEN
        'target is invalid: such an address is a secret, so give a reference to it, env:NAME or '
        'file:PATH'
      WHEN kind = 'mail'
        AND (SELECT NOT bool_and(a ~ '^[^[:space:]@]+@[^[:space:]@]+$')
          FROM regexp_split_to_table(target, ', ?') a)
        THEN 'target is invalid: give mail addresses, separated by commas'
      WHEN kind = 'command' AND target !~ '^[A-Za-z0-9._-]{1,100}$' THEN
        'target is invalid: give the name of an entry of the setting alert_commands'
      WHEN secret IS NOT NULL AND kind <> 'webhook' THEN
        'secret is invalid: only a webhook has one'
      WHEN secret !~ '^(env|file):.+$' THEN
        'secret is invalid: give a reference to it, env:NAME or file:PATH'
    END;
BEGIN
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION '%', split_part(wrong, ': ', 1)
      USING ERRCODE = 'WB003', HINT = substr(wrong, position(': ' IN wrong) + 2);
  END IF;
END $$;
