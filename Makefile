# `make demo` and `make test` are all the set-up there is: each makes .venv and installs what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help install demo test check soak bench docs gpu-check clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(VENV)/.installed  ## the environment in .venv

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[mpi,sweep,dev]'
	@# their own requirements would bring torchvision, which does not load beside every torch
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps curvlinops-for-pytorch backpack-for-pytorch
	touch $@

demo: install  ## trains the climate pipeline on sample data and prints where its report is
	$(BIN)/scadl train climate

test: install  ## all tests but the long ones
	$(PYTEST) -m 'not soak and not gpu' -n 2 --dist worksteal

check: install  ## format, lint, types, floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

soak: install  ## the long tests: every kill, every seed
	$(PYTEST) -m soak

bench: install  ## the README's tables: three seeds on the sample set against the simple rule
	$(BIN)/scadl train climate -m seed=0,1,2

docs: install  ## the documentation as a site in build/site; a warning is an error
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

gpu-check: install  ## the GPU against the CPU, where there is one
	$(PYTEST) -m gpu -rs -s

clean:  ## removes the environment
	rm -rf $(VENV)
