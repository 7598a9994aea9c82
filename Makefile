# Every target runs the set-up first. A bare Linux machine needs only `make demo` and `make test`.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
CONSOLE := console/dist/index.html
CONSOLE_SOURCES := $(shell find console -type f -not -path '*/node_modules/*' -not -path 'console/dist/*' -not -name schema.ts)
READY := $(STAMP) $(CONSOLE)

.PHONY: help setup demo screenshots test test-more test-all test-alone test-waiting fuzz contract mutation check format docs docs-site dist dist-check test-pythons test-versions bench-recovery bench-overhead bench-functions bench-parallel bench-faults bench-planner bench-scheduler bench-api bench-resize bench-console bench-prediction bench-control bench-state gpu gpu-bundle clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## create .venv and build the console; again after a change of constraints.txt, pyproject.toml or the console

$(STAMP): constraints.txt pyproject.toml .ci/setup
	@.ci/setup $(STAMP)

$(CONSOLE): $(CONSOLE_SOURCES) docs/openapi.json | $(STAMP)
	@$(BIN)/python .ci/console.py build

demo: $(READY) ## train on text, kill a rank half-way, compare with an undisturbed run (3 minutes)
	@$(BIN)/python -m regroup.api.cli demo

screenshots: $(READY) ## pictures of the console for README and docs, from a run with a killed rank; needs Chromium (2 minutes)
	@$(BIN)/python -m docs.generators.screenshots

# The processes of tests read compiled modules, as those of an installed package do.
export PYTHONDONTWRITEBYTECODE :=

# End-to-end tests run two files at a time, in order: each process starts servers and clusters of its own. Those marked `alone` cut links,
# freeze nodes, shift clocks or measure times. They run one after the other, next to the injected faults of files that wait most of the time.
E2E := -n 2 --dist loadfile --no-loadscope-reorder tests/e2e
RAY := tests/service/ray_adapter
E2E_MORE := tests/console tests/e2e/workloads tests/e2e/operations tests/e2e/storage tests/e2e/pages/test_first_minutes.py
E2E_WAITING := tests/e2e/failures/test_chaos.py tests/e2e/failures/test_disabled_detectors.py

test: $(READY) ## run the tests that are not marked slow
	@$(BIN)/python .ci/console.py test
	@$(BIN)/python -m pytest -m "not slow" -n 3 --dist worksteal --ignore tests/e2e
	@$(BIN)/python -m pytest -m "not slow and not soak" $(E2E)

# The coverage of the first part is measured. SlipCover changes bytecode instead of tracing: on Python 3.11, traced tests take twice as long.
# It counts the code that runs in the test processes. Ranks, agents and servers are processes of their own, and a killed one writes no data.
# Tests of the Ray adapter run with the end-to-end tests: Ray pickles bytecode, which SlipCover has changed.
test-all: $(READY) ## run all tests except soaks (`pytest -m soak` runs those); report coverage
	@mkdir -p build
	@$(BIN)/python -m slipcover --source api,service,workers --omit '*/migrations/*' --json --out build/coverage.json -m pytest -m "not soak and not contract" -n 3 --dist worksteal --ignore tests/e2e --ignore $(RAY)
	@$(BIN)/python .ci/coverage.py build/coverage.json
	@$(MAKE) --no-print-directory mutation contract
	@$(BIN)/python -m pytest -m "not alone and not soak" $(E2E) $(RAY) $(E2E_WAITING:%=--ignore %)
	@$(MAKE) --no-print-directory -j 2 --output-sync=target test-alone test-waiting

# CI runs these after `make test`: slow tests of what users do most. `make test-all` has them, too.
test-more: $(READY) ## run the slow tests of the console, workloads, operations, storage and the first minutes (20 minutes)
	@$(BIN)/python -m pytest -m "slow and not alone and not soak" $(filter-out tests/e2e,$(E2E)) $(E2E_MORE)

test-alone test-waiting: $(READY)
test-alone:
	@$(BIN)/python -m pytest -m "alone and not soak" tests/e2e
test-waiting:
	@$(BIN)/python -m pytest -m "slow and not soak" $(E2E_WAITING)

mutation: $(READY) ## put a sample of small errors into engine and policies, and require that unit tests fail; ALL=1: all errors, hours
	@$(BIN)/python -m tests.mutation $(if $(ALL),--all)

S := 600
fuzz: $(READY) ## run each fuzz test with random inputs for S seconds, 600 by default
	@REGROUP_FUZZ_S=$(S) $(BIN)/python -m pytest -m fuzz

contract: $(READY) ## send requests of schemathesis to all routes of the API, in four roles, with all its checks (5 minutes)
	@$(BIN)/python -m pytest -m contract tests/contract

