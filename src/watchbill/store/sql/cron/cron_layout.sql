-- Describes the array of numbers that a schedule is parsed into. A function for each number that is
-- read often gives it a name. PostgreSQL inlines these functions.
--
-- The array c, of the domain cron, has 27 numbers for each part of the pattern; a | separates two
-- parts. The numbers of a part are c[b + 1] to c[b + 27], where b = 0, 27, 54, ... is its offset:
--   1  kind: 0 fields, 1 @every, 2 @reboot, 3 a modifier alone
--   2  zone, see _parse_zone
--   3  1 if the schedule is simple: one part with fields, no modifier, reading 0 or 1
--   4  reading, see _cron_find_next_trigger
--   5  seconds, 6 minutes, 7 hours: bit n for the value n
--   8  months: bit 0 for March
--   9  days of the month: bit 0 for the 1st; all if not restricted
--  10  weekdays: bit 0 for Sunday, in each of six groups of 7 bits
--  11  1 if a day needs to match only one of the two day fields
--  12  the first time of a day, 13 the last one, in seconds
--  14  weeks of the year: bit n for week n; 0: all
--  15  1 if _cron_find_month_days must find the days, because of weeks or items like L and 2#1
--  16  L-n at bit 30 - n
--  17  L-nW at bit 30 - n
--  18  nW at bit n - 1
--  19  d#n at bit 7(n - 1) + d
--  20  d#-n at bit 7(5 - n) + d
--  21  dWk at bit 7(k - 1) + (d - 1) % 7
--  22  where in c the years begin, see _cron_parse_years; 0: all years
--  23  where in c the modifier begins, see _cron_apply_modifier; 0: none
--  24  period of @every in seconds, 25 its anchor
--  26  how many parts there are
--  27  the schedule's own zone
-- The modifiers and the years follow after the last part.
--
-- Constants of the engine:
--   -62135596800, 253402300799  the first and the last second of the years 1 to 9999 in UTC
--   -62135510400, 253402214399  a day inside of these: every zone shows a date of these years
--   62162035200                 seconds from 0000-03-01 to 1970-01-01
--   12622780800                 seconds of 400 years, after which calendar and zones repeat
--   4102444800, 16725225600     2100-01-01, from which on zones repeat, and 2500-01-01
--   172800                      seconds: no clock was ever put back by more
--   34630287489, 270549121      bit 0 of each of six, or five, groups of 7 bits
--   4611686018427387904         2^62, beyond all instants
--
-- A private function that only other cron functions call has neither a search path nor a PARALLEL
-- label, because its callers have both.

CREATE OR REPLACE FUNCTION _cron_part_is_every(c bigint[], b int) RETURNS boolean
LANGUAGE sql IMMUTABLE RETURN c[b + 1] = 1;

CREATE OR REPLACE FUNCTION _cron_part_is_reboot(c bigint[], b int) RETURNS boolean
LANGUAGE sql IMMUTABLE RETURN c[b + 1] = 2;

CREATE OR REPLACE FUNCTION _cron_part_is_modifier_alone(c bigint[], b int) RETURNS boolean
LANGUAGE sql IMMUTABLE RETURN c[b + 1] = 3;

CREATE OR REPLACE FUNCTION _cron_part_zone(c bigint[], b int) RETURNS int
LANGUAGE sql IMMUTABLE RETURN c[b + 2]::int;

CREATE OR REPLACE FUNCTION _cron_part_reading(c bigint[], b int) RETURNS int
LANGUAGE sql IMMUTABLE RETURN c[b + 4]::int;

CREATE OR REPLACE FUNCTION _cron_part_seconds(c bigint[], b int) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN c[b + 5];

CREATE OR REPLACE FUNCTION _cron_part_minutes(c bigint[], b int) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN c[b + 6];

CREATE OR REPLACE FUNCTION _cron_part_hours(c bigint[], b int) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN c[b + 7];

CREATE OR REPLACE FUNCTION _cron_part_months(c bigint[], b int) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN c[b + 8];

CREATE OR REPLACE FUNCTION _cron_part_month_days(c bigint[], b int) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN c[b + 9];

CREATE OR REPLACE FUNCTION _cron_part_weekdays(c bigint[], b int) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN c[b + 10];

CREATE OR REPLACE FUNCTION _cron_part_takes_either_day(c bigint[], b int) RETURNS boolean
LANGUAGE sql IMMUTABLE RETURN c[b + 11] = 1;

CREATE OR REPLACE FUNCTION _cron_part_first_time(c bigint[], b int) RETURNS int
LANGUAGE sql IMMUTABLE RETURN c[b + 12]::int;

CREATE OR REPLACE FUNCTION _cron_part_last_time(c bigint[], b int) RETURNS int
LANGUAGE sql IMMUTABLE RETURN c[b + 13]::int;

CREATE OR REPLACE FUNCTION _cron_part_weeks(c bigint[], b int) RETURNS bigint
LANGUAGE sql IMMUTABLE RETURN c[b + 14];

CREATE OR REPLACE FUNCTION _cron_part_has_special_days(c bigint[], b int) RETURNS boolean
LANGUAGE sql IMMUTABLE RETURN c[b + 15] = 1;

CREATE OR REPLACE FUNCTION _cron_part_years_index(c bigint[], b int) RETURNS int
LANGUAGE sql IMMUTABLE RETURN c[b + 22]::int;

CREATE OR REPLACE FUNCTION _cron_part_modifier_index(c bigint[], b int) RETURNS int
LANGUAGE sql IMMUTABLE RETURN c[b + 23]::int;

CREATE OR REPLACE FUNCTION _cron_part_has_end_modifier(c bigint[], b int) RETURNS boolean
LANGUAGE sql IMMUTABLE RETURN c[c[b + 23]::int] = 1;

CREATE OR REPLACE FUNCTION _cron_last_part_offset(c bigint[]) RETURNS int
LANGUAGE sql IMMUTABLE RETURN 27 * (c[26]::int - 1);

-- Makes three functions on masks of up to 62 bits, with constant arrays in their bodies: the number
-- of the highest bit, the number of the lowest bit, and the mask of every step-th bit from bit 0
-- on.
DO $$
BEGIN
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _find_highest_bit(mask bigint) RETURNS int
    LANGUAGE sql IMMUTABLE RETURN width_bucket(mask, %L::bigint[]) - 1',
    ARRAY(SELECT 1::bigint << bit FROM generate_series(0, 61) bit));
  CREATE OR REPLACE FUNCTION _find_lowest_bit(mask bigint) RETURNS int
  LANGUAGE sql IMMUTABLE RETURN _find_highest_bit(mask & -mask);
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _make_step_mask(step int) RETURNS bigint
    LANGUAGE sql IMMUTABLE RETURN coalesce((%L::bigint[])[step], 1)',
    ARRAY(
      SELECT (SELECT bit_or(1::bigint << bit) FROM generate_series(0, 61, step) bit)
      FROM generate_series(1, 61) step));
END $$;
