# Few verbs. CI is .ci/run, which starts from nothing; `make check` is what to run before a commit.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: setup lint types test bench check

setup: $(BIN)/voiceflow
	$(BIN)/voiceflow models get

$(BIN)/voiceflow: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -e ".[dev]"
	@touch $@

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check voiceflow processors transports tests examples hatch_build.py

types:
	$(BIN)/mypy

test:
	$(BIN)/pytest

bench:
	$(BIN)/voiceflow bench hop
	$(BIN)/voiceflow bench interrupt
	$(BIN)/voiceflow bench import
	$(BIN)/voiceflow bench sessions

check: lint types test
