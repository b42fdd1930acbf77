# `make demo` and `make test` set up what they need by themselves in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help demo test lint types imports unit format clean

help:
	@echo "make demo    set up, then make first pictures and a contact sheet of them"
	@echo "make test    set up, then run every check and test"
	@echo "make format  format the code"
	@echo "make clean   remove the environment and caches"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)
	$(BIN)/calotype doctor
	$(BIN)/calotype generate --prompts-file docs/demo-prompts.txt --cfg 4 --seed 7 --count 2 --sheet --out demo
	@echo "Open the contact sheet; all pictures are in ./demo"

test: lint types imports unit

lint: $(READY)
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

unit: $(READY)
	scripts/test-tools
	$(BIN)/pytest -n auto --dist loadfile

format: $(READY)
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache demo
