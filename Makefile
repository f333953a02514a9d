# Two commands: `make demo` and `make test`. Both build .venv from pinned constraints when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow test-engines lint clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, found " + sys.version.split()[0] + ": set PYTHON=python3.11 (or newer)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -c constraints.txt -e '.[dev]'
	$(BIN)/evalkit data prepare ruler
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/evalkit run recipes/eval/demo.toml --out runs/demo
	$(BIN)/evalkit report runs/demo

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow

test-engines: $(STAMP)
	$(BIN)/python -m pytest -m engines -rs tests/engines_source

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) runs
