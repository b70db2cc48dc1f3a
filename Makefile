# Two commands do everything on a fresh machine: `make demo` and `make test`. `make help` lists the others.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# All paths are relative, so that a checkout may lie below a directory with spaces in its name.
PYTHON ?= $(or $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo $$p && break; done),python3)
VENV := .venv
PY := $(VENV)/bin/python
SHOW := loom_cli/dev/progress.py
TESTS ?= tests
# More than cores: tests with real processes wait for most of their time.
WORKERS ?= 5
# A module's tests share what they start, so one process runs all of a module.
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Hundreds of processes are started by the tests: none need compile Loom again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check static lint format types imports unit bench nightly temporal clean

help: ## List the commands
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: $(VENV)/.installed temporal ## Watch an agent survive kills and wait for your approval
	@$(PY) -m demo

test: static temporal ## Everything that must hold: lint, types, imports, all tests but the nightly ones
	@$(PY) -m pytest -q $(PARALLEL) -m "not nightly" $(TESTS)

check: $(VENV)/.installed ## Lint, types, directions of imports, unit tests: under a minute
	@$(MAKE) -j 2 static unit

static: lint types imports

lint: $(VENV)/.installed
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check --quiet .

format: $(VENV)/.installed ## Format the code
	@$(PY) -m ruff format .

types: $(VENV)/.installed
	@$(PY) -I $(SHOW) "Checking types" -- $(PY) -m mypy

imports: $(VENV)/.installed
	@$(PY) -I $(SHOW) "Checking imports" -- $(VENV)/bin/lint-imports

unit: $(VENV)/.installed ## Only the unit tests
	@$(PY) -m pytest -q -n auto --dist loadfile -m "not nightly" tests/unit

bench: $(VENV)/.installed temporal ## Measure speed and size, into benchmarks/RESULTS.md
	@$(PY) -m benchmarks

nightly: $(VENV)/.installed temporal ## The long tests, and the laws with 500 examples each, into tests/NIGHTLY.md
	@$(PY) -m pytest -q -n $(WORKERS) -m "nightly or hypothesis" --hypothesis-profile=night --timeout=900 \
	  -p tests.support.nightly $(TESTS)

temporal: $(VENV)/.installed
	@$(PY) -m loom_cli.dev.temporal_cli > /dev/null

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Loom needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	  echo "$(PYTHON) has no venv module. On Debian or Ubuntu: apt install python3-venv" >&2; exit 2; }
	@$(PY) -m pip --version > /dev/null 2>&1 || $(PYTHON) -I $(SHOW) "Creating .venv" -- $(PYTHON) -m venv --clear $(VENV)
	@$(PY) -I $(SHOW) "Installing Loom and what it needs into .venv" -- \
	  $(PY) -m pip install --disable-pip-version-check --no-input --progress-bar off -e '.[test]'
	@touch $@

clean: ## Remove what make made; jobs and the Temporal CLI in your home directory stay
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
