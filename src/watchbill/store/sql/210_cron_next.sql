-- The instants of a schedule's fields: the next, the previous. Times are whole seconds since 1970; a *wall* is what a clock shows, counted as
-- if it were UTC. `reading` says how walls become instants: 0 by the clock (each once, a skipped one at the change), 1 by elapsed time (skipped
-- ones are lost, repeated ones fire in both passes), -1 not at all: walls in, walls out.
-- Both functions are all in one piece and do much in one expression, because a call costs as much as half of what they do, and a statement as
-- much as ten operators. Days are counted from 0000-03-01, 62162035200 seconds before 1970: see cron_month_days. 12622780800 seconds are the 400
-- years after which calendar and zones repeat, from 2100-01-01 (4102444800) on. bit_count(((m & -m) - 1)::bit(64)) is the lowest set bit of m,
-- 64 - position(B'1' IN m::bit(64)) the highest.

-- The least instant later than t: of the part at b, or of the whole schedule if b is NULL.
CREATE OR REPLACE FUNCTION cron_after(c bigint[], b int, t bigint, reading int) RETURNS bigint LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  latest bigint := 4611686018427387904;                  -- what is later than this must be looked at
  place int;                                             -- the zone
  resume bigint := t;                                    -- the instant whose segment counts
  origin bigint;
  segment bigint[];
  stop bigint := 4611686018427387904;
  shift bigint := 0;
  high bigint;
  wall bigint;
  second int;                                            -- of the day, then the time of day that was found
  day int;                                               -- since 0000-03-01, then of the year, then of the month, from 0
  first int;                                             -- day of the month
  year int;
  month int;
  length int;
  days bigint;
  rest bigint;
  tries int;
