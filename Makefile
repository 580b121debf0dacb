# `make` alone lists what there is.
.DEFAULT_GOAL := help
.PHONY: help up test test-long soak lint format bench bench-cron bench-schedules clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One process per core, each with PostgreSQL servers of its own.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml src/watchbill/_version.py
	@test -n "$(PYTHON)" || { echo "Watchbill needs Python 3.11 or newer with venv (Debian: apt-get install python3 python3-venv)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

up: $(STAMP)  ## run the example shop on a PostgreSQL of its own; Ctrl-C stops everything
	@cd examples/shop && ../../$(BIN)/watchbill up

test: lint  ## everything that must hold, in minutes
	$(PYTEST)

test-long: lint  ## also what takes longer: large fuzz runs, long chaos
	$(PYTEST) -m "long or not long" --timeout 3600

soak: $(STAMP)  ## storms of faults, one after the other, for MINUTES=45, from SEED=N on
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),45) $(if $(SEED),--seed $(SEED))

lint: $(STAMP)  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## rewrite in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## forget the virtual environment and caches, not your data
	rm -rf $(VENV) .test-env .mypy_cache .ruff_cache .pytest_cache .hypothesis

bench: $(STAMP)  ## ours and the peers', side by side on one server (an hour; installs the peers below .bench-env)
	benchmarks/install.sh
	$(BIN)/python -m benchmarks

bench-cron: $(STAMP)  ## the cron engines: Python's beside its peers, SQL's over 100,000 schedules, the worst texts
	@test -x .bench-env/cron/bin/python || $(PYTHON) -m venv .bench-env/cron
	.bench-env/cron/bin/python -m pip install --quiet --disable-pip-version-check cronsim croniter 'apscheduler<4' tzdata
	.bench-env/cron/bin/python benchmarks/cron_bench.py
	$(BIN)/python benchmarks/cron_sql_bench.py
	$(BIN)/python -m benchmarks.cron_texts_bench

bench-schedules: $(STAMP)  ## ticks beside the bulk rate, a tick among a million schedules, the lag from slot to handler
	$(BIN)/python -m benchmarks.schedules_bench
