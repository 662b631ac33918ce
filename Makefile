# `make verify` and `make test` set up .venv and run; nothing else need be prepared but Python 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: verify test fuzz bench nightly check

verify: $(VENV)/.installed
	$(BIN)/python -m pytest verify

test: $(VENV)/.installed
	$(BIN)/python -m pytest tests -n auto

fuzz: $(VENV)/.installed
	$(BIN)/python -m pytest fuzz -n auto

bench: $(VENV)/.installed
	$(BIN)/python -m bench

nightly: $(VENV)/.installed
	$(BIN)/python -m pytest tests verify fuzz -m "slow or not slow"

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/types --upgrade .
	MYPYPATH=build/types $(BIN)/python -m mypy -p copyproof

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@
