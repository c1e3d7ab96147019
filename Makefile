# Everything a developer runs. Each target works from a clean checkout: the environment is made when it is needed.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed
PYTEST_ARGS ?=
# Most tests wait for processes, so one more at a time than there are cores; 0 runs them one after the other.
JOBS ?= $(shell expr $$(nproc) + 1)
BENCH_ARGS ?=

.PHONY: help setup check lint test format bench clean

help:
	@echo "make setup    an environment in $(VENV) with Prefork and the tools that the checks need"
	@echo "make check    format, lint, types, import floors, then the tests"
	@echo "make test     the tests, with coverage (PYTEST_ARGS='-k name' to choose)"
	@echo "make format   write the format and the safe fixes that make check asks for"
	@echo "make bench    measure and rewrite the tables of docs/performance.md (BENCH_ARGS='--help' to choose)"
	@echo "make clean    remove the environment and all caches"

setup: $(INSTALLED)

# `pip install --group` came with pip 25.1, which is newer than the one that ships with Python 3.11 to 3.13.
$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $(INSTALLED)

check: lint test

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=worksteal -m "not alone" --cov --cov-report= $(PYTEST_ARGS)
	$(BIN)/python -m pytest -m alone --cov --cov-append --cov-report=term $(PYTEST_ARGS) || [ $$? -eq 5 ] # 5: none was chosen

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

clean:
	rm -rf $(VENV) .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
