# Two commands matter: `make up` runs the real thing, `make test` passes every test. Both set up what they need.
# Needs: make, git, Python 3.11 or newer. No root, no Docker, no Node.

VENV   := .venv
PYTHON := $(VENV)/bin/python
BASE_PYTHON := $(shell for p in "$$PYTHON_FOR_TIDEMARK" python3 python3.14 python3.13 python3.12 python3.11 python; do \
	[ -n "$$p" ] && command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP    := $(PYTHON) -m pip --disable-pip-version-check --no-input

# Twice as many as there are cores, four at most: much of the tests' time goes by in waiting for processes that they start.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n > 2 ? 4 : 2 * n)))

LOCKED := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make lock"

# Images and sandboxes often set it: each of the hundreds of processes of a test run would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help up demo setup test compiled-tests lint format lock bench soak simulate scale docs site screenshots clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

up: $(VENV)/installed-run  ## set up and run everything here: database, broker, API, worker, dashboard, demo (ARGS="--port 9000")
	@exec $(VENV)/bin/tidemark up $(ARGS)

demo: $(VENV)/installed-run  ## the demo without a browser: about two minutes; prints what it found
	@exec $(VENV)/bin/tidemark demo --headless $(ARGS)

setup: $(VENV)/installed-dev  ## set up the virtual environment, development tools included

test: $(VENV)/installed-dev  ## set up and run every test; ends with what was not run, and why (ARGS="-k board" JOBS=2)
	@$(PYTHON) -m tests.provide_chromium
	@$(PYTHON) tests/provide_pgbouncer.py
	@$(MAKE) --no-print-directory compiled-tests
	@$(MAKE) --no-print-directory -j2 lint-kept tests-only || { [ ! -e $(LINTED) ] || cat $(LINTED); exit 1; }

# What is wrong in the style is said after the tests, which would else hide it.
LINTED := $(VENV)/lint.txt
.PHONY: lint-kept tests-only
lint-kept:
	@$(MAKE) --no-print-directory lint >$(LINTED) 2>&1 && rm $(LINTED)
tests-only:
	@$(PYTHON) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

lint: $(VENV)/installed-dev  ## style, types, import rules, deployment files
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check --quiet .
	@$(VENV)/bin/lint-imports --no-cache --no-logo
	@$(VENV)/bin/mypy
	@$(VENV)/bin/yamllint --strict docker-compose.yml deploy
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.compose-spec docker-compose.yml deploy/compose.tls.yml
	@$(VENV)/bin/hadolint deploy/Dockerfile deploy/worker.Dockerfile
	@$(VENV)/bin/kubernetes-validate --quiet --strict deploy/kubernetes/tidemark.yaml
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(VENV)/bin/zizmor --offline --quiet --no-progress --min-severity=medium .github action.yml

# Each process of the run would else compile the tests for itself.
compiled-tests: $(VENV)/installed-dev
	@$(PYTHON) -m pytest --collect-only -qq >/dev/null || true

bench: $(VENV)/installed-dev  ## the speed budgets as a table of ratios, each with its yardstick (ARGS="--only board")
	@$(PYTHON) -m tests.bench.run $(ARGS)

soak: $(VENV)/installed-dev  ## ten minutes of pushes, a third of them hostile, while processes are killed every few seconds (ARGS="--minutes 1 --seed 2")
	@$(PYTHON) -m tests.soak.run $(ARGS)

simulate: $(VENV)/installed-dev  ## a day of a large fleet in fast time, through the real queue (ARGS="--claims", "--load 1.5")
	@$(PYTHON) -m tests.scale.simulate $(ARGS)

scale: $(VENV)/installed-dev  ## several processes of each kind, a replica, PgBouncer: each killed while results arrive (ARGS="--seconds 10")
	@$(PYTHON) tests/provide_pgbouncer.py
	@$(PYTHON) -m tests.cluster.run $(ARGS)

format: $(VENV)/installed-dev  ## format every file
	@$(VENV)/bin/ruff check --fix --quiet --select I .
	@$(VENV)/bin/ruff format .

lock: $(VENV)/installed-dev  ## update requirements/ to the newest versions that fit pyproject.toml, with hashes
	@$(VENV)/bin/uv pip compile pyproject.toml $(LOCKED) --extra server --extra otel --extra dev --output-file requirements/dev.txt
	@$(VENV)/bin/uv pip compile pyproject.toml $(LOCKED) --extra server --constraint requirements/dev.txt --output-file requirements/server.txt
	@$(VENV)/bin/uv pip compile pyproject.toml $(LOCKED) --extra otel --constraint requirements/dev.txt --output-file requirements/otel.txt

docs: $(VENV)/installed-dev  ## update the generated documents (rule, commands, settings, speed)
	@$(PYTHON) docs/generate.py

site: $(VENV)/installed-dev  ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet --strict --site-dir build/site
	@echo "open build/site/index.html"

screenshots: $(VENV)/installed-dev  ## take docs/images again, from a running `make up` (URL=http://127.0.0.1:8000)
	@$(PYTHON) -m tests.provide_chromium
	@$(PYTHON) -m frontend.screenshots --url $(or $(URL),http://127.0.0.1:8000) --out docs/images

clean:  ## remove the virtual environment and caches; your data directory stays
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@command -v git >/dev/null || { echo "tidemark needs git: install it (Debian: apt install git), then run make again" >&2; exit 1; }
	@[ -n "$(BASE_PYTHON)" ] || { echo "tidemark needs Python 3.11 or newer; found: $$(python3 --version 2>/dev/null || echo none). Install one and run make again (PYTHON_FOR_TIDEMARK=/path/to/python3.12 names one)" >&2; exit 1; }
	@$(BASE_PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "this Python cannot make virtual environments (Debian: apt install python3-venv), then run make again" >&2; exit 1; }

# Everything is installed as requirements/ locks it, by hash. The exception is torch: which build fits is the machine's matter
# (CPU, CUDA, Arm), and an exact pin keeps pip from choosing one that is several gigabytes larger.
$(VENV)/installed-run: pyproject.toml requirements/server.txt | $(VENV)/bin/python
	@echo "setting up $(VENV) (one to three minutes the first time)"
	@$(PIP) install torch==2.13.0
	@$(PIP) install --require-hashes --no-deps --requirement requirements/server.txt
	@$(PIP) install --no-deps --editable .
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-run requirements/dev.txt
	@echo "setting up the development tools"
	@$(PIP) install --require-hashes --no-deps --requirement requirements/dev.txt
	@touch $@
