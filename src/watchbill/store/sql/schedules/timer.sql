-- Shows when each schedule is due next. It is for facades: their views run with the rights of the
-- reader, who may not read `timers`, which has no tenant. Here row security filters `schedules`.
CREATE OR REPLACE VIEW timer AS
SELECT x.*
FROM timers x
WHERE EXISTS (SELECT FROM schedules s WHERE s.id = x.schedule_id);
