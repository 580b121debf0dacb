#!/usr/bin/env bash
# Installs every peer (by package name, newest on the registry) OUTSIDE the repository.
#   BENCH_ENV     where environments and the throwaway cluster live   (default: .bench-env at the top of the repository)
#   BENCH_PYTHON  interpreter for the venv                            (default: python3)
#   PG_BIN        PostgreSQL binaries directory                       (default: newest /usr/lib/postgresql/*/bin)
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export BENCH_ENV="${BENCH_ENV:-$here/../.bench-env}"
mkdir -p "$BENCH_ENV"
BENCH_ENV="$(cd "$BENCH_ENV" && pwd)"
py="${BENCH_PYTHON:-python3}"

[ -d "$BENCH_ENV/venv" ] || "$py" -m venv "$BENCH_ENV/venv"
pip="$BENCH_ENV/venv/bin/pip"
"$pip" install -q --upgrade pip
"$pip" install -q --upgrade \
  "psycopg[binary,pool]" asyncpg uvloop orjson redis \
  procrastinate "pgqueuer[cli,asyncpg]" \
  celery taskiq taskiq-redis \
  "apscheduler<4" croniter cronsim
if command -v npm >/dev/null; then
  mkdir -p "$BENCH_ENV/node"
  cd "$BENCH_ENV/node"
  [ -f package.json ] || npm init -y >/dev/null 2>&1
  npm install --silent --no-fund --no-audit graphile-worker@latest pg@latest
  # the newest pg-boss may depend on a version that a mirror does not carry yet: take the newest that installs
  for v in latest $(npm view pg-boss versions --json 2>/dev/null | tr -d '[]",' | tac | head -8); do
    if npm install --silent --no-fund --no-audit "pg-boss@$v" >/dev/null 2>&1; then echo "pg-boss $v"; break; fi
  done
  cd "$here"
fi

if ! command -v redis-server >/dev/null; then
  if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    (apt-get install -y -q redis-server || { apt-get update -q && apt-get install -y -q redis-server; }) >/dev/null
  else
    echo "redis-server not found: the redis peers will be skipped" >&2
  fi
fi
"$BENCH_ENV/venv/bin/pip" list --format=freeze > "$BENCH_ENV/versions-python.txt"
[ -d "$BENCH_ENV/node" ] && (cd "$BENCH_ENV/node" && npm ls --depth=0 > "$BENCH_ENV/versions-node.txt" 2>/dev/null) || true
echo "ready: $BENCH_ENV"