BEGIN
  IF c IS NULL OR t IS NULL THEN RETURN NULL; END IF;    -- not STRICT: the schema jcron has wrappers that would then not be inlined
  IF b IS NULL THEN
    IF c[26] > 1 OR c[1] > 0 OR c[4] > 1 OR c[23] > 0 OR t < -62135510400 OR t > 253402214399 THEN RETURN cron_next_within(c, t); END IF;
    b := 0;
    reading := c[4]::int;
    latest := 253402214400;
  END IF;
  place := c[b + 2]::int;
  IF place < 0 AND reading >= 0 THEN shift := -100000 - place; END IF;
  LOOP
    IF place > 0 AND reading >= 0 THEN
      segment := coalesce(zone_near(place, resume), zone_far_segment(place, resume));
      stop := segment[2];
      shift := segment[3];
      high := segment[4];
    END IF;
    wall := 62162035200 + CASE WHEN reading = 0 THEN greatest(t + shift, high - 1) ELSE t + shift END;
    second := (wall % 86400)::int;
    day := (wall / 86400)::int;
    year := (4 * day + 3) / 146097 * 100 + (((4 * day + 3) % 146097) | 3) / 1461;
    first := day;
    day := (((4 * day + 3) % 146097) | 3) % 1461 / 4;
    month := (5 * day + 2) / 153;
    first := first - day + (153 * month + 2) / 5;
    day := day - (153 * month + 2) / 5;
    tries := 0;
    LOOP
      IF (c[b + 8] >> month) & 1 = 1 AND (c[b + 22] = 0 OR cron_has_year(c, b, year + month / 10)) THEN
        length := CASE WHEN month < 11 THEN (153 * month + 155) / 5 - (153 * month + 2) / 5
          ELSE 365 * year + 365 + (year + 1) / 4 - (year + 1) / 100 + (year + 1) / 400 - first END;
        days := CASE WHEN c[b + 15] = 1 THEN cron_month_days(c, b, first, length)
          WHEN c[b + 11] = 0 THEN c[b + 9] & (c[b + 10] >> (first + 3) % 7) & ((1::bigint << length) - 1)
          ELSE (c[b + 9] | (c[b + 10] >> (first + 3) % 7)) & ((1::bigint << length) - 1) END;
        IF tries = 0 THEN
          EXIT WHEN second < c[b + 13] AND (days >> day) & 1 = 1;
          days := (days >> day + 1) << day + 1;
        END IF;
        IF days <> 0 THEN
          day := bit_count(((days & -days) - 1)::bit(64))::int;
          second := -1;
          EXIT;
        END IF;
      END IF;
      rest := c[b + 8] >> month + 1;
      IF rest <> 0 THEN
        month := month + 1 + bit_count(((rest & -rest) - 1)::bit(64))::int;
      ELSE
        year := year + 1;
        month := bit_count(((c[b + 8] & -c[b + 8]) - 1)::bit(64))::int;
      END IF;
      tries := tries + 1;
      IF tries > 12 THEN
        rest := cron_find_month(c, b, year * 12 + month, 1);
        days := 0;
        EXIT WHEN rest IS NULL;
        year := (rest / 12)::int;
        month := (rest % 12)::int;
      END IF;
      first := 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    END LOOP;

    IF days = 0 THEN
      wall := NULL;
    ELSE
      IF second < 0 THEN
        second := c[b + 12]::int;
      ELSE
        rest := CASE WHEN (c[b + 7] >> second / 3600) & (c[b + 6] >> second / 60 % 60) & 1 = 1 THEN c[b + 5] >> second % 60 + 1 ELSE 0 END;
        IF rest <> 0 THEN
          second := second + 1 + bit_count(((rest & -rest) - 1)::bit(64))::int;
        ELSE
          rest := CASE WHEN (c[b + 7] >> second / 3600) & 1 = 1 THEN c[b + 6] >> second / 60 % 60 + 1 ELSE 0 END;
          IF rest <> 0 THEN
            second := (second / 60 + 1 + bit_count(((rest & -rest) - 1)::bit(64))::int) * 60 + c[b + 12]::int % 60;
          ELSE
            rest := c[b + 7] >> second / 3600 + 1;
            second := (second / 3600 + 1 + bit_count(((rest & -rest) - 1)::bit(64))::int) * 3600 + c[b + 12]::int % 3600;
          END IF;
        END IF;
      END IF;
      wall := (first + day)::bigint * 86400 + second - 62162035200;
      IF wall - shift < stop AND wall - shift < latest THEN RETURN wall - shift; END IF;
      IF wall - shift < stop OR reading = 0 THEN
        wall := CASE WHEN wall - shift < stop THEN wall - shift ELSE zone_first(place, wall) END;
        IF wall < latest OR wall <= (cron_bounds(c))[2] THEN RETURN wall; END IF;
        RETURN NULL;
      END IF;
    END IF;

    -- By elapsed time, and nothing more in this segment: on with the one that holds the next candidate, but not through 400 years twice.
    IF stop - t <= 172800 THEN                           -- no clock was ever put back by more
      resume := stop;
    ELSIF wall IS NULL OR c[b + 22] = 0 AND wall > greatest(coalesce(origin, t), 4102444800) + 12622780800 THEN
      RETURN NULL;
    ELSE
      resume := zone_first(place, wall);
    END IF;
    origin := coalesce(origin, t);
    t := resume - 1;
  END LOOP;
END $$;

-- The greatest instant earlier than t, of the part at b.
CREATE OR REPLACE FUNCTION cron_before(c bigint[], b int, t bigint, reading int) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  place int := c[b + 2];
  origin bigint := t;
  segment bigint[];
  start bigint := -4611686018427387904;
  shift bigint := 0;
  high bigint;
  wall bigint;
  second int;
  day int;
  first int;
  year int;
  month int;
  length int;
  days bigint;
  rest bigint;
  tries int;
