# The only door to the project: `make` alone prints what there is.
# Every target works from a fresh clone; what it needs is installed into .venv first.

MAKEFLAGS += --no-print-directory
# Images of containers often set it. Then each process that a test starts compiles the whole package again, and pytest all tests.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

VENV    := .venv
BIN     := $(VENV)/bin
PACKAGE := $(VENV)/.package
STAMP   := $(VENV)/.installed
SITE    := $(VENV)/.site
PYTHON  ?=
SECONDS ?= 600
# Twice the cores: for much of the time tests wait for servers, processes and locks.
JOBS    ?= 4
STORE   ?= all
OPTIONS ?=
SEED    ?=
ROW     ?=

# What is installed: the exact versions of constraints.txt, unless `make matrix` runs the lowest or the newest versions.
PINS    ?= constraints.txt
EXTRA   ?= dev

PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --no-compile -c $(PINS)
# The order of sets is the same each time, too; the runs with a fresh seed take it from that.
PYTEST  := PYTHONHASHSEED=0 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
SEEDED  := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --timeout=7200
LANES   := .lanes
# Where the quick lanes are: to look through all tests for them would take as long as running them. The tests of the
# lanes themselves start pytest again and again, and are as slow as the rest of tests/unit.
QUICK   := tests/unit tests/client tests/security tests/drivers/test_conformance_memory.py --ignore=tests/unit/test_lanes.py
CHECKED := $(wildcard src tests bench examples)

# A recipe line that runs a tool in silence and shows what it said only if it failed.
quietly = @out=$$($(1) 2>&1) || { printf '%s\n' "$$out"; exit 1; }

# A virtual environment whose interpreter is gone (upgraded, moved) is made again.
ifneq ($(shell $(BIN)/python -c 'print("ok")' 2>/dev/null),ok)
.PHONY: $(PACKAGE) $(STAMP) $(SITE)
endif

.PHONY: help
help: ## print this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter of a new .venv, JOBS=4 the number of test processes."

.PHONY: venv
venv: $(STAMP) ## make .venv and install the project with its tools into it
	@echo "venv: ready in $(VENV)"

