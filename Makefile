# Everything runs in a private environment, .venv, that the first command builds and later ones reuse.
# Works from anywhere: make -C path/to/deniable demo

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

# What the caller's shell says about other environments must not leak into ours.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
# Tests start thousands of processes: without compiled files each of them would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_USER := 0
# The site generator would print an advertisement for its successor; docs/adr/0002-dependencies.md has the fact.
export NO_MKDOCS_2_WARNING := 1

# PYTHON=... chooses an interpreter; otherwise the first that is new enough.
PYTHON ?=
BIN := .venv/bin
TO_RUN := demo
# A comma written into a call would end its argument.
WITH_SPARK := .[dev,spark,adapters,lakes]
# A local object store that speaks S3.
OBJECT_STORE := moto[server]
# pip finds a small wheel for processors by this version; others bring gigabytes for accelerators.
TORCH := torch==2.13.0 llvmlite==0.50.0
# One worker per file at a time: the code blocks of a page share a namespace. Three on two cores, as many tests wait.
IN_PARALLEL := -n 3 --dist loadfile

# $(call build_env,folder,what to install)
define build_env
	@if [ ! -x $(1)/bin/python ] || ! $(1)/bin/python -m pip --version >/dev/null 2>&1; then \
	  for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 python; do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$${found:-}" ]; then \
	    echo "deniable needs Python 3.11 or newer; none was found. Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; \
	  fi; \
	  echo "building $(1) with $$("$$found" --version)"; \
	  rm -rf $(1); \
	  "$$found" -m venv $(1) || { rm -rf $(1); echo "$$found cannot make an environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; \
	fi
	@echo "installing into $(1) (once, and again when the requirements change)"
	@$(1)/bin/python -m pip install -qq $(2)
	@touch $@
endef

# $(call from_debian,how to see that it is there,its package): installed where it is missing and we may.
define from_debian
	@if ! { $(1); } >/dev/null 2>&1 && command -v apt-get >/dev/null; then \
	  [ "$$(id -u)" = 0 ] && as_root="" || as_root="sudo -n"; \
	  if $$as_root true 2>/dev/null; then \
	    echo "installing $(2)"; \
	    $$as_root apt-get update -qq || true; \
	    $$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(2) >/dev/null || true; \
	  fi; \
	fi
	@{ $(1); } >/dev/null 2>&1 || { echo "these tests need $(2); on Debian and Ubuntu: apt install $(2)" >&2; exit 1; }
endef

# Stamps: a second run finds them newer than the requirements and does nothing.
.venv/.ready-to-run: pyproject.toml
	$(call build_env,.venv,-e ".[$(TO_RUN)]")

.venv/.ready-to-develop: pyproject.toml
	$(call build_env,.venv,-e ".[dev]")

.venv/.ready-with-spark: .venv/.ready-to-develop
	$(call build_env,.venv,-e "$(WITH_SPARK)" $(TORCH) "$(OBJECT_STORE)")

# Apart: it brings a plugin of its own for pytest.
.venv-schemathesis/.ready: pyproject.toml
	$(call build_env,.venv-schemathesis,"schemathesis>=4")

.venv-bench-queries/.ready: pyproject.toml benchmarks/requirements-queries.txt
	$(call build_env,.venv-bench-queries,-e ".[sql]" -r benchmarks/requirements-queries.txt)

.venv-bench-learn/.ready: pyproject.toml benchmarks/requirements-learn.txt
	$(call build_env,.venv-bench-learn,-e . -r benchmarks/requirements-learn.txt)

.venv-bench/.ready: pyproject.toml benchmarks/requirements.txt
	$(call build_env,.venv-bench,-e . -r benchmarks/requirements.txt)

.venv-bench-amplification/.ready: pyproject.toml benchmarks/requirements-amplification.txt
	$(call build_env,.venv-bench-amplification,-e . -r benchmarks/requirements-amplification.txt)

.venv-bench-noise/.ready: pyproject.toml benchmarks/requirements-noise.txt
	$(call build_env,.venv-bench-noise,-e . -r benchmarks/requirements-noise.txt)

.venv-bench-estimators/.ready: pyproject.toml benchmarks/requirements-estimators.txt
	$(call build_env,.venv-bench-estimators,-e ".[sklearn]" -r benchmarks/requirements-estimators.txt)

.venv-bench-synth/.ready: pyproject.toml benchmarks/requirements-synth.txt
	$(call build_env,.venv-bench-synth,-e ".[sql]" -r benchmarks/requirements-synth.txt)

.venv-bench-audit/.ready: pyproject.toml benchmarks/requirements-audit.txt
	$(call build_env,.venv-bench-audit,-e . -r benchmarks/requirements-audit.txt)

.PHONY: help
help:  ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' Makefile

.PHONY: demo
demo: .venv/.ready-to-run  ## questions to a real table, and a tour of curves; pictures, people.csv and people.yaml land in demo-output/
	@$(BIN)/deniable demo --out demo-output/

.PHONY: test
test: .venv/.ready-to-develop  ## the tests, doctests and code blocks of the docs that are quick and need nothing but Python
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not slow and not spark and not postgres and not browser and not torch"
	@echo "Left out: slow tests and those that need torch, Spark, Postgres, other databases or a browser. To run them too: make test-all"

# Learning needs torch, Spark Java, ledgers Postgres, sources of tables MariaDB, and the console a browser.
.PHONY: test-all
test-all: .venv/.ready-with-spark  ## everything, the slow ones and those of torch, Spark, databases and the browser too
	$(call from_debian,command -v java,default-jre-headless)
	$(call from_debian,ls /usr/lib/postgresql/*/bin/initdb || command -v initdb,postgresql)
	$(call from_debian,PATH=$$PATH:/usr/sbin command -v mariadbd,mariadb-server)
	$(call from_debian,command -v chromium,chromium)
	@$(MAKE) --no-print-directory .venv-schemathesis/.ready || echo "without schemathesis: its test is skipped" >&2
	@$(BIN)/python -m pytest $(IN_PARALLEL)

.PHONY: redteam
redteam: .venv/.ready-to-develop .venv-schemathesis/.ready  ## every attack, and a table of what came of it
	$(call from_debian,ls /usr/lib/postgresql/*/bin/initdb || command -v initdb,postgresql)
	$(call from_debian,command -v chromium,chromium)
	@$(BIN)/python -m tests.redteam $(IN_PARALLEL) -m "not spark"

.PHONY: coverage
coverage: .venv/.ready-to-develop  ## the tests, and which lines they miss
	@$(BIN)/python -m pytest $(IN_PARALLEL) -m "not spark and not postgres and not browser and not torch" --cov --cov-report=term --cov-report=html

.PHONY: pictures
pictures: .venv/.ready-to-develop  ## draw the pictures of the docs again
	@$(BIN)/python docs/draw.py
	@$(BIN)/python docs/draw_course.py
	@$(BIN)/python docs/draw_attacks.py
	@$(BIN)/python docs/draw_synthetic.py
	@$(BIN)/python docs/draw_console.py
	@$(BIN)/python docs/draw_explore.py --numbers
	@$(BIN)/python docs/draw_house.py

# The reference lists learn.torch and learn.sklearn too, so their packages must be there.
.PHONY: reference
reference: .venv/.ready-with-spark  ## write docs/reference.md again
	@$(BIN)/python docs/reference.py

.PHONY: check
check: .venv/.ready-to-develop  ## format, lint, types, doors between rooms, docs build
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/mkdocs build --strict

.PHONY: format
format: .venv/.ready-to-develop  ## put the code into shape
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# Never with --quiet: --strict counts only the warnings that may be printed.
.PHONY: docs
docs: .venv/.ready-to-develop  ## build the documentation into site/
	@$(BIN)/mkdocs build --strict
	@echo "open site/index.html"

.PHONY: bench-curves
bench-curves: .venv-bench/.ready  ## us and our peers on the same curves, in one run
	@.venv-bench/bin/python benchmarks/curves.py
	@.venv-bench/bin/python benchmarks/curves_box.py
	@.venv-bench/bin/python benchmarks/curves_box.py --box whole --cases 200

.PHONY: bench-amplification
bench-amplification: .venv-bench-amplification/.ready  ## sampling, allocation and shuffling beside other libraries, in one run
	@.venv-bench-amplification/bin/python benchmarks/amplification.py

.PHONY: bench-noise
bench-noise: .venv-bench-noise/.ready  ## exact noise and mechanisms beside other libraries, in one run
	@.venv-bench-noise/bin/python benchmarks/noise.py

.PHONY: bench-local
bench-local: .venv-bench-noise/.ready  ## the local model beside pure-ldp, in one run
	@.venv-bench-noise/bin/python benchmarks/local.py

.PHONY: bench-audit
bench-audit: .venv-bench-audit/.ready  ## audits beside jax-privacy, in one run
	@.venv-bench-audit/bin/python benchmarks/audit.py

.PHONY: bench-estimators
bench-estimators: .venv-bench-estimators/.ready  ## private estimators on real data beside diffprivlib and DP-EBM, in one run
	@.venv-bench-estimators/bin/python benchmarks/estimators.py

.PHONY: bench-synth
bench-synth: .venv-bench-synth/.ready  ## synthetic data beside private-pgm, smartnoise-synth and dpmm, in one run
	@.venv-bench-synth/bin/python benchmarks/synth.py $(SYNTH)

.PHONY: bench-queries
bench-queries: .venv-bench-queries/.ready  ## questions to tables beside plain DuckDB and other libraries, in one run
	@.venv-bench-queries/bin/python benchmarks/queries.py

.PHONY: bench-sql
bench-sql: .venv/.ready-to-develop  ## 235 questions as analysts write them: answered, refused, right, useful
	@$(BIN)/python benchmarks/sql/ask.py $(SQL)

.PHONY: bench-learn
bench-learn: .venv-bench-learn/.ready  ## private training beside plain training, Opacus and vmap, in one process
	@.venv-bench-learn/bin/python benchmarks/learn.py

.PHONY: bench-server
bench-server: .venv/.ready-to-develop  ## the server under load: questions and prices a second
	@$(BIN)/python benchmarks/server.py

.PHONY: test-long
test-long: .venv/.ready-to-develop  ## a thousand million draws of noise, a million answers of every mechanism, random curves, kills of the ledger (hours)
	@$(BIN)/python -m tests.noise.long_run
	@$(BIN)/python -m tests.audit.long_run
	@$(BIN)/python -m tests.ledger.long_run
	@$(BIN)/python -m tests.queries.long_run
	@$(BIN)/python -m tests.curves.long_run

.PHONY: clean
clean:  ## remove environments, caches and everything built
	@rm -rf .venv .venv-schemathesis .venv-bench .venv-bench-noise .venv-bench-audit .venv-bench-estimators* .venv-bench-learn .venv-bench-queries* .venv-bench-synth* demo-output site build dist htmlcov .coverage .coverage.* \
	  .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache
	@find src tests docs benchmarks -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
