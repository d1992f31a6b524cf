# A fresh machine with Python 3.11 or newer needs nothing else for `make demo`.
#   make demo ARGS="--fault hang --keep"     make test ARGS="tests/relight -k config"     make venv PYTHON=python3.12

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
ARGS ?=
bin := $(VENV)/bin

# The CPU builds of PyTorch. The usual index has those for GPUs: they need gigabytes of CUDA, and cannot be imported
# without it (seen with 2.13.0). Elsewhere than on this index, pip looks as it is configured (PIP_FIND_LINKS).
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
checkpoints := $(VENV)-checkpoints
faults := $(VENV)-faults

.PHONY: help demo demo-slurm test test-checkpoints test-pyslurm test-compose screenshots bench bench-quick \
	bench-faults bench-page docs reference lint audit slurm slurm-packages venv clean

help:
	@echo "make demo            a small training job, a fault, a recovery: needs only Python 3.11+"
	@echo "make demo-slurm      the same on a real Slurm cluster that is started here and stopped again"
	@echo "make test            installs what the tests start (Debian, as root), then runs all tests"
	@echo "make test-checkpoints   checkpoints that the real libraries write (PyTorch and others, CPU builds)"
	@echo "make test-pyslurm    the pyslurm adapter on a real Slurm (SLURM_PREFIX=... names its installation)"
	@echo "make bench           all benchmarks (an hour and more); bench-quick: less of each, in under 10 minutes"
	@echo "make test-compose    deploy/compose in a container engine (Docker with Compose): builds the image, starts all"
	@echo "make bench-faults    real faults of a real PyTorch training on Slurm, some hours (ARGS=\"--runs 3 --resume\")"
	@echo "make bench-page      docs/benchmarks.md and where the time goes, from the results in bench/results: runs nothing"
	@echo "make screenshots     takes the pictures in docs/images anew (Chromium)"
	@echo "make lint            ruff, mypy --strict, import arrows, the documentation's links"
	@echo "make docs            the documentation as web pages, in site/"
	@echo "make reference       writes the pages of docs/reference/ that are made from the code"
	@echo "make audit           known holes in what relight depends on (asks PyPI's advisories)"
	@echo "make slurm           a real four-node Slurm cluster on this machine, until Ctrl-C"
	@echo "make slurm-packages  installs Slurm, munge, MariaDB, Prometheus and Chromium for the tests (Debian, as root)"
	@echo "make venv            $(VENV) with relight and all development tools"

demo: $(VENV)/.installed
	$(bin)/relight demo $(ARGS)

demo-slurm: $(VENV)/.installed
	$(bin)/python -m tests.slurm.cluster --nodes 4 -- $(abspath $(bin))/relight demo --scheduler slurm-cli $(ARGS)

# All tests mostly wait: the integration tests run beside the others, and those in two processes. The checkpoint
# tests begin with a download of some 490 MB.
test: $(VENV)/.developing slurm-packages
ifeq ($(ARGS),)
	@echo "tests/integration runs beside the others; what it says follows at the end ($(VENV)/beside.log)"
	@$(bin)/python -m pytest tests/integration >$(VENV)/beside.log 2>&1 & beside=$$!; \
	$(bin)/python -m pytest -n2 --dist loadfile --ignore=tests/integration; others=$$?; \
	$(MAKE) --no-print-directory test-checkpoints; checkpoints=$$?; \
	wait $$beside; beside=$$?; cat $(VENV)/beside.log; exit $$((others || checkpoints || beside))
else
	$(bin)/python -m pytest $(ARGS)
endif

test-checkpoints: $(checkpoints)/.installed
	RELIGHT_REAL_LIBRARIES=1 $(checkpoints)/bin/python -m pytest tests/relight/checkpoints/real $(ARGS)

# A second environment: pyslurm is built for one release of Slurm.
SLURM_PREFIX ?=
SLURM_INCLUDE_DIR ?= $(SLURM_PREFIX)/include
SLURM_LIB_DIR ?= $(SLURM_PREFIX)/lib
pyslurm := $(VENV)-pyslurm

