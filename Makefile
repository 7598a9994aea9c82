# Every target does its own set-up. `make demo` and `make test` are all that a bare Linux machine needs.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

.PHONY: help setup demo test test-all check format docs bench-recovery bench-overhead bench-functions bench-parallel bench-faults bench-planner bench-scheduler bench-resize bench-prediction clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## make .venv; done again when constraints.txt or pyproject.toml changed or it was interrupted

$(STAMP): constraints.txt pyproject.toml .ci/setup
	@.ci/setup $(STAMP)

demo: $(STAMP) ## train on text, kill a rank half-way, compare with an undisturbed run (3 minutes)
	@$(BIN)/python -m regroup.api.cli demo

test: $(STAMP) ## everything but the tests marked slow
	@$(BIN)/python -m pytest -m "not slow"

# Tests that strike whole clusters look at the whole machine, and have it to themselves; the others run three at a time,
# which saves five and a half minutes.
test-all: $(STAMP) ## every test but soaks, which bench-faults judges at full length
	@$(BIN)/python -m pytest -m "not soak" -n 3 --ignore tests/e2e
	@$(BIN)/python -m pytest -m "not soak" tests/e2e

check: $(STAMP) ## style, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports

format: $(STAMP) ## rewrite to the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(STAMP) ## write again what is generated: states, commands, spec, API, dashboard
	@$(BIN)/python docs/generate.py

bench-recovery: $(STAMP) ## kill to first new step, beside Ray Train
	@$(BIN)/python -m benchmarks.recovery --json benchmarks/results/recovery.json

bench-overhead: $(STAMP) ## a supervised step beside a bare torch loop
	@$(BIN)/python -m benchmarks.overhead --json benchmarks/results/overhead.json

bench-functions: $(STAMP) ## recovery of a training function beside the built-in trainer's
	@$(BIN)/python -m benchmarks.functions --json benchmarks/results/functions.json

bench-parallel: $(STAMP) ## the trainer's layouts beside hand-written torch loops of the same layouts
	@$(BIN)/python -m benchmarks.parallel --json benchmarks/results/parallel.json

bench-scheduler: $(STAMP) ## a look at the queue of 10,000 nodes, and a week of 16,384 GPUs
	@$(BIN)/python -m benchmarks.scheduler --json benchmarks/results/scheduler.json

bench-resize: $(STAMP) ## the gap when a job changes its size, beside Ray Train
	@$(BIN)/python -m benchmarks.resize --json benchmarks/results/resize.json

bench-faults: $(STAMP) ## what each kind of failure costs, twenty of each
	@$(BIN)/python -m benchmarks.faults --json benchmarks/results/faults.json

bench-prediction: $(STAMP) ## steps that the planner predicts after a probe, beside real ones
	@$(BIN)/python -m benchmarks.prediction --json benchmarks/results/prediction.json

bench-planner: $(STAMP) ## the planner's predictions beside what others measured; DATA=measured-configurations.csv
	@$(BIN)/python -m benchmarks.planner --json benchmarks/results/planner.json $(if $(DATA),--data $(DATA))

clean: ## remove what was built here
	rm -rf $(VENV) build dist demo *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
