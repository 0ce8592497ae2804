# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test check lint types bench clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(STAMP)  ## make a small dataset, train FNO and PACE on it, compare them on shifted inputs (a few minutes)
	$(BIN)/python -m pacefno.studies.demo

test: $(STAMP) lint types  ## everything that CI runs
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(STAMP) lint types  ## the same without the slow tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

lint: $(STAMP)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## static types
	$(BIN)/mypy

bench: $(STAMP)  ## timings, as ratios in one run; leave the machine alone meanwhile
	$(BIN)/python benchmarks/operators.py
	$(BIN)/python benchmarks/pace.py
	$(BIN)/python benchmarks/solvers.py

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) datasets runs report build dist

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"pacefno needs Python 3.11 or newer, this is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
