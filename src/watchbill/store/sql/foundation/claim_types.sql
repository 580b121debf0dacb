-- after: create_type
-- The values that the steps of claim() pass on.

-- How far a worker has read one priority of a queue: a claim may start after this job.
SELECT _create_type('scan_floor', $$queue text, priority smallint, run_at timestamptz, id uuid$$);

-- What a claim goes by. Its first statement reads what the rare cases need, so that all others cost
-- nothing; the rest is what the caller asks for.
SELECT _create_type('claim_rules', $$
  epoch bigint,
  assignment bigint, -- of the node, when it was read
  lanes int[], -- that this node takes from in every queue: 0, and those of its labels
  queues text[], -- those that are not paused
  declared_queues text[], -- those with lanes or a limit
  has_once boolean, -- there may be jobs of class 1, which are not claimed ahead
  has_paused_types boolean,
  has_unsupported_types boolean,
  tenant text, -- whose jobs to take; NULL: of all
  max int,
  slots int, -- how many jobs can start at once: at most `max`
  alone boolean, -- take one job in quarantine, and no other
  without text[], -- types to skip
  floors scan_floor[],
  has_expired_jobs boolean$$);

-- A job that a claim has locked. `turn`: of a fair or routed queue. `is_limited`: it has limit
-- keys.
SELECT _create_type('picked_job', $$tid tid, turn int, is_limited boolean$$);

-- The jobs that a round of a claim has picked. `limited_queues`: of the queues it has read, those
-- with a limit. `is_busy`: another transaction has locked the state of a limit, so there may be
-- more jobs.
SELECT _create_type('pick', $$
  jobs picked_job[], -- NULL if `tids` has them
  is_limited boolean, -- some of the jobs are
  limited_queues text[],
  is_busy boolean,
  tids tid[] -- instead of `jobs`, if none of them has a turn or limit keys
$$);

-- A row of claim().
SELECT _create_type('claimed_job', $$
  id uuid,
  fence bigint,
  type text,
  payload jsonb,
  queue text,
  tenant text,
  priority smallint,
  run_at timestamptz,
  run int,
  attempt smallint,
  max_attempts smallint,
  version int,
  timeout real,
  meta jsonb,
  limit_keys text[],
  turn int$$);

-- That a picked job wants a limit key. `job` numbers the jobs that need a decision, and `position`
-- is the place of the job among all that were picked. `key` numbers the keys; a job without keys
-- has one demand, whose key is the number after the last key. `rank` counts the jobs of the key.
SELECT _create_type('key_demand', $$
  job int,
  position int,
  key int,
  rank int,
  id uuid,
  class smallint,
  lane int$$);

-- How many jobs of a limit key may start now, besides those that hold it.
SELECT _create_type('key_place', $$
  places int, -- 2147483647: any number
  new_places int, -- those of its rates for which no job was made ready; NULL: no rate
  is_locked boolean, -- by this transaction; of other keys no job may start
  is_ordered boolean,
  key text,
  -- Of an ordered key the job that holds it, or else the first one, finished ones aside: only
  -- this job may start, and only if no other job holds the key.
  head uuid
$$);

-- What becomes of a picked job. `parked_on`: the number of the key that is full; 0: of none.
SELECT _create_type('verdict', $$position int, may_start boolean, parked_on int$$);
