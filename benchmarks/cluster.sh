#!/usr/bin/env bash
# Throwaway PostgreSQL cluster and redis for the benchmark:  cluster.sh start|stop|restart-profiled|destroy|status
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
BENCH_ENV="${BENCH_ENV:-$here/../.bench-env}"; mkdir -p "$BENCH_ENV"; BENCH_ENV="$(cd "$BENCH_ENV" && pwd)"
PG_BIN="${PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)}"
PG_PORT="${BENCH_PG_PORT:-54329}"; REDIS_PORT="${BENCH_REDIS_PORT:-63799}"
data="$BENCH_ENV/pg"
as_pg() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --init-groups env PATH="$PATH" "$@"; else "$@"; fi; }
case "${1:-status}" in
  start)
    if [ ! -f "$data/PG_VERSION" ]; then
      mkdir -p "$data"; [ "$(id -u)" = 0 ] && chown postgres:postgres "$data" && chmod 700 "$data"
      (cd / && as_pg "$PG_BIN/initdb" -D "$data" -U postgres -A trust -E UTF8 --no-locale >/dev/null)
      cat >> "$data/postgresql.conf" <<CONF
listen_addresses = '127.0.0.1'
port = $PG_PORT
unix_socket_directories = ''
shared_buffers = 1GB
max_wal_size = 8GB
synchronous_commit = on
fsync = on
max_connections = 200
CONF
    fi
    (cd / && as_pg "$PG_BIN/pg_ctl" -D "$data" status >/dev/null 2>&1 || as_pg "$PG_BIN/pg_ctl" -D "$data" -w -l "$data/server.log" start >/dev/null)
    if command -v redis-server >/dev/null && ! redis-cli -p "$REDIS_PORT" ping >/dev/null 2>&1; then
      mkdir -p "$BENCH_ENV/redis"
      # appendonly everysec: the closest redis comes to a durable broker without fsync per write
      redis-server --port "$REDIS_PORT" --bind 127.0.0.1 --daemonize yes --dir "$BENCH_ENV/redis" \
        --appendonly yes --appendfsync everysec --save "" --pidfile "$BENCH_ENV/redis/redis.pid" >/dev/null
    fi ;;
  stop)
    (cd / && as_pg "$PG_BIN/pg_ctl" -D "$data" -m fast stop || true)
    redis-cli -p "$REDIS_PORT" shutdown nosave 2>/dev/null || true ;;
  restart-profiled)  # pg_stat_statements on, for profile_peer.py only; plain again after stop + start
    (cd / && as_pg "$PG_BIN/pg_ctl" -D "$data" -m fast -w -l "$data/server.log" -o "-c shared_preload_libraries=pg_stat_statements" restart >/dev/null) ;;
  destroy) "$0" stop; rm -rf "$data" "$BENCH_ENV/redis" ;;
  status) (cd / && as_pg "$PG_BIN/pg_ctl" -D "$data" status) || true; redis-cli -p "$REDIS_PORT" ping || true ;;
esac