BEGIN
  IF place < 0 AND reading >= 0 THEN shift := -100000 - place; END IF;
  LOOP
    IF place > 0 AND reading >= 0 THEN
      segment := zone_segment(place, t - 1);
      start := segment[1];
      shift := segment[3];
      high := segment[4];
    END IF;
    wall := 62162035200 + CASE WHEN reading = 0 THEN greatest(t + shift, high) ELSE t + shift END;
    second := (wall % 86400)::int;
    day := (wall / 86400)::int;
    year := (4 * day + 3) / 146097 * 100 + (((4 * day + 3) % 146097) | 3) / 1461;
    first := day;
    day := (((4 * day + 3) % 146097) | 3) % 1461 / 4;
    month := (5 * day + 2) / 153;
    first := first - day + (153 * month + 2) / 5;
    day := day - (153 * month + 2) / 5;
    tries := 0;
    LOOP
      IF (c[b + 8] >> month) & 1 = 1 AND (c[b + 22] = 0 OR cron_has_year(c, b, year + month / 10)) THEN
        length := CASE WHEN month < 11 THEN (153 * month + 155) / 5 - (153 * month + 2) / 5
          ELSE 365 * year + 365 + (year + 1) / 4 - (year + 1) / 100 + (year + 1) / 400 - first END;
        days := CASE WHEN c[b + 15] = 1 THEN cron_month_days(c, b, first, length)
          WHEN c[b + 11] = 0 THEN c[b + 9] & (c[b + 10] >> (first + 3) % 7) & ((1::bigint << length) - 1)
          ELSE (c[b + 9] | (c[b + 10] >> (first + 3) % 7)) & ((1::bigint << length) - 1) END;
        IF tries = 0 THEN
          EXIT WHEN second > c[b + 12] AND (days >> day) & 1 = 1;
          days := days & ((1::bigint << day) - 1);
        END IF;
        IF days <> 0 THEN
          day := 64 - position(B'1' IN days::bit(64));
          second := -1;
          EXIT;
        END IF;
      END IF;
      rest := c[b + 8] & ((1::bigint << month) - 1);
      IF rest = 0 THEN
        year := year - 1;
        rest := c[b + 8];
      END IF;
      month := 64 - position(B'1' IN rest::bit(64));
      tries := tries + 1;
      days := 0;
      EXIT WHEN year < 0;
      IF tries > 12 THEN
        rest := cron_find_month(c, b, year * 12 + month, -1);
        EXIT WHEN rest IS NULL;
        year := (rest / 12)::int;
        month := (rest % 12)::int;
      END IF;
      first := 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    END LOOP;

    IF days = 0 THEN
      wall := NULL;
    ELSE
      IF second < 0 THEN
        second := c[b + 13]::int;
      ELSE
        second := second - 1;
        rest := CASE WHEN (c[b + 7] >> second / 3600) & (c[b + 6] >> second / 60 % 60) & 1 = 1 THEN c[b + 5] & ((2::bigint << second % 60) - 1) ELSE 0 END;
        IF rest <> 0 THEN
          second := second / 60 * 60 + 64 - position(B'1' IN rest::bit(64));
        ELSE
          rest := CASE WHEN (c[b + 7] >> second / 3600) & 1 = 1 THEN c[b + 6] & ((1::bigint << second / 60 % 60) - 1) ELSE 0 END;
          IF rest <> 0 THEN
            second := second / 3600 * 3600 + (64 - position(B'1' IN rest::bit(64))) * 60 + c[b + 13]::int % 60;
          ELSE
            rest := c[b + 7] & ((1::bigint << second / 3600) - 1);
            second := (64 - position(B'1' IN rest::bit(64))) * 3600 + c[b + 13]::int % 3600;
          END IF;
        END IF;
      END IF;
      wall := (first + day)::bigint * 86400 + second - 62162035200;
      IF reading = 0 AND place > 0 THEN RETURN zone_first(place, wall); END IF;
      IF wall - shift >= start THEN RETURN wall - shift; END IF;
    END IF;

    -- By elapsed time, and nothing more in this segment: back to one that may hold the next candidate, but not through 400 years twice.
    IF t - start <= 172800 THEN
      t := start;
    ELSIF wall IS NULL THEN
      RETURN NULL;
    ELSE
      t := least(start, zone_first(place, wall) + 172800);
    END IF;
    IF c[b + 22] = 0 AND t > 16725225600 AND origin - t > 12622780800 THEN
      t := t - ((t - 16725225600) / 12622780800 + 1) * 12622780800;
    END IF;
    IF t <= -62135683200 THEN RETURN NULL; END IF;
  END LOOP;
END $$;
