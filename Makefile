# `make demo` and `make test` set up what they need by themselves in .venv; the page needs node besides.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
WEB_READY := web/node_modules/.package-lock.json
PAGE := src/calotype/resources/assets/page/index.html
PAGE_SOURCES := $(shell find web/src web/public -type f) web/index.html web/vite.config.ts web/tsconfig.json
# In the order of their names, because the longest (browser, cluster, containers) then do not come last. Where a
# worker of xdist is lost, the others may wait for ever for its tests: then it ends at once instead.
PYTEST := $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: help demo page test tools lint types imports unit web-lint web-types web-unit format clean

help:
	@echo "make demo    set up, then make first pictures and a contact sheet of them"
	@echo "make page    build the page that deployments serve (needs node and npm)"
	@echo "make test    set up, then run every check and test"
	@echo "make format  format the code"
	@echo "make clean   remove the environment and caches"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@touch $@

# What pip would do by itself, when it may be done beside the checks. Some packages have files for other Pythons.
$(COMPILED): $(READY)
	$(BIN)/python -m compileall -qq $(VENV)/lib || true
	@touch $@

# npm writes this file itself, when everything is in place. Where tools are installed too, they come first.
$(WEB_READY): web/package.json web/package-lock.json | $(filter tools,$(MAKECMDGOALS))
	cd web && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(PAGE): $(WEB_READY) $(PAGE_SOURCES)
	cd web && npm run --silent build

demo: $(READY)
	$(BIN)/calotype doctor
	$(BIN)/calotype generate --prompts-file docs/demo-prompts.txt --cfg 4 --seed 7 --count 2 --sheet --out demo
	@echo "Open the contact sheet; all pictures are in ./demo"

page: $(PAGE)

# One processor installs Python's packages while the other sees to the page, and so on.
test:
	$(MAKE) --no-print-directory --jobs=2 --output-sync tools $(READY) web-lint web-types web-unit types $(COMPILED) lint imports $(PAGE)
	$(PYTEST)

tools:
	scripts/test-tools

lint: $(READY) web-lint
	$(BIN)/ruff check src tests benchmarks containers
	$(BIN)/ruff format --check src tests benchmarks containers
	$(BIN)/python scripts/check-names src/calotype

types: $(READY) web-types
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

web-lint: $(WEB_READY)
	cd web && npm run --silent lint

web-types: $(WEB_READY)
	cd web && npm run --silent types

web-unit: $(WEB_READY)
	cd web && npm run --silent unit

unit: tools $(COMPILED) web-unit $(PAGE)
	$(PYTEST)

format: $(READY) $(WEB_READY)
	$(BIN)/ruff check --fix src tests benchmarks containers
	$(BIN)/ruff format src tests benchmarks containers
	cd web && npm run --silent format

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache demo
	rm -rf web/node_modules src/calotype/resources/assets/page