check: $(READY) ## check style, types, import rules, spelling and phrases
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/pyright
	@$(BIN)/pyright -p .ci/pyright_tests.json
	@$(BIN)/lint-imports
	@$(BIN)/codespell
	@$(BIN)/python -m tests.support.language
	@$(BIN)/python .ci/console.py check

format: $(READY) ## reformat the code and apply automatic fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(READY) ## regenerate the generated pages: states, commands, spec, API, dashboard
	@$(BIN)/python docs/generate.py

docs-site: $(READY) ## build the documentation site in build/docs/site; a broken link or anchor is an error
	@$(BIN)/python docs/build_site.py

dist: $(READY) ## build the sdist and the wheel in dist/
	@$(BIN)/python .ci/dist.py build

test-pythons: $(READY) ## run tests of the control plane on the other supported Pythons of this machine (3 minutes)
	@$(BIN)/python .ci/dist.py test

test-versions: $(READY) ## run the tests of the workers with the oldest and the newest supported torch; downloads 6 GB at first
	@$(BIN)/python .ci/torch_versions.py

dist-check: $(READY) ## build both and install the wheel in clean environments, with pip and uv (1 minute)
	@$(BIN)/python .ci/dist.py check

bench-recovery: $(READY) ## time from a kill to the next step, compared with Ray Train
	@$(BIN)/python -m benchmarks.recovery --json benchmarks/results/recovery.json

bench-overhead: $(READY) ## cost of a supervised step, compared with a bare torch loop
	@$(BIN)/python -m benchmarks.overhead --json benchmarks/results/overhead.json

bench-functions: $(READY) ## recovery of a training function, compared with the built-in trainer
	@$(BIN)/python -m benchmarks.functions --json benchmarks/results/functions.json

bench-parallel: $(READY) ## throughput of each layout, compared with hand-written torch loops
	@$(BIN)/python -m benchmarks.parallel --json benchmarks/results/parallel.json

bench-scheduler: $(READY) ## one scheduling pass over 10,000 nodes, and a simulated week of 16,384 GPUs
	@$(BIN)/python -m benchmarks.scheduler --json benchmarks/results/scheduler.json

bench-api: $(READY) ## cost of submits, reads, scrapes, followers, identity and hostile bodies; needs PostgreSQL
	@$(BIN)/python -m benchmarks.api --json benchmarks/results/api.json

bench-resize: $(READY) ## pause while a job is resized, compared with Ray Train
	@$(BIN)/python -m benchmarks.resize --json benchmarks/results/resize.json

bench-faults: $(READY) ## cost of each kind of failure, twenty trials each
	@$(BIN)/python -m benchmarks.faults --json benchmarks/results/faults.json

bench-console: $(READY) ## first load, list of many jobs, events and open pages of the console; needs PostgreSQL and Chromium
	@$(BIN)/python -m benchmarks.console --json benchmarks/results/console.json

bench-prediction: $(READY) ## step times that the planner predicts after a probe, compared with real ones
	@$(BIN)/python -m benchmarks.prediction --json benchmarks/results/prediction.json

bench-state: $(READY) ## snapshots, transfers, checkpoints and recovery at 1 and 4 GB of state, compared with torch DCP
	@$(BIN)/python -m benchmarks.state --json benchmarks/results/state.json

bench-control: $(READY) ## supervisor of 16,384 ranks, and server with 5,000 live jobs; simulated agents and supervisors; needs PostgreSQL
	@$(BIN)/python -m benchmarks.control --json benchmarks/results/control.json

bench-planner: $(READY) ## the planner's predictions, compared with published runs; DATA=measured-configurations.csv
	@$(BIN)/python -m benchmarks.planner --json benchmarks/results/planner.json $(if $(DATA),--data $(DATA))

# On a machine without the set-up, Python's own packages are used. `make gpu --dry-run` sets make's own flag n, and `+` runs the line even then.
GPU_PYTHON := $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)
gpu: ## prove the CUDA path on one GPU, stage by stage; --dry-run: on the CPU at toy size; ARGS="--from speed"
	+@$(GPU_PYTHON) -m benchmarks.gpu $(if $(findstring n,$(firstword -$(MAKEFLAGS))),--dry-run) $(ARGS)

gpu-bundle: $(READY) ## pack this tree and its wheels for `make gpu` on a machine without a network; ARGS="--ray"
	@$(BIN)/python -m benchmarks.gpu.bundle $(ARGS)

clean: ## remove all build products
	rm -rf console/dist console/node_modules console/src/api/schema.ts
	rm -rf $(VENV) build dist demo *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
