-- after: alert_rule_list
-- Claims deliveries that are due for a minute, and returns them with all that a sender needs: it
-- sends each and calls _end_alert_delivery(). If it dies before, the delivery is due again after
-- that minute, and is sent again with the same id. `abilities` says what the sender can send: kinds
-- of routes, and command:NAME. What it cannot send it takes a minute later, so that the delivery
-- says why if no other sender can. Skips locked deliveries.
CREATE OR REPLACE FUNCTION _claim_alert_deliveries(
  abilities text[], max int DEFAULT 10, now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  id uuid,
  tries int,
  route text,
  kind text,
  target text,
  secret text,
  event text,
  message jsonb
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('_claim_alert_deliveries');
  RETURN QUERY
    WITH claimed AS (
      UPDATE alert_deliveries d
      SET due_at = t + interval '1 minute',
        tries = d.tries + 1
      WHERE d.id = ANY (ARRAY(
        SELECT x.id
        FROM _list_open_deliveries(abilities) l
        JOIN alert_deliveries x ON x.id = l.id
        WHERE l.due_at <= t
          AND x.ended_at IS NULL
          AND x.due_at <= t
        ORDER BY l.due_at
        LIMIT max
        FOR UPDATE OF x SKIP LOCKED))
      RETURNING d.id, d.tries, d.route, d.event, d.alert, d.created_at)
    SELECT
      c.id, c.tries, c.route, r.kind, r.target, r.secret, c.event,
      _write_alert_message(c.event, c.created_at, a)
    FROM claimed c
    LEFT JOIN alert_routes r ON r.name = c.route
    LEFT JOIN alerts a ON a.id = c.alert
    ORDER BY c.created_at;
END $$;

-- Lists what is to be sent, with the time from which on this sender may take it. The message that
-- an alert has cleared waits for the end of the message that it was raised.
CREATE OR REPLACE FUNCTION _list_open_deliveries(abilities text[])
RETURNS TABLE (id uuid, due_at timestamptz)
LANGUAGE sql STABLE AS $$
  SELECT
    d.id,
    CASE
      WHEN CASE r.kind WHEN 'command' THEN 'command:' || r.target ELSE r.kind END
        <> ALL (abilities) THEN d.due_at + interval '1 minute'
      ELSE d.due_at
    END
  FROM alert_deliveries d
  LEFT JOIN alert_routes r ON r.name = d.route
  WHERE d.ended_at IS NULL
    AND (
      d.event <> 'cleared'
      OR NOT EXISTS (
        SELECT
        FROM alert_deliveries y
        WHERE y.alert = d.alert
          AND y.route = d.route
          AND y.event = 'raised'
          AND y.ended_at IS NULL))
$$;

-- Returns what a receiver gets.
CREATE OR REPLACE FUNCTION _write_alert_message(event text, at timestamptz, a alerts)
RETURNS jsonb
LANGUAGE sql STABLE AS $$
  SELECT jsonb_build_object(
    'type', 'alert.' || event,
    'timestamp', at,
    'data', jsonb_build_object(
      'installation', (SELECT i.id FROM installation i),
      'alert', a.id,
      'rule', a.rule,
      'subject', a.subject,
      'tenant', a.tenant,
      'severity', a.severity,
      'since', a.since,
      'fired_at', a.fired_at,
      'cleared_at', a.cleared_at,
      'value', a.value,
      'above', a.above,
      'reason', coalesce(a.reason, 'this is a test of the route'),
      'help', (
        SELECT _write_alert_help(d.help, a.subject)
        FROM _alert_rule_defaults() d
        WHERE d.rule = a.rule),
      'detail', a.detail))
$$;

-- Notes how a try has ended: without an error it is delivered. Otherwise it is due again after 1 s,
-- 2 s, 4 s and so on up to ten minutes, and is given up when it is a day old, or at once if
-- `is_hopeless`. Another sender that has claimed it since is not disturbed by a failure. Returns
-- the state; NULL if it had ended, or another sender has it.
CREATE OR REPLACE FUNCTION _end_alert_delivery(
  id uuid,
  tries int,
  error text DEFAULT NULL,
  is_hopeless boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  reason text := left(error, 500);
  reached text;
BEGIN
  PERFORM _check_shared_change('_end_alert_delivery');
  UPDATE alert_deliveries d
  SET state = x.state,
    ended_at = CASE WHEN x.state <> 'waiting' THEN t END,
    error = reason,
    due_at = t + least(600, power(2, least(d.tries, 20) - 1)) * interval '1 second'
  FROM (
    SELECT
      y.id,
      CASE
        WHEN error IS NULL THEN 'delivered'
        WHEN is_hopeless OR y.created_at <= t - interval '1 day' THEN 'given_up'
        ELSE 'waiting'
      END AS state
    FROM alert_deliveries y
    WHERE y.id = id) x
  WHERE d.id = x.id
    AND d.ended_at IS NULL
    AND (error IS NULL OR d.tries = tries)
  RETURNING d.state INTO reached;
  RETURN reached;
END $$;

-- Returns the seconds until this sender may take the next delivery, less than 0 if it is due; NULL
-- if there is none.
CREATE OR REPLACE FUNCTION _find_next_delivery(abilities text[], now timestamptz DEFAULT NULL)
RETURNS float8
LANGUAGE plpgsql STABLE AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  RETURN (
    SELECT extract(epoch FROM min(d.due_at) - t)
    FROM _list_open_deliveries(abilities) d);
END $$;

-- Notes that the clock of a node differs from that of the database. A node calls it only then.
CREATE OR REPLACE FUNCTION _report_clock_skew(
  epoch bigint, seconds float8, now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('_report_clock_skew');
  PERFORM _note_alert_event('clock_skew', n.name, abs(seconds), t)
  FROM nodes n
  WHERE n.epoch = epoch;
END $$;
