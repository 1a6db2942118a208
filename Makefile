# Each target sets up all it needs in .venv; Python 3.11, make and git are enough to start.
PYTHON ?= python3
TORCH ?= torch==2.13.0
BIN := .venv/bin
SITE = lib/$(notdir $(realpath $(wildcard .venv/lib/python3.*)))/site-packages
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: quickstart style test docs pythons figures clean

quickstart: .venv/.core  ## check the theorems, train the paper's variants, write the page
	$(BIN)/klip verify
	$(BIN)/klip train CartPole-v1 --shape clip per-sample 'kl(b=1)' adaptive-kl --seeds 5 --out quickstart/runs
	$(BIN)/klip train Hopper-v4 --shape clip per-sample --seeds 1 --steps 204800 --out quickstart/runs
	$(BIN)/klip report quickstart/runs -o quickstart/report.html
	@echo "Open quickstart/report.html: tables, curves, the identity run by run, and an explorer of all shapes"

style: .venv/.dev  ## what the hooks before a commit run: lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: style .venv-trl/.dev .venv-verl/.dev .venv-torchrl/.dev .venv-rllib/.dev .venv-losses/.dev .venv-wheel/.ready docs  ## style, types, tests, the site
	$(BIN)/pytest -n 2 --dist worksteal --durations 40
	.venv-trl/bin/python -m pytest -n 2 --dist worksteal tests/adapters/trl klip/adapters/trl.py
	.venv-verl/bin/python -m pytest -n 2 --dist worksteal tests/adapters/verl klip/adapters/verl*.py
	.venv-torchrl/bin/python -m pytest -n 2 --dist worksteal tests/adapters/torchrl
	.venv-rllib/bin/python -m pytest -n 2 --dist worksteal tests/adapters/rllib
	.venv-losses/bin/python -m pytest tests/adapters/test_openrlhf.py tests/adapters/test_skyrl.py

docs: .venv-docs/.dev  ## the site, in site/html: notebooks executed, links checked, no warning
	.venv-docs/bin/python -m pytest tests/site/test_notebooks.py
	.venv-docs/bin/python docs/site/build.py site

pythons: .venv/.dev  ## the wheel in every supported Python that is here
	$(BIN)/python benchmarks/pythons.py

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

# TRL, verl, TorchRL and RLlib do not live together: each has an environment that lies on top of
# .venv, and holds only what .venv has not, or has in another version. So has the site, which nothing
# else needs.
.venv-%/.dev: .venv/.dev
	$(PYTHON) -m venv .venv-$*
	echo "import site; site.addsitedir('$(CURDIR)/.venv/$(SITE)')" > .venv-$*/$(SITE)/below.pth
	.venv-$*/bin/pip install --quiet --disable-pip-version-check 'klip-rl[$*]'
	touch $@

# OpenRLHF and SkyRL need graphics cards as a whole; their losses do not.
.venv-losses/.dev: .venv/.dev
	$(PYTHON) -m venv .venv-losses
	echo "import site; site.addsitedir('$(CURDIR)/.venv/$(SITE)')" > .venv-losses/$(SITE)/below.pth
	.venv-losses/bin/pip install --quiet --disable-pip-version-check --no-deps openrlhf==0.11.2 skyrl==0.3.0
	.venv-losses/bin/pip install --quiet --disable-pip-version-check hydra-core jaxtyping loguru omegaconf
	touch $@

# The wheel alone, as `pip install klip-rl` gives it; tests/test_wheel.py runs its commands.
.venv-wheel/.ready: .venv/.dev $(shell find klip -type f -not -name '*.pyc')
	rm -rf .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir .venv-wheel/dist .
	.venv-wheel/bin/pip install --quiet --disable-pip-version-check .venv-wheel/dist/*.whl
	touch $@

clean:  ## remove what the other targets made
	rm -rf .venv .venv-trl .venv-verl .venv-torchrl .venv-rllib .venv-losses .venv-wheel .venv-docs .cache
	rm -rf quickstart site .mypy_cache .ruff_cache .hypothesis
