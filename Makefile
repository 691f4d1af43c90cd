# What CI runs is `make test`. Every target sets up what it needs; `make help` lists them.
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 1

.DEFAULT_GOAL := help
.PHONY: help venv test style format types imports tests mutants bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: .venv/installed ## .venv with the package and its tools; .venv/bin/coterie runs

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip -c constraints.txt
	$(BIN)/python -m pip install --quiet --editable '.[dev]' -c constraints.txt
	@touch $@

test: venv style types imports tests ## everything CI runs: style, types, import contracts, all tests

style: venv ## ruff: lint and format, nothing changed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv ## ruff: format, and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: venv ## mypy --strict
	$(BIN)/mypy

imports: venv ## import contracts: which room may know which
	$(BIN)/lint-imports

tests: venv ## pytest, in random order
	$(BIN)/pytest

clean: ## remove what the other targets made
	rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
