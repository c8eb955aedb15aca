# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test system lint bench clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## simulate a 16-card cluster with a fault nobody tells the reader about, and look at it
	rm -rf demo/run
	$(BIN)/paceline simulate demo/run --fault random --seed 7
	$(BIN)/paceline show demo/run
	$(BIN)/paceline diagnose demo/run

test: $(STAMP) system lint ## the whole suite
	$(BIN)/python -m pytest -n 2

system: ## what the tests need of the machine: a real sshd, openssl, ps
	@[ -x /usr/sbin/sshd ] && command -v openssl >/dev/null && command -v ps >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq openssh-server openssl procps >/dev/null; }

lint: $(STAMP) ## formatting, style, types, and the one-way road
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) ## us and the peers side by side
	$(BIN)/python benchmarks/ingest.py
	$(BIN)/python benchmarks/transfer.py

clean: ## remove what make made
	rm -rf $(VENV) demo benchmarks/work
