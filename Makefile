# The only commands anyone needs. `make` prints them.

PY := .venv/bin/python
TYPED := $(wildcard libs/*/src services/*/src devstack/src tools benchmarks tests docs)
# `make run` passes these on; see .venv/bin/python -m devstack run --help
SCALE ?=
TEXT ?=
RATE ?=
# `make sim` takes these
SEED ?=
SEEDS ?= 300
FIRST ?= 0
# `make heroku-sim` passes these and RATE on; see .venv/bin/python -m devstack heroku-sim --help
PLAN ?=
SERVICES ?=
# `make chaos` passes these and RATE on; see .venv/bin/python -m devstack chaos --help
SECONDS ?=
GUARANTEE ?=
SEED ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test check check-other format smoke chaos sim heroku-sim test-heroku bench bench-faults soak docs lock clean
.NOTPARALLEL:

help: ## print this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | awk -F'\t' '{printf "make %-8s %s\n", $$1, $$2}'

setup: ## all tools and packages, inside the project (needs Python 3.11 or 3.12 and a network, once)
	@sh tools/setup

run: setup ## from nothing to a live table of word counts (SCALE="aggregator_worker=2" TEXT=book.txt RATE=2000)
	@exec $(PY) -m devstack run $(if $(SCALE),--scale "$(SCALE)") $(if $(TEXT),--text "$(TEXT)") $(if $(RATE),--rate $(RATE))

test: setup ## every test; a real broker and database start by themselves
	@$(PY) -m pytest -m "not long and not java" --timeout 300 -n 2 --dist loadfile tests

check: setup ## format, lint, types, import contracts, unit tests
	@$(PY) -m ruff format --check .
	@$(PY) -m ruff check .
	@.venv/bin/mypy $(TYPED)
	@.venv/bin/lint-imports
	@$(PY) -m pytest -q -n 2 tests/architecture tests/budget tests/parity tests/unit

check-other: setup ## the unit tests on the other Python: 3.11 where .venv has 3.12, and the reverse
	@$(PY) -m tools.other_python

format: setup ## put the code into the one format, mend what ruff can mend
	@$(PY) -m ruff format .
	@$(PY) -m ruff check --fix .

smoke: ## a bare clone with an empty home reaches the first count by `make run` alone
	@python=$$(sh tools/find-python) && exec "$$python" -I tools/smoke.py

chaos: setup ## the word count under kills and outages, recounted (SECONDS=300 GUARANTEE=at_least_once RATE=2000 SEED=1)
	@exec $(PY) -m devstack chaos $(if $(SECONDS),--seconds $(SECONDS)) $(if $(GUARANTEE),--guarantee $(GUARANTEE)) $(if $(RATE),--rate $(RATE)) $(if $(SEED),--seed $(SEED))

sim: setup ## histories by seed on a broker in memory (SEED=17 tells one; SEEDS=500 FIRST=900000 plays many)
	@$(PY) -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --first $(FIRST))

heroku-sim: setup ## a broker with TLS, rights and quotas as on Heroku, and the commands of `heroku` (PLAN=standard-0 SERVICES=1 RATE=20)
	@exec $(PY) -m devstack heroku-sim $(if $(PLAN),--plan $(PLAN)) $(if $(SERVICES),--services) $(if $(RATE),--rate $(RATE))

test-heroku: setup ## the tests on that broker alone
	@$(PY) -m pytest -m "not long and not java" --timeout 300 -n 2 --dist loadfile tests/heroku

bench: setup ## ours against Java Kafka Streams
	@$(PY) -m benchmarks.run

bench-faults: setup ## ours and Java under kills, stops, scaling and restores (three quarters of an hour)
	@$(PY) -m benchmarks.takeover
	@$(PY) -m benchmarks.takeover --standbys 0 --entries 250000
	@$(PY) -m benchmarks.rebalance
	@$(PY) -m benchmarks.restore
	@$(PY) -m benchmarks.restore --threads 2
	@$(PY) -m benchmarks.guarantees

soak: setup ## the long trials, at full length
	@$(PY) -m pytest -m "long or java" -o faulthandler_timeout=900 tests

docs: setup ## write the generated pages
	@$(PY) docs/generate.py

lock: ## resolve poetry.lock anew
	@python=$$(sh tools/find-python) && exec "$$python" -I tools/bootstrap.py --lock

clean: ## forget the state of `make run` (downloads stay)
	@rm -rf .run
