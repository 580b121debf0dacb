"""The worked examples of the cron language, all times in UTC.

A line gives pattern, zone, an instant and why; the indented line below it the runs that follow, or none.
"""

from __future__ import annotations

CLOCK_CHANGES = """
30 2 * * *; America/New_York; 2024-03-09 12:00:00; fixed time in gap runs once, at the transition
    2024-03-10 07:00:00, 2024-03-11 06:30:00
15,45 2 * * *; America/New_York; 2024-03-09 12:00:00; two skipped times collapse to one run
    2024-03-10 07:00:00, 2024-03-11 06:15:00, 2024-03-11 06:45:00
0 2,3 * * *; America/New_York; 2024-03-10 05:00:00; skipped 02:00 and real 03:00 are one instant
    2024-03-10 07:00:00, 2024-03-11 06:00:00, 2024-03-11 07:00:00
0 * * * *; America/New_York; 2024-03-10 05:30:00; interval job: every elapsed hour
    2024-03-10 06:00:00, 2024-03-10 07:00:00, 2024-03-10 08:00:00
0 */2 * * *; America/New_York; 2024-03-10 04:00:00; star hour: skipped 02:00 is not made up
    2024-03-10 05:00:00, 2024-03-10 08:00:00, 2024-03-10 10:00:00
* 2 * * *; America/New_York; 2024-03-10 05:00:00; star minute: whole skipped hour is lost
    2024-03-11 06:00:00, 2024-03-11 06:01:00
0 30 2 * * *; America/New_York; 2024-03-09 12:00:00; 6-field form behaves like the 5-field form
    2024-03-10 07:00:00, 2024-03-11 06:30:00
30 30 2 * * *; America/New_York; 2024-03-09 12:00:00; transition instant, seconds field not kept
    2024-03-10 07:00:00, 2024-03-11 06:30:30
*/20 30 2 * * *; America/New_York; 2024-03-09 12:00:00; star second makes it an interval job
    2024-03-11 06:30:00, 2024-03-11 06:30:20, 2024-03-11 06:30:40
30 2 10 3 *; America/New_York; 2024-01-01 00:00:00; yearly job on the gap day is not lost
    2024-03-10 07:00:00, 2025-03-10 06:30:00
30 1 * * *; America/New_York; 2024-11-03 04:00:00; fixed time in overlap runs once, first pass
    2024-11-03 05:30:00, 2024-11-04 06:30:00
0 * * * *; America/New_York; 2024-11-03 04:30:00; interval job runs in both passes
    2024-11-03 05:00:00, 2024-11-03 06:00:00, 2024-11-03 07:00:00
*/30 1 * * *; America/New_York; 2024-11-03 04:30:00
    2024-11-03 05:00:00, 2024-11-03 05:30:00, 2024-11-03 06:00:00, 2024-11-03 06:30:00, 2024-11-04 06:00:00
0 0-23 * * *; America/New_York; 2024-11-03 04:30:00; a written-out hour list is wall-clock (Vixie/cronsim)
    2024-11-03 05:00:00, 2024-11-03 07:00:00
45 1 * * *; America/New_York; 2024-11-03 06:10:00; from inside the second pass: today's run is already past
    2024-11-04 06:45:00
15 1 * * *; America/New_York; 2024-11-03 05:30:00; from inside the first pass, later second pass ignored
    2024-11-04 06:15:00
30 1 * * *; Europe/Dublin; 2024-03-30 12:00:00; negative-DST zone (IST is standard time)
    2024-03-31 01:00:00, 2024-04-01 00:30:00
15 2 * * *; Australia/Lord_Howe; 2024-10-05 10:00:00; 30-minute gap 02:00 -> 02:30
    2024-10-05 15:30:00, 2024-10-06 15:15:00
*/15 * * * *; Australia/Lord_Howe; 2024-04-06 14:40:00
    2024-04-06 14:45:00, 2024-04-06 15:00:00, 2024-04-06 15:15:00, 2024-04-06 15:30:00
0 * * * *; Australia/Lord_Howe; 2024-10-05 14:00:00; 02:00 is skipped, 03:00 is 30 min after 02:30
    2024-10-05 14:30:00, 2024-10-05 16:00:00, 2024-10-05 17:00:00
0 0 * * *; America/Sao_Paulo; 2018-11-03 12:00:00; no midnight on 2018-11-04
    2018-11-04 03:00:00, 2018-11-05 02:00:00
30 23 * * *; America/Sao_Paulo; 2018-02-17 12:00:00; 23:00-24:00 repeated
    2018-02-18 01:30:00, 2018-02-19 02:30:00
0 0 * * *; Africa/Cairo; 2024-04-25 12:00:00; 2024-04-26 00:00 -> 01:00
    2024-04-25 22:00:00, 2024-04-26 21:00:00
30 1,2 * * *; Antarctica/Troll; 2024-03-30 12:00:00; two-hour gap
    2024-03-31 01:00:00, 2024-03-31 23:30:00
0 12 * * *; Pacific/Apia; 2011-12-29 12:00:00; 2011-12-30 does not exist
    2011-12-29 22:00:00, 2011-12-30 10:00:00, 2011-12-30 22:00:00
0 12 30 12 *; Pacific/Apia; 2011-12-01 00:00:00
    2011-12-30 10:00:00, 2012-12-29 22:00:00
0 */6 * * FRI; Pacific/Apia; 2011-12-25 00:00:00; interval job: the skipped Friday is lost
    2012-01-05 10:00:00, 2012-01-05 16:00:00
15 0 * * *; Africa/Monrovia; 1972-01-06 12:00:00; -00:44:30 -> 0; the transition is not on a minute
    1972-01-07 00:44:30, 1972-01-08 00:15:00
0 0 9 * * * TZ:+03:00; UTC; 2025-10-23 04:00:00; ISO sign: east is positive
    2025-10-23 06:00:00, 2025-10-24 06:00:00
0 0 9 * * * TZ:America/New_York; Asia/Tokyo; 2025-10-23 08:00:00; zone in the pattern wins over the job's zone
    2025-10-23 13:00:00
"""

