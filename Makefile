# Needs python3, make and a package registry that pip can reach; everything else goes into .venv.
# Another interpreter: make test PYTHON=/path/to/python3.12

.DEFAULT_GOAL := help
SHELL := /bin/sh

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTHON ?=
ARGS ?=
UV_VERSION := 0.13.9

# The environment is made anew when it is missing or unfinished, when it was made in another folder, when its
# interpreter is gone, or when PYTHON asks for another one.
prefix_of = $(shell "$(1)" -c 'import sys; print(sys.base_prefix)' 2>/dev/null)
PREFIX := $(call prefix_of,$(BIN)/python)
ifeq ($(PREFIX),)
STALE := stale
else ifneq ($(shell cat $(READY) 2>/dev/null),$(CURDIR))
STALE := stale
else ifneq ($(if $(PYTHON),$(call prefix_of,$(PYTHON)),$(PREFIX)),$(PREFIX))
STALE := stale
else
STALE :=
endif

# Sets $$python to the first candidate that runs and is new enough: a version manager's shim can exist and yet fail.
define find_python
	python=; found=; \
	for candidate in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3); do \
	  version=$$("$$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) || version="does not run"; \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then python=$$candidate; break; fi; \
	  found="$$found$${found:+, }$$candidate ($$version)"; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "Python 3.12 or newer is needed; found $$found. Install one, or name it: make PYTHON=/path/to/python3.13" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python ($$version) has no venv module: install it (Debian and Ubuntu: python3-venv)." >&2; exit 1; \
	fi
endef

.PHONY: help demo test lint format lock clean stale

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## audit the bundled demo panel (343 participants, 2,744 cells)
	$(BIN)/evidial audit hydra.run.dir=outputs/demo $(ARGS)

# Threads of BLAS have nothing to share at these sizes, and spin while they wait for each other.
test: $(READY)  ## run the tests; more with ARGS, as in ARGS="-m slow"
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(ARGS)

lint: $(READY)  ## check style, formatting and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy

format: $(READY)  ## sort imports and format the code
	$(BIN)/python -m ruff check --select I --fix .
	$(BIN)/python -m ruff format .

# Registry addresses are left out, so that the file works with any index, and hashes are those of the public one.
lock:  ## write requirements.lock anew from pyproject.toml (UPGRADE=1: take newer versions)
	@$(find_python); \
	"$$python" -m venv .cache/lock && \
	.cache/lock/bin/python -m pip install -qq --disable-pip-version-check "uv==$(UV_VERSION)" && \
	env -u UV_INDEX -u UV_DEFAULT_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS \
	  .cache/lock/bin/uv --no-config --quiet pip compile pyproject.toml --extra dev $(if $(UPGRADE),--upgrade) \
	  --universal --python-version 3.12 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" --output-file requirements.lock
	@echo "requirements.lock: $$(grep -c '^[a-z]' requirements.lock) packages"

clean:  ## remove the environment, builds and caches (results in outputs/ stay)
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find evidial_bayes tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp goes first and comes last: a set-up that is interrupted anywhere leaves none and is redone.
$(READY): requirements.lock pyproject.toml $(STALE)
	@if [ -n "$(STALE)" ] || ! cmp -s requirements.lock $(VENV)/requirements.lock; then \
	  $(find_python); \
	  echo "Setting up $(VENV) with Python $$version (a minute or two)"; \
	  rm -f $(READY) && rm -rf $(VENV) && \
	  "$$python" -m venv $(VENV) && \
	  $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements.lock && \
	  cp requirements.lock $(VENV)/requirements.lock; \
	fi
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo "$(CURDIR)" > $@
