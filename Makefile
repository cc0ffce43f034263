# The two commands: `make run` and `make test`. Each makes .venv and installs what it needs there; a second call installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_TEST := $(VENV)/.ready-test
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: run test lint types processes docs notebooks release newest attacks audits kills faults bench clean

run: $(READY)
	$(BIN)/sfumato train --auto

test: lint types
	$(BIN)/python -m pytest -n 2 --dist loadfile
	$(MAKE) processes

lint: $(READY_TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY_TEST)
	$(BIN)/mypy

# Federations and clusters of real processes, on this machine: about five minutes, most of them spent waiting.
processes: $(READY_TEST)
	$(BIN)/python -m pytest -n 2 --dist loadfile -m processes tests/federation tests/engine

# The site, into site/: strictly, and without a network. The tests build it too.
docs: $(READY_TEST)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Runs the notebooks of the tutorial, and keeps what they gave.
notebooks: $(READY_TEST)
	$(BIN)/python -m tests.site

# Wheel and sdist into dist/, each installed into an empty environment where it trains: a few minutes, and a package index.
release: $(READY_TEST)
	$(BIN)/python -m tests.release

# The newest version of everything, without constraints.txt, on each supported Python that is found: half an hour for each.
newest: $(READY_TEST)
	$(BIN)/python -m tests.release.newest

# Slow evidence: explicit attacks on random small rounds, for longer than the tests have time for.
attacks: $(READY_TEST)
	$(BIN)/python -m tests.attacks --seconds 600

# Slow evidence: 200 short audits of random sound rounds, none of which may be called broken; and what catches which sabotage.
audits: $(READY_TEST)
	$(BIN)/python -m tests.audit --audits 200
	$(BIN)/python -m tests.audit --table

# Slow evidence: 300 random kills of runs of every recipe, with copies, and other data and code: no two results share noise.
kills: $(READY_TEST)
	$(BIN)/python -m tests.engine.kills --kills 300

# Slow evidence: a federation of real processes, killed everywhere, and 200 rounds among random faults.
faults: $(READY_TEST)
	$(BIN)/python -m tests.federation --rounds 200 --seconds 1800

# Slow evidence: side by side with the peers, in environments of their own.
bench: $(READY_TEST)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)

# Sfumato and what a run needs.
$(READY): pyproject.toml constraints.txt
	@echo "Once: $(VENV), with Sfumato and the packages that it runs on, torch among them. 1 of 2: the environment"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "2 of 2: the packages"
	$(INSTALL) --editable .
	touch $(READY)

# The rest: Flower, Ray, and what builds the pages, tests and checks.
$(READY_TEST): $(READY)
	@echo "Once: the packages that only the tests need, into $(VENV)"
	$(INSTALL) --editable ".[flower,test]"
	touch $(READY_TEST)