CALENDAR = """
0 0 29 2 *; UTC; 2096-03-01 00:00:00; 2100 is not a leap year
    2104-02-29 00:00:00
0 0 * 2 MON#5; UTC; 2020-01-01 00:00:00
    2044-02-29 00:00:00, 2072-02-29 00:00:00, 2112-02-29 00:00:00
0 0 29 2 +MON; UTC; 2020-01-01 00:00:00; OCPS '+' = AND
    2044-02-29 00:00:00, 2072-02-29 00:00:00, 2112-02-29 00:00:00
0 0 29 2 MON; UTC; 2023-02-14 00:00:00; OR
    2023-02-20 00:00:00, 2023-02-27 00:00:00, 2024-02-05 00:00:00
0 0 13 * +FRI; UTC; 2024-01-01 00:00:00; Friday 13th
    2024-09-13 00:00:00, 2024-12-13 00:00:00, 2025-06-13 00:00:00
0 0 30 2 *; UTC; 2024-01-01 00:00:00; no such day
    none
0 0 0 29 2 * 2025-2027; UTC; 2024-03-01 00:00:00; no leap year in range
    none
0 0 31 2 MON; UTC; 2024-01-30 00:00:00; impossible dom half of an OR
    2024-02-05 00:00:00, 2024-02-12 00:00:00
0 12 L-5 * *; UTC; 2024-02-10 00:00:00; five days before the last
    2024-02-24 12:00:00, 2024-03-26 12:00:00
0 12 L-30 * *; UTC; 2024-02-10 00:00:00; only 31-day months
    2024-03-01 12:00:00, 2024-05-01 12:00:00
0 9 LW * *; UTC; 2024-02-01 00:00:00; last weekday
    2024-02-29 09:00:00, 2024-03-29 09:00:00, 2024-04-30 09:00:00, 2024-05-31 09:00:00, 2024-06-28 09:00:00
0 9 L-3W * *; UTC; 2024-06-01 00:00:00; weekday nearest to last-3 (checked with Quartz)
    2024-06-27 09:00:00, 2024-07-29 09:00:00
0 9 1W * *; UTC; 2024-05-31 12:00:00; Sat 1st -> Mon 3rd; Sun 1st -> Mon 2nd
    2024-06-03 09:00:00, 2024-07-01 09:00:00, 2024-08-01 09:00:00, 2024-09-02 09:00:00
0 9 31W * *; UTC; 2024-03-01 00:00:00; months without a 31st are skipped; Sun 31st -> Fri 29th
    2024-03-29 09:00:00, 2024-05-31 09:00:00, 2024-07-31 09:00:00, 2024-08-30 09:00:00
0 22 * 2 5L; UTC; 2024-01-01 00:00:00; last Friday of a 29-day February
    2024-02-23 22:00:00, 2025-02-28 22:00:00
0 12 * * FRI#5; UTC; 2024-01-01 00:00:00; fifth Friday
    2024-03-29 12:00:00, 2024-05-31 12:00:00, 2024-08-30 12:00:00, 2024-11-29 12:00:00
0 12 * * FRI#-2; UTC; 2024-01-01 00:00:00
    2024-01-19 12:00:00, 2024-02-16 12:00:00
0 12 L * 5L; UTC; 2025-02-01 00:00:00; OR of two specials
    2025-02-28 12:00:00, 2025-03-28 12:00:00, 2025-03-31 12:00:00
0 0 9 * * * WOY:53; UTC; 2024-01-01 10:00:00; 2025 has 52 weeks
    2026-12-28 09:00:00, 2026-12-29 09:00:00
0 0 9 * * SUN WOY:53; UTC; 2021-01-04 00:00:00; week 53 reaches into January
    2027-01-03 09:00:00, 2033-01-02 09:00:00
0 0 9 * * * WOY:1; UTC; 2024-01-15 08:00:00; week 1 of 2025 starts in December
    2024-12-30 09:00:00, 2024-12-31 09:00:00, 2025-01-01 09:00:00
"""

