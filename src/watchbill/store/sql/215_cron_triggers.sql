-- From a part of a schedule to its instants: the policies for clock changes, @every, @reboot, E and S modifiers.

-- Without the modifier. Readings: 0 by the clock, 1 by elapsed time, 2 by the clock but for skipped times, 3 both of the first two.
CREATE OR REPLACE FUNCTION cron_trigger_after(c bigint[], b int, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  give_up bigint := greatest(t, 4102444800) + 12622780800;
  found bigint;
  other bigint;
BEGIN
  IF c[b + 1] = 2 THEN RETURN NULL; END IF;              -- @reboot
  IF c[b + 1] = 1 THEN RETURN cron_every_after(c, b, t); END IF;
  CASE c[b + 4]
    WHEN 3 THEN
      RETURN least(cron_after(c, b, t, 0), cron_after(c, b, t, 1));
    WHEN 2 THEN
      found := cron_after(c, b, t, 0);
      WHILE NOT cron_shows(c, b, found) LOOP
        IF c[b + 22] = 0 AND found > give_up THEN RETURN NULL; END IF;
        found := cron_after(c, b, found, 0);
      END LOOP;
      RETURN found;
    ELSE
      RETURN cron_after(c, b, t, c[b + 4]::int);
  END CASE;
END $$;

CREATE OR REPLACE FUNCTION cron_trigger_before(c bigint[], b int, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  origin bigint := t;
  found bigint;
BEGIN
  IF c[b + 1] = 2 THEN RETURN NULL; END IF;
  IF c[b + 1] = 1 THEN RETURN cron_every_before(c, b, t); END IF;
  CASE c[b + 4]
    WHEN 3 THEN
      RETURN greatest(cron_before(c, b, t, 0), cron_before(c, b, t, 1));
    WHEN 2 THEN
      found := cron_before(c, b, t, 0);
      WHILE NOT cron_shows(c, b, found) LOOP
        IF c[b + 22] = 0 AND found > 16725225600 AND origin - found > 12622780800 THEN
          found := found - ((found - 16725225600) / 12622780800 + 1) * 12622780800;
        END IF;
        found := cron_before(c, b, found, 0);
      END LOOP;
      RETURN found;
    ELSE
      RETURN cron_before(c, b, t, c[b + 4]::int);
  END CASE;
END $$;

-- Whether the clock shows a time of the fields at an instant; NULL for no instant.
CREATE OR REPLACE FUNCTION cron_shows(c bigint[], b int, t bigint) RETURNS boolean LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  wall bigint := t + (zone_segment(c[b + 2]::int, t))[3];
BEGIN
  RETURN cron_after(c, b, wall - 1, -1) IS NOT DISTINCT FROM wall;
END $$;

-- @every: a grid of instants. With WOY: those of them that lie in the weeks, found by leaping from one set to the other.
CREATE OR REPLACE FUNCTION cron_every_after(c bigint[], b int, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  period bigint := c[b + 24];
  anchor bigint := c[b + 25];
  at bigint := t + period - cron_modulo(t - anchor, period);
  shared bigint;
BEGIN
  IF c[b + 14] = 0 THEN RETURN at; END IF;
  WHILE at <= 253402300799 LOOP
    shared := cron_after(c, b, at - 1, 1);
    IF shared IS NULL OR shared = at THEN RETURN shared; END IF;
    at := shared - 1 + period - cron_modulo(shared - 1 - anchor, period);
  END LOOP;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION cron_every_before(c bigint[], b int, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  period bigint := c[b + 24];
  anchor bigint := c[b + 25];
  at bigint := t - 1 - cron_modulo(t - 1 - anchor, period);
  shared bigint;
BEGIN
  IF c[b + 14] = 0 THEN RETURN at; END IF;
  WHILE at >= -62135596800 LOOP
    shared := cron_before(c, b, at + 1, 1);
    IF shared IS NULL OR shared = at THEN RETURN shared; END IF;
    at := shared - cron_modulo(shared - anchor, period);
  END LOOP;
  RETURN NULL;
END $$;

-- The remainder that is never negative. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_modulo(a bigint, n bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (a % n + n) % n;
