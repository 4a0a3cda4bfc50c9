# `make demo` and `make test` set up everything they need; nothing outside .venv is touched.
#
#   PYTHON    the interpreter that creates the environment (3.11 or newer)
#   PIP_ARGS  extra arguments for pip, e.g. PIP_ARGS="--index-url URL" for an index of your own
#   VENV      where the environment lives

PYTHON   ?= python3
VENV     ?= .venv
PIP_ARGS ?=

BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP   := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt $(PIP_ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long lint bench compare docs serve clean

help:
	@echo "make demo       set up, then see stories written, a middle filled in, and a tiny model trained"
	@echo "make serve      set up, then serve the shipped model at http://127.0.0.1:8000"
	@echo "make test       set up, then run all tests and linting"
	@echo "make test-long  the tests that take minutes"
	@echo "make lint       formatting, linting and types only"
	@echo "make bench      run the benchmarks, append to benchmarks/results"
	@echo "make compare    train every method on the embedded stories with as many FLOPs; docs/comparison"
	@echo "make docs       build the documentation site in build/site"
	@echo "make setup      only create the environment in $(VENV)"
	@echo "make clean      remove the environment and caches"

setup: $(STAMP)

# The pip that comes with a fresh environment would build the package in an isolated environment of unpinned
# packages; installing the pinned build backends first and switching isolation off keeps every version ours.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "didlm needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up $(VENV) (once; a few minutes for PyTorch) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --quiet hatchling editables setuptools
	$(PIP) --no-build-isolation --editable '.[dev,plots,serve]'
	@touch $@

demo: setup
	$(BIN)/didlm demo

serve: setup
	$(BIN)/didlm serve

test: lint
	$(BIN)/python -m pytest -n 2 -m "not long"

test-long: setup
	$(BIN)/python -m pytest -m long

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/alignment.py
	$(BIN)/python benchmarks/token_loss.py
	$(BIN)/python benchmarks/samplers.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/prepare.py

# Runs that are finished are not trained again; one that was broken off is in the way until you remove it.
COMPARED := did radd ilm ar did-fixed radd-fixed
OPTIONS_radd       := --method radd --set padding=160
OPTIONS_radd-fixed := --method radd

compare: $(COMPARED:%=runs/compare/%/.trained)
	$(BIN)/didlm compare $(COMPARED:%=runs/compare/%) --num 200 --out docs/comparison

runs/compare/%/.trained: | setup
	$(BIN)/didlm train --recipe compare $(or $(OPTIONS_$*),--method $*) --out runs/compare/$*
	@touch $@

docs: setup
	$(BIN)/python docs/site.py build/docs
	$(BIN)/zensical build --strict --clean

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
