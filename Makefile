# Two commands need nothing but Python 3.11+, git and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check lint types layers setup setup-dev bench picture clean

demo: $(VENV)/.base
	$(BIN)/memos demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: lint types layers test

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.edge_optimise --points 20000

picture: $(VENV)/.base
	$(BIN)/memos demo --svg docs/demo.svg

setup: $(VENV)/.base
setup-dev: $(VENV)/.dev

$(VENV)/.base: pyproject.toml constraints.txt
	PYTHON="$(PYTHON)" sh scripts/make_venv.sh $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,multilingual]'
	touch $@

clean:
	rm -rf $(VENV) dist build
