# The two commands: `make demo` and `make test`. Each does all of its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
JOBS   ?= 2
RUNS   ?= 20

# Hundreds of programs are started: none of them should compile all of onoff again.
unexport PYTHONDONTWRITEBYTECODE

# Quick tests: no browser, Redis or nginx, and nothing that takes long for a reason of its own.
QUICK := not deep and not slow and not browser and not redis and not nginx

# One process more than there are cores: many tests wait for a disk, a browser or another program.
WORKERS := -n $(shell expr $(JOBS) + 1) --dist worksteal
TESTS   := $(BIN)/python -m pytest -q $(WORKERS)

# One line for each package while pip fetches them, and one while it installs them.
INSTALL := $(BIN)/pip install --disable-pip-version-check --progress-bar off -c constraints.txt
SHOW    := awk '/^(Collecting|Processing|Obtaining)/ { printf "  %3d  %s\n", ++n, $$2 } \
                /^Installing collected/ { print "       installing" } { fflush() }'

.DEFAULT_GOAL := help
.PHONY: help setup system demo check quick test test-deep soak mutation coverage bench results lint docs paper clean

help:  ## list these commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(VENV)/ready  ## create .venv and install the project with everything it can use

$(VENV)/ready: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing onoff, all that it can use, and the tools of its tests and documentation:"
	@$(INSTALL) -e '.[all,test,docs]' | $(SHOW)
	@touch $@

$(VENV)/ready-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing onoff and what the demo needs:"
	@$(INSTALL) -e . | $(SHOW)
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

system:  ## install what the tests drive besides Python: Chromium, Redis, nginx (apt, as root)
	@sh tests/system-packages.sh

demo: $(if $(wildcard $(VENV)/ready),$(VENV)/ready,$(VENV)/ready-demo)  ## a city's web site, a gateway, its page and a scripted rider, on this machine
	$(BIN)/onoff demo

check: setup  ## before every commit, in about a minute: lint, types and the quick tests
	@$(MAKE) --no-print-directory --jobs=2 lint quick

quick: setup
	$(TESTS) -m "$(QUICK)"

test: setup system lint  ## everything that must hold, in minutes
	$(TESTS)

test-deep: setup system lint  ## the same and the long runs, in hours
	HYPOTHESIS_PROFILE=fresh $(TESTS) -m "deep or not deep"

soak: setup system  ## `make test` RUNS times while every core is busy with other work, in hours
	$(BIN)/python tests/soak.py --runs $(RUNS) $(WORKERS)

mutation: setup  ## change the code in small ways and see whether the tests notice, in hours
	@$(INSTALL) cosmic-ray | $(SHOW)
	$(BIN)/cosmic-ray init benchmarks/mutation.toml .mutation.sqlite
	$(BIN)/cosmic-ray exec benchmarks/mutation.toml .mutation.sqlite
	$(BIN)/cr-report .mutation.sqlite

coverage: setup system  ## branch coverage of `make test`
	$(TESTS) --cov --cov-report=term-missing:skip-covered

bench: setup  ## ratios against baselines measured in the same run
	$(BIN)/python benchmarks/run.py

results: setup  ## make docs/results.md and its figures again
	$(BIN)/python -m onoff.lab.results.build

lint: setup  ## style, spelling and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

paper: setup system  ## make the drawings and the PDF of paper/onoff.md
	$(BIN)/python paper/build.py

docs: setup  ## build the documentation into docs/_build
	$(BIN)/sphinx-build -W -q -b html docs docs/_build

clean:
	rm -rf $(VENV) docs/_build .pytest_cache .mypy_cache .ruff_cache
