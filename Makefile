# The two commands: `make demo` and `make test`. Each does all of its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup system demo test test-deep mutation coverage bench results lint docs clean

help:  ## list these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/ready  ## create .venv and install the project with everything it can use

$(VENV)/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,test,docs]'
	touch $@

system:  ## install what the tests drive besides Python: Chromium, Redis, nginx (apt, as root)
	@sh tests/system-packages.sh

demo: setup  ## server, gateway, page and a scripted reader, on this machine
	$(BIN)/onoff demo

test: setup system lint  ## everything that must hold, in minutes
	$(BIN)/python -m pytest -q -n $(JOBS)

test-deep: setup system lint  ## the same and the long runs, in hours
	$(BIN)/python -m pytest -q -n $(JOBS) -m "deep or not deep"

mutation: setup  ## change the code in small ways and see whether the tests notice, in an hour
	$(BIN)/python benchmarks/mutation.py

coverage: setup system  ## branch coverage of `make test`
	$(BIN)/python -m pytest -q -n $(JOBS) --cov --cov-report=term-missing:skip-covered

bench: setup  ## ratios against baselines measured in the same run
	$(BIN)/python benchmarks/run.py

results: setup  ## make docs/results.md and its figures again
	$(BIN)/python -m onoff.experiments.results

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup  ## build the documentation into docs/_build
	$(BIN)/sphinx-build -W -q -b html docs docs/_build

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache
