#!/usr/bin/env bash
# Installs every peer, the newest its registry has, below BENCH_ENV (default: .bench-env). Once: remove versions-python.txt there to do it again.
set -euo pipefail
cd "$(dirname "$0")/.."
env="${BENCH_ENV:-.bench-env}"
mkdir -p "$env"
env="$(cd "$env" && pwd)"
if [ -f "$env/versions-python.txt" ]; then exit 0; fi

python="${BENCH_PYTHON:-.venv/bin/python}"   # the same for all
[ -d "$env/venv" ] || "$python" -m venv "$env/venv"
"$env/venv/bin/pip" install --quiet --disable-pip-version-check --upgrade \
  "psycopg[binary,pool]" asyncpg uvloop redis procrastinate "pgqueuer[cli,asyncpg]" celery taskiq taskiq-redis \
  "apscheduler<4" croniter cronsim

if command -v npm >/dev/null; then
  mkdir -p "$env/node"
  (
    cd "$env/node"
    [ -f package.json ] || npm init --yes >/dev/null
    npm install --silent --no-fund --no-audit graphile-worker@latest pg@latest
    # A mirror may lack what the newest pg-boss depends on: take the newest that installs.
    for version in latest $(npm view pg-boss versions --json | tr -d '[]",' | tac | head -8); do
      if npm install --silent --no-fund --no-audit "pg-boss@$version" >/dev/null 2>&1; then break; fi
    done
    npm ls --depth=0 > ../versions-node.txt
  )
else
  echo "There is no npm: graphile-worker and pg-boss are left out." >&2
fi
command -v redis-server >/dev/null || echo "There is no redis-server: celery and taskiq are left out." >&2

"$env/venv/bin/pip" list --format=freeze --disable-pip-version-check > "$env/versions-python.txt"
