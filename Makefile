# Everything runs in .venv, which the first target that needs it makes from hashed constraints.
# `make help` lists the targets. Another interpreter: make test PYTHON=python3.12 VENV=.venv312

PYTHON ?= python3
PYTHON312 ?= python3.12
VENV ?= .venv
PRESET ?= tiny

BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
LOCKED := --quiet --universal --python-version 3.11 --fork-strategy requires-python --generate-hashes --no-header \
	--no-annotate --upgrade
COMPILE := $(BIN)/uv --no-config pip compile pyproject.toml $(LOCKED)

.DEFAULT_GOAL := help
.PHONY: help demo learn test test312 lint bench browser soak audit lock wheel clean

help:  ## this list
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9]+):.*## */\1	/' | expand -t 12

$(READY): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "sqair needs Python 3.11 or newer; try make PYTHON=python3.11")'
	@echo "setting up $(VENV): a few hundred MB to download the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes --requirement constraints.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(READY)  ## a made clip, found and tracked by the shipped model: no download, no GPU
	$(BIN)/sqair demo

learn: $(READY)  ## train a model on this machine (PRESET=tiny)
	$(BIN)/sqair train $(PRESET)

# One file stays on one worker, so that what a file compiles is compiled once.
test: $(READY)  ## the test suite, on two cores
	$(BIN)/python -m pytest -n 2 --dist loadfile

test312:  ## the test suite on Python 3.12 with the newest jax that the pins allow
	$(MAKE) test VENV=.venv312 PYTHON=$(PYTHON312)

lint: $(READY)  ## format, lint, import contract, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

bench: $(READY)  ## measure the time of a training step on this machine
	$(BIN)/sqair bench --quick

# Chromium is Debian's; root is asked for only where it must be installed.
browser: $(READY)  ## tests of the pages in Chromium
	@$(PIP) --require-hashes --requirement constraints-browser.txt
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
		echo "installing chromium"; \
		root=$$([ "$$(id -u)" = 0 ] || echo sudo); \
		$$root apt-get update -qq && $$root apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }
	$(BIN)/python -m pytest tests/browser

soak: $(READY)  ## kills, corruption, many processes, Ray (SQAIR_KILLS=20 SQAIR_VIDEOS=60)
	@$(PIP) --require-hashes --requirement constraints-cluster.txt
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/soak

# It has a place of its own, so that what it needs does not change what is locked.
audit:  ## known weaknesses of the locked dependencies; asks a public database
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip --disable-pip-version-check install --quiet "pip-audit>=2.9"; }
	@.venv-audit/bin/python -c 'import json, urllib.request as u; json.load(u.urlopen("https://pypi.org/pypi/pip/24.0/json", timeout=20))["vulnerabilities"]' 2>/dev/null \
		|| { echo "make audit: the list of weaknesses at pypi.org cannot be reached from here; nothing was checked"; exit 1; }
	@for each in constraints*.txt; do \
		.venv-audit/bin/pip-audit --strict --disable-pip --requirement $$each || exit 1; done

lock: $(READY)  ## choose the newest allowed version of every dependency and write the constraints
	$(PIP) "uv>=0.13"
	$(COMPILE) --group dev --output-file constraints.txt
	$(BIN)/uv --no-config pip compile $(LOCKED) --group browser --constraints constraints.txt --output-file constraints-browser.txt
	$(COMPILE) --extra cuda13 --extra cluster --extra log --constraints constraints.txt --output-file constraints-extras.txt
	$(COMPILE) --extra cluster --constraints constraints-extras.txt --output-file constraints-cluster.txt

wheel: $(READY)  ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation

clean:  ## remove what the targets above made, .venv included
	rm -rf .venv .venv312 .venv-audit .jax_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
