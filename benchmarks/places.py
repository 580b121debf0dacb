"""Where things are: the directory of the peers and the throwaway servers, their ports, the addresses."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENV = Path(os.environ.get("BENCH_ENV", ROOT / ".bench-env")).resolve()
ADAPTERS = ROOT / "benchmarks" / "adapters"
RESULTS = ENV / "results"

POSTGRES_DATA = ENV / "pg"
POSTGRES_PORT = int(os.environ.get("BENCH_PG_PORT", "54329"))
REDIS_DATA = ENV / "redis"
REDIS_PORT = int(os.environ.get("BENCH_REDIS_PORT", "63799"))

DATABASE = "bench"
ADMIN_DSN = f"postgresql://postgres@127.0.0.1:{POSTGRES_PORT}/postgres"
DSN = f"postgresql://postgres@127.0.0.1:{POSTGRES_PORT}/{DATABASE}"
REDIS_URL = f"redis://127.0.0.1:{REDIS_PORT}/0"

PEERS_PYTHON = ENV / "venv" / "bin" / "python"
OUR_PYTHON = ROOT / ".venv" / "bin" / "python"