JCRON = """
0 0 12 L * *; UTC; 2024-02-10 00:00:00
    2024-02-29 12:00:00
0 0 9 * * 1#1,1#3; UTC; 2025-01-07 10:00:00
    2025-01-20 09:00:00
0 0 0 1,L * *; UTC; 2025-01-15 12:00:00
    2025-01-31 00:00:00
0 0 9 * * 1W1; UTC; 2025-06-30 00:00:00; July and August are skipped
    2025-09-01 09:00:00
0 0 0 1 1 * 2027; UTC; 2025-01-01 00:00:00
    2027-01-01 00:00:00
E0H; UTC; 2025-10-23 14:30:45
    2025-10-23 14:59:59
S2H; UTC; 2025-10-23 14:30:45
    2025-10-23 16:00:00
E0D; UTC; 2025-10-23 14:30:45
    2025-10-23 23:59:59
S1D; UTC; 2025-10-23 14:30:45
    2025-10-24 00:00:00
E0W; UTC; 2025-10-23 14:30:45
    2025-10-26 23:59:59
S0W; UTC; 2025-10-23 14:30:45
    2025-10-27 00:00:00
E0M; UTC; 2025-10-23 14:30:45
    2025-10-31 23:59:59
S1M; UTC; 2025-10-23 14:30:45
    2025-11-01 00:00:00
E1M2W3D; UTC; 2024-01-15 10:00:00
    2024-03-20 23:59:59
0 0 10 * * * S2H; UTC; 2025-10-23 08:00:00
    2025-10-23 12:00:00
0 0 9 * * 1-5 EOD:E0M; UTC; 2024-01-15 08:00:00
    2024-01-31 23:59:59
0 0 9 * * 1-5 * | 0 0 11 * * 0,6 *; UTC; 2025-10-24 10:00:00
    2025-10-25 11:00:00
"""

REJECTED = ["0 0 9 * * 7W1", "0 0 9 * * 1W6", "0 0 9 * * 1#6", "0 0 9 * * 1#0", "WOY:0", "WOY:54", "*/0 * * * *"]
REJECTED += ["0 0 25 * * *", "0 0 0 LL * *", "0 9 * * MONDAY"]


Example = tuple[str, str, str, list[str]]


def examples(table: str) -> list[Example]:
    """The lines of a table as (pattern, zone, from, runs)."""
    lines = table.strip().splitlines()
    found = []
    for head, runs in zip(lines[::2], lines[1::2], strict=True):
        pattern, zone, start, *_ = head.split("; ")
        found.append((pattern, zone, start, [] if runs.strip() == "none" else runs.strip().split(", ")))
    return found
