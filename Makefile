# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MINDSPORE := .venv-mindspore
PYTHON39 ?= python3.9

UI := src/paceline/web/static/index.html
UI_SOURCES := $(shell find ui/src ui/public -type f) src/paceline/core/texts/ui.json ui/index.html ui/package-lock.json ui/tsconfig.json ui/vite.config.ts

.PHONY: man pictures screenshots demo check unit check-ui style types agent test accuracy fuzz ablation audit lock mutation test-mindspore venv-mindspore docs ui ui-types system lint bench-report soak kit-tables bundle containers test-matrix venv-mindspore-3.9 clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check $(if $(LOCKED),--constraint constraints-dev.txt) --editable '.[dev,torch]'
	@touch $@

ui/node_modules/.package-lock.json: ui/package-lock.json
	cd ui && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(UI): ui/node_modules/.package-lock.json $(UI_SOURCES)
	cd ui && npm run --silent build

ui-types: $(STAMP) ## types of the UI from the server's OpenAPI document: ui/src/api/types.ts
	$(BIN)/python scripts/write_api_types.py

ui: $(UI) ## type-check and build the report and the server's pages

demo: $(STAMP) $(UI) ## simulate a 16-card cluster with a fault nobody tells the reader about, and look at it
	rm -rf demo/run
	$(BIN)/paceline simulate demo/run --fault random --seed 7
	$(BIN)/paceline show demo/run
	$(BIN)/paceline diagnose demo/run

check: $(STAMP) ui/node_modules/.package-lock.json ## format, lint, types, unit tests: under two minutes, needs nothing of the machine
	@$(MAKE) --no-print-directory -j2 --output-sync=target types style unit check-ui

unit: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 tests/unit

check-ui: ui/node_modules/.package-lock.json
	cd ui && npm run --silent lint && npm test --silent

test: $(STAMP) $(UI) system check ## the whole suite: unit, integration, end to end
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/integration tests/e2e

accuracy: $(STAMP) ## 200 simulated clusters: fails unless the true cause comes first in 95 %, no healthy one alarms
	$(BIN)/python benchmarks/accuracy.py --check

kit-tables: $(STAMP) ## readers against the independent kit's tables: its fixed suite and 2 × 50 generated cases (half an hour)
	PACELINE_KIT_CASES=all $(BIN)/python -m pytest tests/integration/formats/test_kit_tables.py --timeout 3600
	PACELINE_KIT_GENERATED=50 PACELINE_KIT_SEED=917 $(BIN)/python -m pytest tests/integration/formats/test_kit_tables.py --timeout 3600
	PACELINE_KIT_GENERATED=50 PACELINE_KIT_SEED=4202 $(BIN)/python -m pytest tests/integration/formats/test_kit_tables.py --timeout 3600

fuzz: $(STAMP) ## every property test with new random examples; 1,600 damaged recordings, checkpoints and configurations
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -n 2 -m hypothesis
	cd benchmarks && ../$(BIN)/python -m robustness.checkpoints --count 600
	cd benchmarks && ../$(BIN)/python -m robustness.profiles mutations --count 1000

ablation: $(STAMP) ## every layout, fault and file: missing, cut, copied, renamed, exchanged; writes its table into docs/robustness*.md
	cd benchmarks && ../$(BIN)/python -m robustness.profiles ablation --write-docs

soak: $(STAMP) $(UI) ## 50,000 mixed requests to a server, aborted ones too: fails unless memory and descriptors stay flat
	cd benchmarks && ../$(BIN)/python -m robustness.soak

audit: $(STAMP) ## licences of all packages, known vulnerabilities (where pip-audit is installed), SBOM: dist/sbom.json
	$(BIN)/python scripts/audit.py --sbom dist/sbom.json

lock: $(STAMP) ## versions of this environment as constraints for pip: constraints-dev.txt (used by make LOCKED=1)
	$(BIN)/python scripts/audit.py --lock constraints-dev.txt

mutation: $(STAMP) ## change formulas of metrics, replay and diagnosis: fails unless unit tests notice 85 % in each
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[mutation]'
	$(BIN)/python scripts/mutation.py

test-mindspore: venv-mindspore ## against the real MindSpore, in an environment of its own
	$(MINDSPORE)/bin/python -m pytest -c tests/mindspore/pytest.ini tests/mindspore

venv-mindspore: $(MINDSPORE)/.installed

