# Every target sets up what it needs; nothing else has to be done by hand.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench format clean

demo: .venv/.runtime
	$(BIN)/rote demo

test: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/.dev
	$(BIN)/python bench/run_all.py $(if $(LIBRARY),--library $(LIBRARY)) $(if $(BASELINE),--baseline $(BASELINE))

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv runs demo

.venv/.runtime: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/.dev: .venv/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
