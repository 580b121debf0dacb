-- no transaction
-- Adds an index of blocked jobs, so that lists find a few of them among millions of others. Jobs
-- that wait for no other job are not in it.
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_blocked ON jobs (id) WHERE wait = 'blocked';
