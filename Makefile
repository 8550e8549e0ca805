# Every target builds the environment it needs in .venv; a second call finds it and goes on at once.
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null)
THRIFTY_DATA ?= ../shared/data
export THRIFTY_DATA

# Both installers write bytecode: without it, and where Python may not write it later, every start compiles scikit-learn.
ifdef UV
  MAKE_VENV = $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
  INSTALL = $(UV) pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt
else
  MAKE_VENV = $(PYTHON) -m venv $(VENV)
  INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
endif

.PHONY: help demo test test-pages test-reproduction test-quick coverage test-kernels test-lowest test-mlserver test-engines test-torch test-device test-proxy check dist-check format docs bench hostile paper paper-quick paper-smoke clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/python:
	@echo "making $(VENV) ..."
	@$(MAKE_VENV)

# What a user needs: the library, its command and its pictures.
$(VENV)/.user: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing thrifty ..."
	@$(INSTALL) -e '.[report]'
	@touch $@

# What a contributor needs on top: tests, types, format, and the generic solvers we are checked against.
$(VENV)/.dev: $(VENV)/.user
	@echo "installing the development tools ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@

# Rivals that the experiments also run.
$(VENV)/.boosters: $(VENV)/.user
	@echo "installing the rivals ..."
	@$(INSTALL) -e '.[report,boosters]'
	@touch $@

demo: $(VENV)/.user ## Fit a system on data bundled with scikit-learn and print the trade-off
	@$(BIN)/thrifty demo

# Two workers on two cores: threads of OpenMP and of the BLAS would fight over them; tests that compare numbers of threads ask
# for them. Modules are compiled once: workers, and the processes that tests start, would each do it again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

test: $(VENV)/.dev ## Run every test of the library, every doctest and the code of the README
	@$(PYTEST) tests src README.md --ignore=tests/test_pages.py

test-pages: $(VENV)/.dev ## Run the code of the guide's pages
	@$(PYTEST) tests/test_pages.py

test-reproduction: $(VENV)/.dev ## Run the tests of the paper's experiments
	@$(PYTEST) reproduction

coverage: $(VENV)/.dev ## Run every test and list the lines of the library that none of them runs
	@$(PYTEST) --cov --cov-report=term:skip-covered

test-quick: $(VENV)/.dev ## Run the tests that are not marked slow: in about two minutes, for use while writing code
	@$(PYTEST) -m 'not slow' tests

# KERNEL=ARMV8 runs one of them, KERNEL='ARMV8 last-bits' two; FOR_PYTEST="-m 'not slow'" is handed on.
test-kernels: $(VENV)/.dev ## Run the tests that touch floats with the kernels of other processors; KERNEL=NAME: with one of them
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python .ci/kernels.py $(KERNEL) -- $(FOR_PYTEST)

# MLServer asks for an older starlette than the gateway runs on, so it has an environment of its own.
.venv-mlserver/bin/mlserver:
	@echo "making .venv-mlserver ..."
	@$(MAKE_VENV:$(VENV)=.venv-mlserver)
	@$(if $(UV),$(UV) pip install --quiet --python .venv-mlserver/bin/python,.venv-mlserver/bin/python -m pip install --quiet) \
		'mlserver>=1.6' 'mlserver-sklearn>=1.6'

test-mlserver: $(VENV)/.dev .venv-mlserver/bin/mlserver ## Ask a real MLServer, in an environment of its own
	@THRIFTY_MLSERVER=$(CURDIR)/.venv-mlserver/bin/mlserver $(BIN)/python -m pytest -q tests/serve/test_mlserver.py

# Ray and Spark are large, and Spark needs Java 17. Ray fails at times without aiohttp, which it does not require.
.venv-engines/.done: pyproject.toml constraints.txt
	@echo "making .venv-engines ..."
	@$(MAKE_VENV:$(VENV)=.venv-engines)
	@$(if $(UV),$(UV) pip install --quiet --python .venv-engines/bin/python,.venv-engines/bin/python -m pip install --quiet) \
		-c constraints.txt -e '.[dask,parquet]' pytest hypothesis aiohttp 'ray[data]>=2.40' 'pyspark>=4'
	@touch $@

test-engines: .venv-engines/.done ## Score tables of Dask, Ray and Spark, in an environment of their own
	@PYSPARK_PYTHON=$(CURDIR)/.venv-engines/bin/python .venv-engines/bin/python -m pytest -q tests/scale

