# Two commands do everything on a fresh machine: `make demo` and `make test`.
#
#   TORCH        what pip installs for torch; another build: make demo TORCH=torch==2.14.1
#   TORCH_INDEX  an extra package index for it (CPU-only wheels, say); empty means pip's own settings

TORCH ?= torch==2.13.0
TORCH_INDEX ?=
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
TORCH_OPTIONS := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX),)

.PHONY: demo test test-long check fix screenshots setup clean

.DEFAULT_GOAL := help
.PHONY: help
help:
	@echo "make demo        set up, tune a small GPT on this machine, end with the best layout and its launch script"
	@echo "make test        set up, run the tests (make test-long: the exhaustive sets too)"
	@echo "make check       format, lint, types, layer rules"
	@echo "make screenshots pictures of the dashboard with example jobs, below screenshots/"

# What a run needs; the test tools come on top of it.
.venv/.runtime: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv: apt-get install python3-venv" >&2; exit 1; }
	@echo "Setting up .venv with $$("$(PYTHON)" --version); torch is most of it and takes a minute or two ..."
	@test -x $(BIN)/python || "$(PYTHON)" -m venv .venv
	@$(PIP) install $(TORCH_OPTIONS) "$(TORCH)"
	@$(PIP) install -c constraints.txt -e .
	@touch $@

.venv/.dev: .venv/.runtime
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

setup: .venv/.dev

demo: .venv/.runtime
	@$(BIN)/autotuner demo --output demo-output

test: .venv/.dev
	@$(BIN)/python -m pytest -m "not long"

test-long: .venv/.dev
	@$(BIN)/python -m pytest

check: .venv/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fix: .venv/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

screenshots: .venv/.dev
	@$(BIN)/python -m tests.support.screenshots screenshots

clean:
	rm -rf .venv demo-output build *.egg-info
