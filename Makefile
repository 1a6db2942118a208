# Each target sets up all it needs in .venv; Python 3.11, make and git are enough to start.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: quickstart test figures clean

quickstart: .venv/.core  ## check the theorems, train the paper's variants, write the page
	$(BIN)/klip verify
	$(BIN)/klip train CartPole-v1 --shape clip per-sample 'kl(b=1)' adaptive-kl --seeds 5 --out quickstart/runs
	$(BIN)/klip train Hopper-v4 --shape clip per-sample --seeds 1 --steps 204800 --out quickstart/runs
	$(BIN)/klip report quickstart/runs -o quickstart/report.html
	@echo "Open quickstart/report.html: tables, curves, the identity run by run, and an explorer of all shapes"

test: .venv/.dev  ## style, types, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

figures: .venv/.core  ## draw the pictures of docs/ anew
	$(BIN)/klip figures -o docs/figures
	$(BIN)/klip show clip ramp spo sapo -o docs/figures/shapes.png

.venv/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Klip needs Python 3.11 or later: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/pip pyproject.toml
	$(PIP) --editable .
	touch $@

.venv/.dev: .venv/bin/pip pyproject.toml
	$(PIP) $(TORCH)
	$(PIP) --editable '.[dev]'
	touch $@ .venv/.core

clean:  ## remove what the other targets made
	rm -rf .venv quickstart .mypy_cache .ruff_cache .hypothesis
