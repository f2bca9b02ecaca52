# Each target makes its own virtual environment, so that a fresh clone needs nothing but Python 3.11 or later and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint docs bench clean

demo: $(VENV)/.demo
	$(BIN)/labelwise demo --out demo --force

test: lint
	$(BIN)/pytest -n 2

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

bench: $(VENV)/.dev
	for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script || exit 1; done

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# torch's build for CPUs is enough, and much smaller: where pip does not find it by itself, PIP_EXTRA_INDEX_URL names a place.
$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[neural]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
