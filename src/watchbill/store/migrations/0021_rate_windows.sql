-- Makes rates sliding windows, any number of them for each limit. docs/explanation/schema.md
-- describes the columns.
--
-- The columns that rates had before stay for the functions of earlier releases, which run until the
-- last migration has replaced them: sql/flow/drop_old_rates.sql drops them in that transaction.

DROP FUNCTION IF EXISTS limit_list(); -- its result has other columns

-- Says that at most `count` jobs of a key start in any window of the length `per`; `evenly`: and
-- that their starts are spaced.
CREATE TYPE rate AS (count int, per interval, evenly boolean);

-- Holds the starts of a key, for its rate of the length `per`: at each of these times, how many
-- starts there had been in all.
CREATE TYPE rate_window AS (per interval, times timestamptz[], totals bigint[]);

ALTER TABLE limits ADD COLUMN rates rate[] CHECK (cardinality(rates) > 0);

ALTER TABLE limit_states
  ADD COLUMN windows rate_window[],
  -- For how many of the places that are free jobs were made ready.
  ADD COLUMN offered int NOT NULL DEFAULT 0,
  -- When the last start leaves its window.
  ADD COLUMN counts_until timestamptz;

-- The rates of before spaced their starts.
UPDATE limits
SET rates = ARRAY[ROW(count, make_interval(secs => extract(epoch FROM per)::float8), true)::rate]
WHERE count IS NOT NULL;
