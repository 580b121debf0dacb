-- no transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS jobs_expiring ON jobs (expires_at)
WHERE expires_at IS NOT NULL;