# Newer numpy breaks its bfloat16, newer safetensors make it write wrong weights.
$(MINDSPORE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(MINDSPORE)
	$(MINDSPORE)/bin/pip install --quiet --disable-pip-version-check mindspore==2.10.0 numpy==1.26.4 safetensors==0.7.0 \
	  pytest pytest-timeout --editable '.[checkpoint]'
	@touch $@

venv-mindspore-3.9: ## MindSpore for the test of a job in an image with Python 3.9: .venv-mindspore-3.9
	$(PYTHON39) -m venv .venv-mindspore-3.9
	.venv-mindspore-3.9/bin/pip install --quiet --disable-pip-version-check mindspore==2.9.0 'numpy<2'

system: ## what the tests need of the machine: a real sshd, openssl, ps, a browser, Slurm
	@[ -x /usr/sbin/sshd ] && command -v openssl >/dev/null && command -v ps >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq openssh-server openssl procps >/dev/null; }
	@command -v sbatch >/dev/null && [ -x /usr/sbin/slurmctld -a -x /usr/sbin/slurmd -a -x /usr/sbin/munged ] || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends munge slurmctld slurmd slurm-client >/dev/null; }
	@command -v chromium >/dev/null && ls /usr/share/fonts/truetype/wqy >/dev/null 2>&1 || \
	  { apt-get update -qq && apt-get install -y -qq chromium fonts-wqy-zenhei >/dev/null; }

docs: $(STAMP) $(UI) ## the documentation as a site, in English and Chinese: build/site; fails on a broken link
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/python scripts/write_gallery.py build/site/gallery build/site/zh/gallery
	@echo build/site/index.html

man: $(STAMP) ## a manual page of every command: build/man/man1
	$(BIN)/python scripts/write_man_pages.py

pictures: $(STAMP) $(UI) system ## pictures of the documentation, from simulated runs: docs/pictures
	$(BIN)/python scripts/make_pictures.py

screenshots: $(STAMP) $(UI) system ## every page of runs of 4 to 1,024 ranks, two languages, light and dark, three widths: screenshots/ (hours)
	rm -rf screenshots && mkdir -p screenshots/runs
	$(BIN)/paceline simulate screenshots/runs/r4 --hosts 1 --devices 4 --pp 1 --fault slow-link:0-2:3
	$(BIN)/paceline simulate screenshots/runs/r16 --layout mindinsight --fault slow-rank:5:1.5
	$(BIN)/paceline simulate screenshots/runs/r64 --hosts 8 --fault slow-link:3-5:3 --fault input-bound:9
	$(BIN)/paceline simulate screenshots/runs/r1024 --hosts 128 --dp 64 --tp 8 --detail-ranks 16 --steps 4 --fault slow-rank:77:1.4
	$(BIN)/paceline serve screenshots/runs --port 18421 & server=$$!; sleep 10; \
	  $(BIN)/python scripts/screenshots.py http://127.0.0.1:18421 screenshots/shots; found=$$?; kill $$server; exit $$found

lint: style types ## formatting, style, types, dependency order

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_words.py

types: $(STAMP)
	$(BIN)/mypy

agent: $(STAMP) ## the in-job part as a wheel for Python 3.8 and newer: dist/paceline-VERSION+agent-py3-none-any.whl
	$(BIN)/python -m paceline.core.agent_wheel dist

# Of the machine where it will be installed. On the command line: make bundle PLATFORM=manylinux_2_28_aarch64 PYTHON=3.9
PLATFORM ?= manylinux_2_28_aarch64
EXTRAS ?= checkpoint,modelarts,perfetto,storage,web
TARGET_PYTHON = $(if $(findstring command,$(origin PYTHON)),$(PYTHON),3.11)

bundle: $(UI) ## wheels for a machine without a network: PLATFORM=manylinux_2_28_aarch64 PYTHON=3.9 [EXTRAS=…]
	@$(MAKE) --no-print-directory PYTHON=python3 $(STAMP)
	@$(BIN)/python scripts/bundle.py --platform $(PLATFORM) --python $(TARGET_PYTHON) --extras $(EXTRAS)

ENGINE ?= $(firstword $(shell command -v podman docker 2>/dev/null))

containers: ## images of the analyst and of the agent (Containerfile), where podman or docker runs
	@$(if $(ENGINE),$(ENGINE) info >/dev/null 2>&1,false) || { echo "containers: skipped, no container engine runs here"; exit 0; } && \
	  $(ENGINE) build --target analyst --tag paceline . && $(ENGINE) build --target agent --tag paceline-agent .

test-matrix: $(STAMP) $(UI) ## Python 3.8 to 3.13, DuckDB 1.4 and 2, NumPy 1.26 and 2, bundles, MindFormers: needs pyenv's Pythons (30 min)
	$(BIN)/python -m pytest -c tests/matrix/pytest.ini tests/matrix

bench-report: $(STAMP) $(UI) venv-mindspore system ## us and the peers side by side: benchmarks/report.md (an hour)
	@command -v rclone >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends rclone >/dev/null; }
	$(BIN)/python benchmarks/report.py

clean: ## remove what make made
	rm -rf $(VENV) $(MINDSPORE) demo paceline-report benchmarks/work ui/node_modules src/paceline/output/static src/paceline/web/static
