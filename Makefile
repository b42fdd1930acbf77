# `make demo` and `make test` set up what they need by themselves in .venv; the page needs node besides.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WEB_READY := web/node_modules/.package-lock.json
PAGE := src/calotype/assets/page/index.html
PAGE_SOURCES := $(shell find web/src web/public -type f) web/index.html web/vite.config.ts web/tsconfig.json

.PHONY: help demo page test tools lint types imports unit format clean

help:
	@echo "make demo    set up, then make first pictures and a contact sheet of them"
	@echo "make page    build the page that deployments serve (needs node and npm)"
	@echo "make test    set up, then run every check and test"
	@echo "make format  format the code"
	@echo "make clean   remove the environment and caches"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# npm writes this file itself, when everything is in place.
$(WEB_READY): web/package.json web/package-lock.json
	cd web && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(PAGE): $(WEB_READY) $(PAGE_SOURCES)
	cd web && npm run --silent build

demo: $(READY)
	$(BIN)/calotype doctor
	$(BIN)/calotype generate --prompts-file docs/demo-prompts.txt --cfg 4 --seed 7 --count 2 --sheet --out demo
	@echo "Open the contact sheet; all pictures are in ./demo"

page: $(PAGE)

test: tools lint types imports unit

tools:
	scripts/test-tools

lint: $(READY) $(WEB_READY)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	cd web && npm run --silent lint

types: $(READY) $(WEB_READY)
	$(BIN)/mypy
	cd web && npm run --silent types

imports: $(READY)
	$(BIN)/lint-imports

unit: $(READY) tools $(PAGE)
	cd web && npm run --silent unit
# In the order of their names, because the longest (browser, cluster, containers) then do not come last. Where a
# worker of xdist is lost, the others may wait for ever for its tests: then it ends at once instead.
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

format: $(READY) $(WEB_READY)
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks
	cd web && npm run --silent format

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache demo
	rm -rf web/node_modules src/calotype/assets/page
