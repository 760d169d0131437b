# Every target works on a bare machine with Python 3.11: the virtual environment is made first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# One thread a worker: on few cores, several single-threaded workers are far faster than one threaded one.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n auto

.PHONY: demo test check format bench clean

demo: $(READY)  ## a DeTraMe network against its ReLU twin on handwritten digits, and a page about it
	$(BIN)/detrame compare

test: $(READY)  ## all tests, with coverage
	$(PYTEST) --cov --cov-report=term --cov-fail-under=95

check: $(READY)  ## format, lint, types, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow"

format: $(READY)  ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## q_metric_relu against the paper's equation, on this machine
	$(BIN)/python benchmarks/q_metric_relu.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

# Checked first: an environment made by an older Python would stay, whatever Python is named next.
OLD := needs Python 3.11 or newer, got %d.%d: name another, as in make demo PYTHON=python3.11

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; v = sys.version_info[:2]; v < (3, 11) and sys.exit('DeTraMe $(OLD)' % v)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@
