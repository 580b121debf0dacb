#!/usr/bin/env bash
# A complete Watchbill worker in shell and psql. It registers, sends heartbeats, claims, runs and settles jobs, and leaves on SIGTERM.
#   DATABASE_URL=postgresql://... QUEUES=shell TYPES=greet,mail.send ./worker.sh handler.sh
# Jobs of other types are left to other workers. The handler gets the payload on standard input and the type as its argument. Exit code 0 completes the job with its output,
# 65 (EX_DATAERR) fails the job permanently, any other code fails the attempt. The handler is killed at the job's time-out.
set -u
handler=$1 queues=${QUEUES:-default} types=${TYPES:?names the types that the handler runs} schema=${WATCHBILL_SCHEMA:-watchbill} lease=${LEASE:-30}
sql() { psql -X -A -t -q -v ON_ERROR_STOP=1 -v SHOW_CONTEXT=never "$@" "$DATABASE_URL"; }
pause=0.1 stopping= alone=false
trap 'stopping=1' TERM INT

epoch=$(sql -v name="${NAME:-psql-$$}" -v types="{$types}" -v queues="{$queues}" -v host="$(hostname)" -v pid=$$ -v lease="$lease s" \
  <<< "SELECT $schema.register(:'name', :'lease', queues => :'queues', host => :'host', pid => :pid, capacity => 1,
    types => (SELECT jsonb_object_agg(type, 1) FROM unnest(:'types'::text[]) type))") || exit 3
beat() { # only while the worker lives: beats without a worker would keep its job claimed for ever
  while sleep "$((lease / 3))" && kill -0 $$ 2> /dev/null; do sql <<< "SELECT $schema.heartbeat($epoch)" > /dev/null || kill -TERM $$; done
}
beat & beating=$!

settle() { # id fence outcome age result-or-error [kind]; tries three times, in case the server restarts
  for wait in 0 1 3; do sleep $wait; sql -v id="$1" -v age="$4" -v text="$5" <<< "SELECT * FROM $schema.settle($epoch, ARRAY[:'id']::uuid[], ARRAY[$2], ARRAY['$3'], ARRAY[:age::float8],
    results => ARRAY[CASE '$3' WHEN 'succeeded' THEN to_jsonb(:'text'::text) END],
    errors => ARRAY[CASE WHEN '$3' <> 'succeeded' THEN jsonb_build_object('kind', '${6:-retryable}', 'message', :'text'::text) END], closed => ARRAY[$2])" && return
  done
}

while [ -z "$stopping" ]; do
  [ $alone = true ] && alone=false || alone=true # every other claim asks for a job from quarantine
  # No job runs now. A claim that still exists lost its reply: release_unknown returns its jobs to the queue.
  job=$(sql -v queues="{$queues}" <<< "SELECT $schema.promote(), $schema.release_unknown($epoch, '{}') \g /dev/null
    SELECT id, fence, coalesce(timeout, 0), type, payload FROM $schema.claim($epoch, :'queues', 1, alone => $alone)") || { sleep 1; continue; }
  if [ -z "$job" ]; then # back off while idle, up to five seconds
    sleep "$pause"; pause=$(awk "BEGIN { p = $pause * 2; print (p > 5) ? 5 : p }"); continue
  fi
  pause=0.1 began=$(date +%s.%N)
  IFS='|' read -r id fence limit type payload <<< "$job"
  case ",$types," in *",$type,"*) ;; *) settle "$id" "$fence" unsupported NULL ""; continue ;; esac
  output=$(timeout -k 5 "$limit" "$handler" "$type" <<< "$payload" 2>&1); code=$?
  age=$(awk "BEGIN { print $(date +%s.%N) - $began }")
  case $code in
    0) settle "$id" "$fence" succeeded "$age" "$output" ;;
    124) settle "$id" "$fence" timed_out "$age" "timed out after $limit s" ;;
    65) settle "$id" "$fence" failed "$age" "$output" permanent ;;
    *) settle "$id" "$fence" failed "$age" "exit code $code: $output" ;;
  esac
done
kill "$beating" 2> /dev/null
sql <<< "SELECT $schema.leave($epoch)" > /dev/null
