# make check: what to run before a commit. Everything else is `snakemake` or `pytest`.
BIN ?= .venv/bin
PYTHON = $(BIN)/python
NOTEBOOKS = $(wildcard notebooks/*.py)
export OMP_NUM_THREADS ?= 1

.PHONY: help check lint test gpu-check format docs notebooks publish clean

help:
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

check: lint ## lint and unit tests, on all cores: two to three minutes on two
	$(PYTHON) -m pytest -n auto --maxprocesses 8 --dist loadfile

lint: ## format, lint, types, floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/snakefmt --check workflow
	$(BIN)/mypy
	$(BIN)/lint-imports

test: ## every test: also servers, whole runs, the workflow
	$(PYTHON) -m pytest tests

gpu-check: ## minutes on one NVIDIA GPU: learner, engine, both at once (PYTHON=python3 where there is no .venv)
	$(PYTHON) scripts/gpu_check.py $(GPU_CHECK)

format: ## write everything in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/snakefmt workflow

docs: ## the tables of config/README.md, from the models
	$(PYTHON) -m agentrl.config.reference config/README.md

notebooks: ## run notebooks/*.py on published numbers and write their .ipynb twins
	$(PYTHON) -m agentrl.reporting.notebook $(NOTEBOOKS)

publish: ## results/SCALE -> published/SCALE (SCALE=mini)
	$(PYTHON) -m agentrl.reporting.publish results/$(or $(SCALE),mini) published/$(or $(SCALE),mini)

clean: ## delete what rules made, after asking; published/ stays
	@du -sh results paper_figures state logs benchmarks .snakemake 2>/dev/null || true
	@printf 'Delete these? [y/N] '; read answer; if [ "$$answer" = y ]; then \
	  rm -rf results paper_figures state logs benchmarks .snakemake; fi
