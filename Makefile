# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What is imported is compiled once and kept, also where the environment says otherwise: tests start many programs.
export PYTHONDONTWRITEBYTECODE :=

# Tests whose numbers come from the processor's instructions: `make plain` runs them with the plainest ones.
NUMERICAL := $(addprefix tests/,groups frames operators test_pace.py test_metrics.py \
  train/test_loss_in_the_canonical_frame.py)

.PHONY: help demo test pytest plain exhaustive check lint types bench wheel problems own models explorer tables docs pictures gif clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(STAMP)  ## make a small dataset, train FNO and PACE on it, compare them on shifted inputs (a few minutes)
	$(BIN)/pacefno bench burgers1d --preset quick --models fno,fno-aug,pace --seeds 42 --jobs 3
	$(BIN)/pacefno report runs/results --runs runs --data datasets --output report

test: $(STAMP) lint  ## style, types and all tests (8 minutes)
	@$(MAKE) --no-print-directory -j 2 types pytest  # types need one core for half a minute

pytest: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

plain: $(STAMP)  ## the numerical tests again, in float32, with the plainest instructions and one thread, as CI does after `make test`
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not exhaustive" -k "not float64" $(NUMERICAL)

wheel: $(STAMP)  ## build the wheel, install it alone in a new environment, and use it there
	rm -rf build/wheel && mkdir -p build/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w build/wheel .
	$(PYTHON) -m venv build/wheel/venv
	build/wheel/venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0
	build/wheel/venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt build/wheel/*.whl
	cd build/wheel && venv/bin/python ../../tests/use_the_core.py
	build/wheel/venv/bin/pip install --quiet --disable-pip-version-check -c constraints.txt \
	  "$$(ls build/wheel/*.whl)[paper]"
	cd build/wheel && venv/bin/pacefno bench burgers1d_smooth --preset smoke --models fno,pace --seeds 42

exhaustive: $(STAMP)  ## every combination of parts exported, the explorer in Chromium (half an hour, beyond `make test`)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m exhaustive

check: $(STAMP) lint types  ## `make test` without the slow tests
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not exhaustive"

lint: $(STAMP)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## static types
	$(BIN)/mypy

bench: $(STAMP)  ## timings, as ratios in one run, against the committed ones; leave the machine alone meanwhile
	$(BIN)/python benchmarks/solvers.py
	$(BIN)/python benchmarks/run.py

PROBLEMS := burgers1d burgers2d shallow_water navier_stokes navier_stokes_literal
problems: $(STAMP)  ## the pictures and numbers behind docs/problems.md (about 20 minutes)
	mkdir -p docs/problems docs/figures
	set -e; for p in $(PROBLEMS); do \
	  $(BIN)/pacefno data generate $$p --preset standard; \
	  COLUMNS=110 $(BIN)/pacefno data show datasets/$$p/standard-seed42 --output docs/figures/$$p-samples.png \
	    --spectra docs/figures/$$p-spectra.png > docs/problems/$$p.txt; \
	done

own: $(STAMP)  ## inspect, train, audit, roll out and predict on files in six formats, made by another solver (15 minutes)
	cd benchmarks && ../$(BIN)/python own_data.py --folder ../runs/own_data --output ../results/own_data.json

models: $(STAMP)  ## train the small models of the explorer and the gallery (about 5 minutes)
	OMP_NUM_THREADS=1 $(BIN)/python docs/models/train.py

explorer: build/explorer.html  ## the page in which you drag fields and watch models: build/explorer.html (a few minutes; needs npm once)

EXPLORED := shallow_water navier_stokes burgers1d burgers2d
build/explorer.html: $(STAMP) $(wildcard src/pacefno/explorer/* docs/models/*/*/*) src/pacefno/exporting.py
	$(BIN)/pacefno explore $(foreach p,$(EXPLORED),docs/models/$(p)/*/) --output $@

tables: $(STAMP)  ## write the tables of README and docs from results/*.json, and the report
	$(BIN)/pacefno report results --runs runs --data datasets --output report
	$(BIN)/pacefno report results --update README.md docs/results.md docs/symmetries.md docs/lpsda.md docs/paper.md
	$(BIN)/python benchmarks/documents.py

docs: $(VENV)/.docs  ## the site in build/docs, explorer included, its examples run and its links followed (minutes); not part of `make test`
	@$(MAKE) --no-print-directory explorer || echo "the site is built without the explorer"
	$(BIN)/python -m sphinx -q -E -a -b html -W --keep-going -d build/doctrees docs build/docs
	$(BIN)/python docs/check_site.py build/docs
	@echo "open build/docs/index.html"

pictures: $(STAMP)  ## the pictures of docs/concepts.md (seconds)
	$(BIN)/python docs/pictures.py concepts

gif: $(STAMP)  ## the moving picture of the README, from the models of docs/models (seconds)
	$(BIN)/python docs/pictures.py drag

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) datasets runs report build dist docs/api docs/gallery

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"pacefno needs Python 3.11 or newer, this is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@echo "installing torch and the rest into $(VENV) (about two minutes)"  # compiled when imported
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt torch==2.13.0 -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@