# The newest Python that can make a virtual environment, else the newest at all: a name in PATH may be a shim with
# nothing behind it, so each candidate is run. A bare Debian has no ensurepip (or no Python); root can install it.
# The package alone is enough for the demo; the tools take ten times the room, and longer to come.
$(PACKAGE): pyproject.toml $(PINS)
	@set -eu; \
	suits='import sys; sys.exit(sys.version_info < (3, 11))'; \
	whole='import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'; \
	candidates='$(PYTHON)'; \
	[ -n "$$candidates" ] || candidates='python3.14 python3.13 python3.12 python3.11 python3 python'; \
	find_python() { \
		for name in $$candidates; do \
			if "$$name" -c "$$1" >/dev/null 2>&1; then echo "$$name"; return; fi; \
		done; \
	}; \
	if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		python=$$(find_python "$$whole"); \
		if [ -z "$$python" ]; then \
			bare=$$(find_python "$$suits"); \
			packages='python3 python3-venv'; \
			[ -z "$$bare" ] || packages="python$$("$$bare" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"; \
			if [ -z '$(PYTHON)' ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
				echo "venv: installing $$packages with apt-get"; \
				export DEBIAN_FRONTEND=noninteractive; \
				apt-get update -qq </dev/null >/dev/null || true; \
				apt-get install -y -qq $$packages </dev/null >/dev/null; \
				python=$$(find_python "$$whole"); \
			fi; \
			if [ -z "$$python" ]; then \
				echo "venv: Python 3.11 or later with the venv module is needed; tried: $$candidates." >&2; \
				echo "      On Debian or Ubuntu: apt-get install $$packages. Or name one: make venv PYTHON=/path/to/python3" >&2; \
				exit 1; \
			fi; \
		fi; \
		echo "venv: making $(VENV) with $$("$$python" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])')"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	@echo "venv: installing taskharbor"
	$(call quietly,$(PIP) -e .)
	@touch $(PACKAGE)

$(STAMP): $(PACKAGE)
	@echo "venv: installing taskharbor[$(EXTRA)]"
	$(call quietly,$(PIP) -e '.[$(EXTRA)]')
	@touch $(STAMP)

.PHONY: demo
demo: $(PACKAGE) ## ten seconds in this terminal: workers, retries, a crash, a dead letter, a workflow
	@$(BIN)/taskharbor demo

.PHONY: dashboard
dashboard: $(PACKAGE) ## a living system in your browser: workers, retries, dead letters, a workflow, a schedule
	$(call quietly,$(PIP) -e '.[dashboard]')
	@$(BIN)/taskharbor demo --dashboard

.PHONY: pictures
pictures: $(STAMP) ## take the screenshots that the documents show, from a seeded store in a real browser
	@tests/servers/provision chromium fonts
	@$(BIN)/python -m tests.browser.pictures

.PHONY: check
check: style types ## lint, formatting, types, import rules

.PHONY: style
style: $(STAMP)
	@echo "check: ruff"
	@$(BIN)/python -m ruff check --quiet .
	@echo "check: formatting"
	@$(BIN)/python -m ruff format --check --quiet . || { echo "check: run '$(BIN)/ruff format .'" >&2; exit 1; }
	@echo "check: imports"
	$(call quietly,$(BIN)/lint-imports)

.PHONY: types
types: $(STAMP)
	@echo "check: mypy"
	$(call quietly,$(BIN)/python -m mypy $(CHECKED))

# The types are checked beside the lanes, which leave a part of a core unused.
.PHONY: test
test: $(STAMP) ## everything a change must pass: check, all lanes, and that every lane really ran
	@$(MAKE) -j 3 --output-sync=line style provision compiled
	@$(MAKE) -j 2 types all-lanes
	@echo "make test: all lanes ran, all green"

# pytest rewrites the assertions of each test file, and keeps the result; else each of its processes does all of it.
.PHONY: compiled
compiled: $(STAMP)
	@$(BIN)/python -m pytest -q -n 0 --collect-only >/dev/null || { $(BIN)/python -m pytest -q -n 0 --collect-only | tail -40; exit 1; }

# All lanes without the checks: also what the matrix runs for each other Python.
.PHONY: all-lanes
all-lanes: $(STAMP) provision
	@echo "test: all lanes, $(JOBS) processes"
	@rm -rf $(LANES)
	@TASKHARBOR_LANES=$(LANES) $(PYTEST)
	@echo "test: did every lane run?"
	@$(BIN)/python -m tests.lanes check $(LANES)

.PHONY: provision
provision: $(STAMP)
	@TASKHARBOR_PYTHON=$(BIN)/python tests/servers/provision

.PHONY: quick
quick: style ## before you save: lint, and the quick lanes, which need no server (at most a minute)
	@echo "quick: the lanes marked quick in tests/lanes.txt"
	@rm -rf $(LANES)
	@TASKHARBOR_LANES=$(LANES) TASKHARBOR_LANE=quick $(PYTEST) -n 2 $(QUICK)
	@$(BIN)/python -m tests.lanes check $(LANES) --run quick
	@echo "make quick: green; make test is what a change must pass"

.PHONY: lane
lane: $(STAMP) ## run one lane, and install only the servers it needs: make lane LANE=simulation
	@test -n "$(LANE)" || { echo "lane: name one, for example: make lane LANE=unit" >&2; exit 2; }
	@servers=$$($(BIN)/python -m tests.lanes servers $(LANE)) && TASKHARBOR_PYTHON=$(BIN)/python tests/servers/provision $$servers
	@$(PYTEST) --lane=$(LANE)

.PHONY: mutants
mutants: $(STAMP) ## break each driver on purpose and see the suite notice, every mistake
	@TASKHARBOR_PYTHON=$(BIN)/python tests/servers/provision
	@TASKHARBOR_LANE=full $(PYTEST) --lane=mutants --lane=mutants-sqlite --lane=mutants-postgres --lane=mutants-redis

.PHONY: docs
docs: $(STAMP) ## write what is generated in docs/, run what the documents show, build the site
	@$(BIN)/python -m tests.docs.cli_page
	@$(BIN)/python -m tests.release.licences
	@$(BIN)/python -m tests.docs.slots_table
	@$(BIN)/python -m tests.docs.reference
	@$(PYTEST) tests/docs
	@$(MAKE) site

.PHONY: site
site: $(SITE) ## build the documents into site/, offline, and check every link
	@$(BIN)/python -m tests.docs.site

# Sphinx is for the site alone: neither the checks nor the tests import it.
$(SITE): $(STAMP)
	@echo "venv: installing taskharbor[docs]"
	$(call quietly,$(PIP) -e '.[docs]')
	@touch $(SITE)

.PHONY: chaos
chaos: $(STAMP) ## what it survives: every scenario on every store; writes docs/reliability.md (under an hour): make chaos SEED=7
	@tests/servers/provision postgres pgbouncer redis
	@$(BIN)/python -m tests.survival $(if $(SEED),--seed $(SEED)) $(foreach row,$(ROW),--row $(row)) $(OPTIONS)

.PHONY: full
full: $(STAMP) check ## every test that exists, larger figures, a fresh seed (at most 90 minutes): make full SEED=7
	@TASKHARBOR_PYTHON=$(BIN)/python tests/servers/provision
	@rm -rf $(LANES)
	@TASKHARBOR_LANES=$(LANES) SEED=$(SEED) $(BIN)/python -m tests.lanes full -- $(SEEDED)
	@$(BIN)/python -m tests.lanes check $(LANES) --run full
	@echo "make full: all lanes ran, all green"

.PHONY: matrix
matrix: $(STAMP) ## every server version, every other Python here, the lowest and newest libraries (long)
	@TASKHARBOR_PYTHON=$(BIN)/python tests/servers/provision
	@test -n "$$TASKHARBOR_REDIS8" || echo "matrix: NOT TESTED: Redis 8; TASKHARBOR_REDIS8=/path/to/redis-server names one" >&2
	@echo "matrix: the lanes marked matrix in tests/lanes.txt, whole"
	@rm -rf $(LANES)
	@TASKHARBOR_LANES=$(LANES) TASKHARBOR_LANE=matrix $(PYTEST) --timeout=7200
	@$(BIN)/python -m tests.lanes check $(LANES) --run matrix
	@$(BIN)/python -m tests.matrix

.PHONY: soak
soak: $(STAMP) ## the soak lanes again and again with fresh seeds: make soak SECONDS=3600
	@SECONDS=$(SECONDS) $(BIN)/python -m tests.lanes soak -- $(SEEDED)
	@echo "make soak: no round failed"

.PHONY: bench
bench: $(STAMP) ## measure beside others on every store (installs them first): make bench STORE=redis OPTIONS=--quick
	@TASKHARBOR_PYTHON=$(BIN)/python tests/servers/provision
	@echo "bench: installing what we compare with"
	$(call quietly,$(PIP) -e '.[bench]')
	@$(BIN)/python -m bench.stores.environments
	@$(BIN)/python -m bench $(STORE) $(OPTIONS)

.PHONY: guard
guard: $(STAMP) ## count the instructions of a job on every store, compare with bench/guard/figures.json: make guard STORE=redis
	@tests/servers/provision postgres redis valgrind
	@$(BIN)/python -m bench.guard $(filter-out all,$(STORE)) $(OPTIONS)

.PHONY: clean
clean: ## remove the environment and everything generated
	@rm -rf $(VENV) .venv-* .constraints-*.txt .lanes .lanes-* .chaos .site site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist .coverage .coverage.* htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