# torch is large: an environment of its own, without bytecode, which takes as long as the tests.
.venv-torch/.done: pyproject.toml constraints.txt
	@echo "making .venv-torch ..."
	@$(MAKE_VENV:$(VENV)=.venv-torch)
	@$(if $(UV),$(UV) pip install --quiet --python .venv-torch/bin/python,.venv-torch/bin/python -m pip install --quiet --no-compile) \
		-c constraints.txt -e '.[torch]' pytest hypothesis
	@touch $@

test-torch: .venv-torch/.done ## Ask networks of torch, in an environment of their own
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 .venv-torch/bin/python -m pytest -q tests/routing/test_networks.py

# Cross compilers and emulators, from Debian's packages; where they are missing, make test skips their tests.
DEVICE_TOOLS := gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm gcc-avr avr-libc simavr clang lld nodejs chromium chromium-driver
test-device: $(VENV)/.dev ## Run exported source on emulated microcontrollers and in WebAssembly; installs the tools
	@dpkg -s $(DEVICE_TOOLS) >/dev/null 2>&1 || $(if $(shell command -v sudo),sudo )apt-get install -y --no-install-recommends $(DEVICE_TOOLS)
	@THRIFTY_TEST_DEVICE=1 $(BIN)/python -m pytest -q tests/device

# The gateway behind nginx, from Debian's package, as deploy/nginx.conf sets it up: on the loopback, ended after the attacks.
test-proxy: $(VENV)/.dev ## Attack the gateway behind nginx: heads, connections, smuggling, TLS; installs nginx, takes two minutes
	@dpkg -s nginx-light >/dev/null 2>&1 || command -v nginx >/dev/null || $(if $(shell command -v sudo),sudo )apt-get install -y --no-install-recommends nginx-light
	@$(BIN)/python benchmarks/hostile.py heads connections smuggling tls

check: $(VENV)/.dev ## Format, lint, types, tests, doctests: what continuous integration runs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(PYTEST)

# The lowest versions that pyproject.toml allows, in an environment of their own; tests of what is not installed there skip.
LOWEST := .venv-lowest
test-lowest: ## Run a part of the tests with the lowest versions of all dependencies
	@$(PYTHON) -m venv $(LOWEST)
	@$(PYTHON) .ci/lowest.py report parquet > $(LOWEST)/lowest.txt
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/lowest.txt -e '.[report,parquet]' hypothesis 'polars<2' pytest
	@OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -m 'not slow' -W default tests/chain tests/prices tests/evidence tests/estimators/test_notebook.py tests/test_public_api.py

dist-check: ## Build wheel and source distribution, install each into an empty environment, and try it there
	@PYTHON=$(PYTHON) .ci/dist_check

format: $(VENV)/.dev ## Rewrite the sources in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# What the site is built with.
$(VENV)/.docs: $(VENV)/.user
	@echo "installing what the site is built with ..."
	@$(INSTALL) -e '.[docs]'
	@touch $@

# What the code of its pages prints is checked by the tests.
docs: $(VENV)/.docs ## Build the site into docs/_build/html: run its examples, warnings as errors, links checked
	@OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@$(BIN)/python docs/check_links.py docs/_build/html

# What decides before a release and takes minutes; the other scripts in benchmarks/ say what they measure.
bench: $(VENV)/.dev ## Time trees against LightGBM, first fits and the gateway, and print what a cascade saves (minutes)
	@$(BIN)/python benchmarks/engine.py --quick
	@$(BIN)/python benchmarks/first_fit.py
	@$(BIN)/python benchmarks/savings.py cancer digits
	@$(BIN)/python benchmarks/serve.py load closed

hostile: $(VENV)/.dev ## Attack files, gateway, providers, buying and certificates: prints cases and failures, within 15 minutes
	@$(BIN)/python benchmarks/hostile.py

paper: $(VENV)/.boosters ## Re-run the paper's experiments on the data in THRIFTY_DATA; goes on where it was interrupted
	@$(BIN)/python -m reproduction all --data $(THRIFTY_DATA) --out paper-out

paper-quick: $(VENV)/.boosters ## The same, thinned to minutes
	@$(BIN)/python -m reproduction all --data $(THRIFTY_DATA) --out paper-quick --profile quick

paper-smoke: $(VENV)/.boosters ## The same, thinned to seconds, as the tests run it
	@$(BIN)/python -m reproduction all --data $(THRIFTY_DATA) --out paper-smoke --profile smoke

clean: ## Remove the environment and every cache
	rm -rf $(VENV) $(LOWEST) .venv-mlserver .venv-engines .venv-torch dist .numba-generic .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/_build docs/gallery docs/generated
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
