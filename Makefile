# Two commands matter: `make demo` and `make test`. Both build .venv on their own, from
# Python 3.11+, make and a package registry; nothing else has to be there.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

UV       = VIRTUAL_ENV=$(CURDIR)/$(VENV) $${PIP_INDEX_URL:+env UV_DEFAULT_INDEX=$$PIP_INDEX_URL} $(BIN)/uv
PACKAGES := kraft metadata_quorum data_plane fetch

# At a time, for two cores. Tests mostly wait for nodes; long ones and random faults compute. (With a fourth worker
# the same tests take a seventh more of the processors' time.)
WORKERS ?= 3
JOBS    ?= 2

# A node is a Python of its own, and so is a Spark worker: each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

comma := ,

.DEFAULT_GOAL := help
.PHONY: help setup fast pure demo grow test test-heavy test-long mutants chaos sim bench bench-guard scale rows lint types layers lock docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## build .venv from the lock file

# Installed by hash from a lock that names packages and no host, so that a registry mirror set for pip
# (PIP_INDEX_URL) serves the same files. --no-deps: the lock names every package already.
# Compiled once: Spark starts a Python for every question, and where PYTHONDONTWRITEBYTECODE is set each would
# compile numpy, Arrow and PySpark again.
$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kraft needs Python 3.11 or newer; say make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(UV) pip install --quiet --no-deps --require-hashes --compile-bytecode -r requirements.lock
	$(UV) pip install --quiet --no-deps --editable .
	@touch $@

# The extension modules lie beside their sources, and Python prefers them. Say it again after a change.
fast: $(READY) ## compile the hot modules in place (a C compiler, or zig's from PyPI)
	@$(MAKE) --no-print-directory pure
	KRAFT_COMPILE=1 $(UV) pip install --quiet --no-deps --reinstall --editable .
	@$(BIN)/kraft --version

.PHONY: compiles test-fast test-compiled
compiles: $(READY) ## whether mypyc takes the hot modules; without compiling the C
	KRAFT_COMPILE=check $(UV) build --quiet --wheel --out-dir build/checked .

test-fast: fast test ## the tests with the hot modules compiled

# What tests the hot modules most closely, by itself and under clients; built quickly, not to be quick.
COMPILED_TESTS ?= $(addprefix tests/unit/,api foundation log net replication wire) tests/property tests/contract \
  tests/robustness/test_frames.py tests/compat/test_rdkafka_produce.py tests/compat/test_wire_replication.py

test-compiled: $(READY) ## some tests with the hot modules compiled, then as Python again; where there is a C compiler
	@if ! { command -v cc || command -v gcc || command -v clang; } >/dev/null; then \
	  echo "skipped: no C compiler; the hot modules are tested as Python only"; exit 0; fi; \
	KRAFT_COMPILE_OPT=0 $(MAKE) --no-print-directory fast \
	  && $(BIN)/python -m pytest -n $(WORKERS) -m "not long" $(COMPILED_TESTS); \
	code=$$?; $(MAKE) --no-print-directory pure; exit $$code

pure: ## what `make fast` built is removed: the same modules as Python again
	@find $(PACKAGES) -name '*.so' -delete

demo: $(READY) ## 336,776 flights through three nodes and Spark; a node and the query are killed
	$(BIN)/python -m examples.flights

grow: $(READY) ## flights stream on while kraft becomes Apache Kafka, node by node (java; mvn fetches Kafka)
	$(BIN)/python -m examples.grow

test: $(READY) ## what runs in minutes; CI runs test-heavy, too
	@rm -f build/rows.json
	$(BIN)/python -m pytest -n $(WORKERS) -m "not long and not heavy"

test-heavy: $(READY) ## what takes whole clusters, JVMs or simulations for many seconds
	$(BIN)/python -m pytest -n $(WORKERS) -m "heavy and not long"

test-long: $(READY) ## more seeds, longer runs, all examples of property tests
	HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -n $(JOBS) -m "long or hypothesis"

mutants: $(READY) ## bugs of the past, each applied to a copy of the sources; whichever no test finds is named
	$(BIN)/python -m tests.mutants.run $(MUTANTS)

# SEED: the first one; COUNT: how many (without it until Ctrl-C); SEEDS=3,17: only these; MINUTES: of faults per seed.
chaos: $(READY) ## random faults on real clusters, seed after seed; failing histories stay in chaos-results
	$(BIN)/python -m chaos.seeds --from $(or $(SEED),1) $(if $(COUNT),--count $(COUNT)) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) --jobs $(JOBS)

sim: $(READY) ## simulated clusters, seed after seed (SEEDS=1..500)
	$(BIN)/kraft sim run --keep-going --seeds $(or $(SEEDS),1..200)

bench: $(READY) ## kraft, and Apache Kafka where java and mvn are there
	$(BIN)/python -m benchmarks

bench-guard: $(READY) ## cost of a produce and a fetch, against the baseline (WRITE=1 writes a new one)
	@$(BIN)/python -m benchmarks.guard $(if $(WRITE),--write)

# SIZES: of partitions. REAL=1: three processes; COPIES: of each partition, MINUTES: at most, of all sizes.
scale: $(READY) ## what 1,000 to 100,000 partitions and 3 to 50 brokers cost, simulated (SIZES=1000,10000 REAL=1)
	$(BIN)/python -m benchmarks.scale $(foreach size,$(subst $(comma), ,$(SIZES)),--partitions $(size)) \
	  $(if $(REAL),--real) $(if $(COPIES),--replication $(COPIES)) $(if $(MINUTES),--minutes $(MINUTES))

rows: $(READY) ## feature rows that no passing test names (run `make test test-heavy` first)
	@$(BIN)/python -m tests.support.suite.rows

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports

lock: $(READY) ## resolve pyproject.toml again into requirements.lock
	$(BIN)/uv export --quiet --all-groups --all-extras --no-emit-project --output-file requirements.lock
	@rm -f uv.lock

# The same commit gives the same bytes, wherever it is built.
.PHONY: dist
dist: $(READY) ## wheel, sdist, kraft-spark's wheel and the bill of materials, in build/dist
	rm -rf build/dist build/lib build_backend/spark/build
	export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); \
	  $(UV) build --quiet --out-dir build/dist . && \
	  $(UV) build --quiet --wheel --out-dir build/dist build_backend/spark && \
	  $(BIN)/python build_backend/sbom.py > build/dist/kraft.cdx.json
	@ls -l build/dist

docs: $(READY) ## generated pages: CONFIG.md, APIS.md, METRICS.md
	$(BIN)/python -m kraft.config.docs > docs/CONFIG.md
	$(BIN)/python -m kraft.api.docs > docs/APIS.md
	$(BIN)/python -m kraft.metrics.docs > docs/METRICS.md

.PHONY: site
site: $(READY) ## docs/ as a site, in build/site; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

clean: ## remove what make built, .venv included
	rm -rf $(VENV) build demo-data bench-results
