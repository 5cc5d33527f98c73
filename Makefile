# `make run` trains, `make test` tests; the virtual environment is made once and reused.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# What running needs is installed; and what tests and tools need.
RUN    := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev

.PHONY: run horovod horovod-if-possible test test-ci fresh test-all test-tail test-quick test-gpu mutations chaos compat \
        lint docs bench bench-gpu lock clean

run: $(RUN)
	$(BIN)/python run.py

# Builds Horovod against the installed torch: minutes the first time, nothing from then on.
horovod: $(DEV)
	$(BIN)/python -m runner install-horovod --mpi-if-possible

horovod-if-possible: $(DEV)
	@$(MAKE) --no-print-directory horovod || echo "Tests that need Horovod will be skipped."

# Modules are compiled once, not by every process that tests start.
test test-ci test-tail test-quick: export PYTHONDONTWRITEBYTECODE =

# File by file, since the tests of a file share runs. Four at once, since many wait.
SUITE  := $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# What a change must pass on the machine where it is made. Horovod, which takes minutes to build, is not built for it.
test: $(DEV)
	$(SUITE) -m "not tail and not ci" $(PYTEST)

# What a change must pass to be merged: also attacks, pages, packages, clusters and answers, by real processes.
# `make test-ci PYTEST=--record-seconds` renews the seconds by which tests/longest_first.py sorts the files.
test-ci: horovod-if-possible
	$(SUITE) -m "not tail" $(PYTEST)

# `make run` and `make test` in a clone, as on a machine that has Python, make and git only.
fresh:
	.ci/fresh

# With every combination of launchers, ranks, signals and options.
test-all: test-ci test-tail

# What `make test-ci` leaves out.
test-tail: horovod-if-possible
	$(BIN)/python -m pytest -n 2 --dist loadfile -m tail

# Ten minutes in which commands of every kind are killed, suspended, cut off or run out of disk at random moments, and
# resumed; most of it needs root. make chaos CHAOS="--minutes 120 --seed 3 --kind machines"
chaos: $(DEV)
	$(BIN)/python -m tests.chaos $(CHAOS)

# Plants faults in a copy of the code, one after the other, each of which the tests must find; some ten minutes.
mutations: $(DEV)
	$(BIN)/python -m tests.mutations

test-quick: $(DEV)
	$(BIN)/python -m pytest -n 2 -m "not processes and not slow and not tail"

# What needs CUDA; ends with a table of what ran, and why the rest did not. Fails where nothing can run.
test-gpu: $(DEV)
	$(BIN)/python -m pytest -m gpu -n auto --maxprocesses 6 tests/gpu tests

# Before a release: the suite's core on the lowest torch, and on the newest under each Python, whether each extra can be
# installed; fetches some 3 GB once, into /tmp.
compat: $(DEV)
	$(BIN)/python -m tests.compat

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

# The documentation as a site, in build/docs/site; fails for a link that leads nowhere.
docs: $(DEV)
	$(BIN)/python -m tests.docs

# What every run costs. Against other libraries too, where they are: pip install --group bench. Some twelve minutes on
# two idle cores; what other programs print goes to outputs/benchmarks/<date>.log.
bench: $(DEV)
	$(BIN)/python -m tests.benchmarks

# ResNet-50 and ViT-B/16 in each precision, in less than ten minutes on one GPU.
bench-gpu: $(DEV)
	$(BIN)/python -m tests.benchmarks.gpu

# The versions of everything for tests and CI, with hashes: the newest that pyproject.toml allows.
lock: $(DEV)
	.ci/lock

$(RUN): pyproject.toml .ci/versions.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	.ci/install $(VENV)
	touch $@

$(DEV): $(RUN)
	.ci/install $(VENV) --group dev
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
