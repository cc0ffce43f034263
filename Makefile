# The two commands: `make run` and `make test`. Each makes .venv and installs what it needs; a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test lint types processes docs notebooks release attacks audits faults bench clean

run: $(READY)
	$(BIN)/sfumato train --auto

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile
	$(MAKE) processes

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Federations and clusters of real processes, on this machine: about five minutes, most of them spent waiting.
processes: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m processes tests/federation tests/engine

# The site, into site/: strictly, and without a network. The tests build it too.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Runs the notebooks of the tutorial, and keeps what they gave.
notebooks: $(READY)
	$(BIN)/python -m tests.site

# Wheel and sdist into dist/, each installed into an empty environment where it trains: a few minutes, and a package index.
release: $(READY)
	$(BIN)/python -m tests.release

# Slow evidence: explicit attacks on random small rounds, for longer than the tests have time for.
attacks: $(READY)
	$(BIN)/python -m tests.attacks --seconds 600

# Slow evidence: 200 short audits of random sound rounds, none of which may be called broken; and what catches which sabotage.
audits: $(READY)
	$(BIN)/python -m tests.audit --audits 200
	$(BIN)/python -m tests.audit --table

# Slow evidence: a federation of real processes, killed everywhere, and 200 rounds among random faults.
faults: $(READY)
	$(BIN)/python -m tests.federation --rounds 200 --seconds 1800

# Slow evidence: side by side with the peers, in environments of their own.
bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test]"
	touch $(READY)
