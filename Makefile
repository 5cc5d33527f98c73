# `make run` trains, `make test` tests; the virtual environment is made once and reused.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: run horovod test test-all test-tail test-quick test-gpu chaos compat lint docs bench bench-gpu clean

run: $(STAMP)
	$(BIN)/python run.py

# Builds Horovod against the installed torch: minutes the first time, nothing from then on.
horovod: $(STAMP)
	$(BIN)/python -m runner install-horovod --mpi-if-possible

# Modules are compiled once, not by every process that tests start.
test test-tail test-quick: export PYTHONDONTWRITEBYTECODE =

# What a change must pass; file by file, since the tests of a file share runs. Four at once, since many wait.
# `make test PYTEST=--record-seconds` renews the seconds by which tests/longest_first.py sorts the files.
test: horovod
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m "not tail" $(PYTEST)

# With every combination of launchers, ranks, signals and options.
test-all: test test-tail

# What `make test` leaves out.
test-tail: horovod
	$(BIN)/python -m pytest -n 2 --dist loadfile -m tail

# Ten minutes in which ranks, agents, links and parents of a run on three machines are hurt at random; needs root.
chaos: $(STAMP)
	MANYHEADS_CHAOS_SECONDS=600 $(BIN)/python -m pytest -s tests/launchers/nodes/test_chaos.py

test-quick: horovod
	$(BIN)/python -m pytest -n 2 -m "not processes and not slow and not tail"

# What needs CUDA; ends with a table of what ran, and why the rest did not. Fails where nothing can run.
test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

# The suite's core on the lowest torch, and on the newest under each Python; fetches some 3 GB once, into /tmp.
compat: $(STAMP)
	$(BIN)/python -m tests.compat

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

# The documentation as a site, in build/docs/site; fails for a link that leads nowhere.
docs: $(STAMP)
	$(BIN)/python -m tests.docs

# Against other libraries too, where they are: pip install -e '.[bench]'. Some fifteen minutes, on a quiet machine.
bench: $(STAMP)
	$(BIN)/python -m tests.benchmarks

# ResNet-50 and ViT-B/16 in each precision, in less than ten minutes on one GPU.
bench-gpu: $(STAMP)
	$(BIN)/python -m tests.benchmarks.gpu

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
