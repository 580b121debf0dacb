-- no transaction
-- Finds what operators did to one job, queue or schedule.
CREATE INDEX CONCURRENTLY IF NOT EXISTS audit_subject ON audit (subject, at);
