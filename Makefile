# `make help` lists what there is. Every target that runs something sets the checkout up first.

PY := .venv/bin/python
READY := .venv/setup-done
PYTHON_DIRS := $(wildcard src tests tools benchmarks)

# Tests start many processes, and each would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# Spark finds its JVM through JAVA_HOME. Asked anew each time: a JDK may be upgraded or removed.
WITH_JAVA = JAVA_HOME="$$(sh scripts/setup.sh java-home)" && export JAVA_HOME &&

# Same answer on every platform and Python, exact versions, hashes, no addresses.
COMPILE = .venv/bin/uv --quiet pip compile --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-header --no-emit-index-url \
	--no-emit-find-links $(LOCK_ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-exhaustive lint fmt bench lock clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv from the lock and find Java (PYTHON=..., JAVA_HOME=... to choose)
	@:

$(READY): requirements.lock requirements-build.lock pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh

demo: setup ## Run the demonstration (ARGS="..." is passed on)
	@$(WITH_JAVA) .venv/bin/midstream demo $(ARGS)

# Two at a time on two cores: a third would fill the waiting of Spark's tests, and take more from the caches of the
# processors than that is worth. tests/conftest.py says which come first.
PYTEST := $(PY) -m pytest -n 2 --dist worksteal

test: setup ## Run all tests (ARGS="-k join -x" is passed to pytest; "-n 0" runs one at a time)
	@$(WITH_JAVA) $(PYTEST) --durations=10 $(ARGS)

test-fast: setup ## Run the tests that need no JVM
	@$(PYTEST) -m "not spark and not cluster" $(ARGS)

test-exhaustive: setup ## Run every pair of plans under every strategy
	@$(PYTEST) -m exhaustive $(ARGS)

lint: setup ## Check style, types, architecture and house rules
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy $(PYTHON_DIRS)
	@$(PY) tools/check_imports.py
	@$(PY) tools/check_project_rules.py

fmt: setup ## Format, and repair what ruff can repair
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: setup ## Run the benchmarks, an hour of them (ARGS="clique --only midstream polars" for some)
	@$(WITH_JAVA) $(PY) -m benchmarks $(ARGS)

lock: setup ## Regenerate the lock files (LOCK_ARGS=--upgrade for newer versions)
	@$(COMPILE) --all-extras --group dev pyproject.toml -o requirements.lock >/dev/null
	@$(COMPILE) --group pyproject.toml:build -c requirements.lock -o requirements-build.lock >/dev/null

clean: ## Remove .venv and everything generated
	rm -rf .venv .setup.log .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