test-pyslurm:
	@for file in "$(SLURM_INCLUDE_DIR)/slurm/slurm_version.h" "$(SLURM_PREFIX)/bin/sinfo"; do \
		test -e "$$file" || { echo "make test-pyslurm SLURM_PREFIX=DIR needs a Slurm installation with headers in DIR" \
			"(there is no $$file); SLURM_INCLUDE_DIR and SLURM_LIB_DIR may be elsewhere" >&2; exit 2; }; done
	$(PYTHON) -m venv $(pyslurm)
	$(pyslurm)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(pyslurm)/bin/python -m pip install --quiet --editable . --group dev
	SLURM_INCLUDE_DIR=$(SLURM_INCLUDE_DIR) SLURM_LIB_DIR=$(SLURM_LIB_DIR) $(pyslurm)/bin/python -m pip install --quiet \
		"pyslurm==$$($(SLURM_PREFIX)/bin/sinfo --version | sed -n 's/^slurm \([0-9]*\.[0-9]*\).*/\1/p').*"
	PATH="$(SLURM_PREFIX)/bin:$(SLURM_PREFIX)/sbin:$$PATH" RELIGHT_REAL_PYSLURM=1 \
		$(pyslurm)/bin/python -m pytest tests/relight/scheduler/real_pyslurm $(ARGS)

# Results are kept in bench/results; ARGS="--label 2" keeps the earlier ones too.
bench bench-quick: $(VENV)/.developing slurm-packages
	$(bin)/python -m bench.everything $(if $(filter bench-quick,$@),--quick) $(ARGS)

test-compose: $(VENV)/.developing
	RELIGHT_COMPOSE=1 $(bin)/python -m pytest tests/deploy/engine $(ARGS)

# Raw runs are appended to faults.jsonl: after a break, ARGS=--resume goes on. `make bench-page` shows the result.
bench-faults: $(faults)/.installed slurm-packages
	$(faults)/bin/python -m bench.faults --json bench/results/faults-$$(date +%F).json $(ARGS)

bench-page: $(VENV)/.developing
	$(bin)/python -m bench.faults.profile --plot docs/images/waterfall.svg
	$(bin)/python -m bench.page

screenshots: $(VENV)/.developing slurm-packages
	$(bin)/python -m pytest tests/browser/test_web_ui.py --screenshots docs/images

lint: $(VENV)/.developing
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build --quiet --site-dir $(VENV)/site

docs: $(VENV)/.developing
	NO_MKDOCS_2_WARNING=1 $(bin)/mkdocs build
	@echo "begin at site/index.html"

reference: $(VENV)/.developing
	$(bin)/python -m scripts.reference
	$(bin)/python scripts/metrics_reference.py

# --strict: a package that could not be looked up counts as a failure, and not as a clean one.
audit: $(VENV)/.developing
	test -x $(VENV)-audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)-audit && \
		$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit; }
	$(bin)/python -m pip freeze --exclude-editable >$(VENV)/audit.txt
	$(VENV)-audit/bin/pip-audit --strict --disable-pip --no-deps --progress-spinner off \
		--requirement $(VENV)/audit.txt

slurm: $(VENV)/.installed
	$(bin)/python -m tests.slurm.cluster --nodes 4

slurm-packages:
	scripts/install-test-services

venv: $(VENV)/.developing

$(bin)/python:
	@test -n "$(PYTHON)" || { echo "relight needs Python 3.11 or newer, and found none: install one," \
		"or name it with make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments;" \
		"on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Stamps: installed again when pyproject.toml has changed.
$(VENV)/.installed: pyproject.toml | $(bin)/python
	$(bin)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(bin)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'  # knows --group
	$(bin)/python -m pip install --quiet --group dev
	@touch $@

# An environment with PyTorch, and the packages of one group.
define with-torch
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@torch="$$(sed -n 's/.*"\(torch==[0-9.]*\)".*/\1/p' pyproject.toml | head -n1)+cpu"; set -x; \
	$(@D)/bin/python -m pip install --quiet --retries 2 --no-deps --extra-index-url $(TORCH_INDEX) \
		"$$torch" || { set +x; echo "no $$torch, which this needs: neither" \
		"$(TORCH_INDEX) nor pip's own places have it for this Python; name another index with" \
		"make TORCH_INDEX=URL, or a directory with the wheel with PIP_FIND_LINKS=DIR" >&2; exit 1; }
	$(@D)/bin/python -m pip install --quiet --editable . --group $(1)
	@touch $@
endef

$(checkpoints)/.installed: pyproject.toml
	$(call with-torch,checkpoint-tests)

$(faults)/.installed: pyproject.toml
	$(call with-torch,fault-suite)

clean:
	rm -rf $(VENV) $(VENV)-audit $(checkpoints) $(faults) $(pyslurm) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
