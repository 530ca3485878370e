# make demo      train the seeds' MLP on digits, export it, use the export without the compiler
# make readme    the commands and the Python of the README, in a copy with nothing installed
# make first-hour  all of the README on a fresh clone, as a newcomer sees it: docs/first_hour.md
# make docs      the documentation as pages, with OPEN=1 shown in a browser; make docs-links asks other hosts
# make editors   what editors show: jedi on every public name, pyright on every example
# make test      the fast tests, and the style and type checks
# make test-all  the slow tests too
# make collect   finds the fast tests and runs none, which leaves their modules compiled
# make test-oldest  the Python runtime's tests on the oldest onnxruntime that it supports
# make test-lowest  the compiler on the lowest versions of all requirements of ours
# make test-gpu  the paths for NVIDIA GPUs, with the real CUDA provider over a stand-in for CUDA
# make tools     the Node packages that the tests of the JavaScript runtime need
# make runtimes  the JavaScript and C runtimes with all bindings against the recorded traces, and in a browser
# make ranks     training in several processes on torch.distributed, Open MPI and MPICH (installs all)
# make genai     adapters and chats on the real onnxruntime-genai (installs it, 60 MB)
# make peft      adapters of builder's folders and exports beside transformers and PEFT (installs
#                them and optimum, 2 GB)
# make notebooks  real notebooks run by a real kernel, those of examples/notebooks too (installs it)
# make integrations  the one-liners of docs/integrations.md on the real packages (installs them, 1 GB)
# make triton    the real Triton server, which the serving tests ask the same as ours (320 MB)
# make fuzz      readers of untrusted input, led by the code they reach, for MINUTES=10 in all
# make sanitize  native operators and C runtime under ASan and UBSan: a selection of 2 to 3 minutes
# make native-arm  native operators compiled for aarch64, and tested there by qemu (root, for debootstrap)
# make analyse   both through clang's static analyser and clang-tidy, of which no finding is allowed
# make audit     licences and known vulnerabilities of the packages in requirements.lock
# make lock      that file anew, at the newest versions
# make release   all files of a release, in dist: wheels, npm, the archive for C (docs/releases.md)
# make release-check  the same, each installed from the files alone and tried; a table at the end
# make release-reproduce  built twice, in two places, and compared byte for byte
# make bench     the benchmarks beside torch and JAX (installs them)
# SLOW=1         make runtimes without the tests that make test has; make ranks with the slow ones;
#                make test-gpu: the slow ones alone
# LOCKED=1       the packages of requirements.lock, by version and hash, as CI has them
# EXTRA=gpu      on a machine with an NVIDIA GPU: onnxruntime-gpu in place of onnxruntime

PYTHON ?= python3
EXTRA ?= cpu
VENV := .venv/$(EXTRA)
DEMO := .venv/demo-$(EXTRA)
DEVICE := .venv/device-$(EXTRA)
TRITON := .venv/triton
RANKS := .venv/ranks
MPICH := .venv/mpich
GENAI := .venv/genai
PEFT := .venv/peft
OPTIMUM := .venv/optimum
NOTEBOOKS := .venv/notebooks
OLDEST := .venv/oldest
LOWEST := .venv/lowest
AUDIT := .venv/audit
RELEASE := .venv/release
INTEGRATIONS := .venv/integrations
DOCS := .venv/docs
EDITORS := .venv/editors
STANDIN := .venv/standin
OUT ?= demo
MINUTES ?= 10
NODE_MODULES := $(if $(shell command -v npm),runtime/js/node_modules)
PIP := -m pip install --quiet --disable-pip-version-check

# Tests start many processes of ours, each of which would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo readme first-hour docs docs-links editors test test-all collect run-test run-test-all test-oldest test-lowest standin test-gpu tools runtimes triton ranks genai peft notebooks \
  integrations check fuzz sanitize native-arm analyse audit lock release release-check release-reproduce bench clean

demo: $(DEMO)/ready $(DEVICE)/ready
	$(DEMO)/bin/python -m examples.mlp_digits --out $(OUT)
	$(DEVICE)/bin/python examples/use_export.py $(OUT)/mlp.onnx $(OUT)/mlp_bundle $(OUT)/digits.npz
	@echo "the files are in $(abspath $(OUT))"

# What a user has, with plots and digits: no tools.
$(DEMO)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python $(PIP) -e runtime/python -e '.[$(EXTRA),data,plot]'
	@touch $@

readme:
	$(PYTHON) -m tests.readme

# Needs npm and Chromium besides.
first-hour:
	$(PYTHON) -m tests.first_hour

# A warning is an error; scripts and notebooks of the gallery are run.
SPHINX = PATH="$(abspath $(DOCS))/bin:$$PATH" $(DOCS)/bin/python -m sphinx --fail-on-warning --keep-going \
  --quiet --jobs auto --conf-dir docs/site --doctree-dir build/docs/doctrees

docs: $(DOCS)/ready
	$(SPHINX) . build/docs/html
	$(DOCS)/bin/python docs/site/check_pages.py build/docs/html
	$(if $(OPEN),$(DOCS)/bin/python -m webbrowser -t "file://$(abspath build/docs/html/index.html)")

# Nothing is run for it; what is wrong is said by the second program.
docs-links: $(DOCS)/ready
	rm -f build/docs/links/output.json
	$(SPHINX) --define nb_execution_mode=off --builder linkcheck . build/docs/links || true
	$(DOCS)/bin/python docs/site/check_links.py build/docs/links

$(DOCS)/ready: pyproject.toml runtime/python/pyproject.toml runtime/server/pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python $(PIP) -e runtime/python -e runtime/server -e '.[cpu,data,plot,images,docs]'
	@touch $@

editors: $(EDITORS)/ready
	$(EDITORS)/bin/python -m tests.editors

# Editable, as an editor finds it. pyright runs on Node, which it brings where there is none.
$(EDITORS)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(EDITORS)
	$(EDITORS)/bin/python $(PIP) -e runtime/python -e '.[$(EXTRA),data,plot]' 'jedi>=0.19' 'pyright>=1.1.400'
	@touch $@

# One process more than processors, as some tests wait. Each process takes whole modules while
# there are some, so that what a module builds or starts is there once.
PROCESSES = $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 1) + 1, 8))')
PYTEST = $(VENV)/bin/python -m pytest -n $(PROCESSES) --dist worksteal

# Types are checked while tests run.
test test-all: $(VENV)/ready
	+$(MAKE) --no-print-directory -j 2 check run-$@

# Ranks are started by `make ranks` alone.
collect run-test: export RANKS_PYTHON =
collect run-test: export MPICH_PYTHON =

FAST := -m "not slow and not gpu"

run-test:
	$(PYTEST) $(FAST)

# On a fresh clone each process of the tests would compile all modules.
collect: $(VENV)/ready
	$(VENV)/bin/python -m pytest --collect-only -q $(FAST)

run-test-all:
	$(PYTEST) -m "not gpu"

test-oldest: $(OLDEST)/ready
	PYTHONPATH=runtime/python $(OLDEST)/bin/python -m pytest -m "not slow and not gpu" runtime/python/tests

$(OLDEST)/ready: runtime/python/pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(PIP) onnxruntime==$$(sed -n 's/^cpu = \["onnxruntime>=\([0-9.]*\)"\]$$/\1/p' $<).* \
	  onnx safetensors 'pytest>=8.2' 'pytest-randomly>=3.15'
	@touch $@

# A selection that goes through all rooms; the rest tests no more of other people's versions.
test-lowest: $(LOWEST)/ready
	PYTHONPATH=.:runtime/python $(LOWEST)/bin/python -m pytest -W default -m "not slow and not gpu" \
	  tests/api/test_training.py tests/api/test_fit.py tests/export/test_bundle.py \
	  tests/checkpoint/test_formats.py tests/imported/test_make_trainable.py tests/cli/test_export.py

$(LOWEST)/ready: pyproject.toml runtime/python/pyproject.toml $(AUDIT)/ready
	$(PYTHON) -m venv $(LOWEST)
	printf '%s\n' './runtime/python[cpu]' '.[cpu]' | $(AUDIT)/bin/uv pip compile - --quiet --resolution lowest-direct \
	  --python $(LOWEST)/bin/python --no-emit-package flow2onnx --no-emit-package flow2onnx-runtime \
	  --output-file $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python $(PIP) -r $(LOWEST)/requirements.txt 'pytest>=8.2' 'pytest-randomly>=3.15' 'hypothesis>=6.100'
	@touch $@

# No GPU and no CUDA are needed: tests/gpu/standin says what runs and what does not.
standin: $(STANDIN)/ready

test-gpu: standin
	LD_LIBRARY_PATH=$(abspath $(STANDIN))/libraries ORT_DISABLE_TELEMETRY=1 PYTHONPATH=$(CURDIR):$(CURDIR)/runtime/python \
	  STANDIN_NVRTC="$$(ls $(abspath $(STANDIN))/nvrtc/nvidia/cu13/lib/libnvrtc.so.13)" \
	  $(STANDIN)/bin/python -m pytest -m "$(if $(SLOW),slow,not slow)" tests/gpu

# CUDA's headers and NVRTC stand apart: an onnxruntime beside them would load the real libraries.
$(STANDIN)/ready: $(wildcard tests/gpu/standin/*)
	$(PYTHON) -m venv $(STANDIN)
	$(STANDIN)/bin/python $(PIP) 'onnxruntime-gpu>=1.31.1' onnxruntime-ep-webgpu onnx 'onnx-ir>=1.1,<2' protobuf \
	  safetensors click rich 'pytest>=8.2' 'pytest-randomly>=3.15'
	$(STANDIN)/bin/python $(PIP) --no-deps --upgrade --target $(STANDIN)/headers \
	  'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-crt>=13,<14'
	$(STANDIN)/bin/python $(PIP) --no-deps --upgrade --target $(STANDIN)/nvrtc \
	  'nvidia-cuda-nvrtc>=13,<14' || echo "not installed: NVRTC; kernels are compiled for no GPU"
	$(STANDIN)/bin/python -m tests.gpu.standin.build $(STANDIN)/libraries \
	  --headers $(STANDIN)/headers/nvidia/cu13/include
	@touch $@

# Tests whose tool is missing (npm, Chromium, a C compiler, valgrind) are skipped and say so.
runtimes: $(VENV)/ready
	$(PYTEST) $(if $(SLOW),-m slow) tests/runtimes

tools: $(NODE_MODULES)

runtime/js/node_modules: runtime/js/package-lock.json
	cd runtime/js && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

notebooks: $(NOTEBOOKS)/ready
	$(NOTEBOOKS)/bin/python -m pytest -p no:xdist tests/view/test_cells.py

# ipykernel and nbclient: BSD, 30 MB with what they need.
$(NOTEBOOKS)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(NOTEBOOKS)
	$(NOTEBOOKS)/bin/python $(PIP) -e runtime/python -e '.[cpu,data]' 'nbclient>=0.10' 'ipykernel>=6.29' \
	  'pytest>=8.2' 'pytest-randomly>=3.15'
	@touch $@

check: $(VENV)/ready
	$(VENV)/bin/python -m ruff check .
	$(VENV)/bin/python -m ruff format --check .
	$(VENV)/bin/python -m mypy --strict flow2onnx runtime/python/flow2onnx_runtime \
	  runtime/server/flow2onnx_serve runtime/native/flow2onnx_native examples

# Needs clang for the targets in C. Inputs that crash are left in build/fuzz.
fuzz: $(VENV)/ready
	PYTHONPATH=.:runtime/native $(VENV)/bin/python -m tests.fuzz --minutes $(MINUTES) $(TARGETS)

sanitize: $(VENV)/ready
	PYTHONPATH=.:runtime/native $(VENV)/bin/python -m tests.sanitized $(TESTS)

# Debian's g++-aarch64-linux-gnu, qemu-user-static and debootstrap are needed.
native-arm: $(VENV)/ready
	PYTHONPATH=.:runtime/native $(VENV)/bin/python -m tests.on_aarch64 $(TESTS)

analyse: $(VENV)/ready
	PYTHONPATH=.:runtime/native $(VENV)/bin/python -m tests.analysed

audit: $(VENV)/ready $(AUDIT)/ready
	$(VENV)/bin/python -m tests.audit --tools $(AUDIT)/bin

lock: $(AUDIT)/ready
	printf '%s\n' './runtime/python[cpu]' './runtime/server[cpu]' './runtime/native[onednn]' '.[cpu,dev]' | \
	  $(AUDIT)/bin/uv pip compile - --quiet --upgrade --universal --python-version 3.11 \
	    --generate-hashes --no-annotate --no-strip-extras --custom-compile-command "make lock" \
	    $(foreach p,flow2onnx flow2onnx-runtime flow2onnx-serve flow2onnx-native,--no-emit-package $p) \
	    --output-file requirements.lock

$(AUDIT)/ready:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python $(PIP) 'pip-audit>=2.9' 'pip-licenses>=5.5' 'uv>=0.9'
	@touch $@

release: $(RELEASE)/ready
	$(RELEASE)/bin/python -m release build

release-check: $(RELEASE)/ready $(NODE_MODULES)
	$(RELEASE)/bin/python -m release check

release-reproduce: $(RELEASE)/ready
	$(RELEASE)/bin/python -m release reproduce

$(RELEASE)/ready: release/requirements.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python $(PIP) -r release/requirements.txt
	@touch $@

bench: $(VENV)/ready
	$(VENV)/bin/python -m benchmarks.compiling
	$(VENV)/bin/python -m benchmarks.environments native torch jax
	$(VENV)/bin/python -m benchmarks.training
	$(VENV)/bin/python -m benchmarks.prediction
	$(VENV)/bin/python -m benchmarks.scaling

$(VENV)/ready: pyproject.toml runtime/python/pyproject.toml runtime/server/pyproject.toml $(if $(LOCKED),requirements.lock)
	$(PYTHON) -m venv $(VENV)
ifdef LOCKED
	$(VENV)/bin/python $(PIP) --require-hashes -r requirements.lock
endif
	$(VENV)/bin/python $(PIP) -e runtime/python -e runtime/server -e '.[$(EXTRA),dev]'
	@touch $@

# What a device has: numpy, onnxruntime and the runtime, no compiler.
$(DEVICE)/ready: runtime/python/pyproject.toml $(wildcard runtime/python/flow2onnx_runtime/*.py)
	$(PYTHON) -m venv $(DEVICE)
	$(DEVICE)/bin/python $(PIP) --upgrade './runtime/python[$(EXTRA)]'
	@touch $@

# Only the server of the wheel is used, not its Python half; onnxruntime is the one we have.
triton: $(TRITON)/ready

$(TRITON)/ready: RUNTIME = $(shell $(VENV)/bin/python -c "import onnxruntime as r; print(r.__version__)")
$(TRITON)/ready: $(VENV)/ready
	$(VENV)/bin/python -m venv $(TRITON)
	$(TRITON)/bin/python $(PIP) 'numpy<2' onnxruntime==$(RUNTIME)
	$(TRITON)/bin/python $(PIP) --no-deps nvidia-pytriton
	@touch $@

# Apart from the locked packages: torch is larger than all of them.
ranks: $(VENV)/ready $(RANKS)/ready $(MPICH)/ready
	$(VENV)/bin/python -m pytest $(if $(SLOW),,-m "not slow") tests/ranks

$(RANKS)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(RANKS)
	$(RANKS)/bin/python $(PIP) -e runtime/python -e '.[cpu,torch,mpi,images]'
	@touch $@

# An environment holds one MPI library.
$(MPICH)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(MPICH)
	$(MPICH)/bin/python $(PIP) -e runtime/python -e '.[cpu,images]' 'mpi4py>=4' mpich
	@touch $@

# Apart from the locked packages, as it brings a runtime of its own choice on some platforms.
genai: $(GENAI)/ready
	$(GENAI)/bin/python -m pytest tests/imported/lora/test_genai.py

# Packages of others warn each other of what they will do, which is none of our errors.
integrations: $(INTEGRATIONS)/ready
	$(INTEGRATIONS)/bin/python -m pytest -W default tests/integrations

$(INTEGRATIONS)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python $(PIP) -e runtime/python -e '.[cpu,integrations]' 'pytest>=8.2' 'pytest-randomly>=3.15'
	@touch $@

# optimum-onnx asks for transformers 4, and the other forms are of 5
peft: $(PEFT)/ready $(OPTIMUM)/ready
	$(PEFT)/bin/python -m pytest tests/imported/lora/test_builder.py tests/imported/lora/test_exports.py
	$(OPTIMUM)/bin/python -m pytest tests/imported/lora/test_exports.py -k optimum

$(PEFT)/ready $(OPTIMUM)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(PIP) -e runtime/python -e '.[cpu,lora]' torch onnxscript peft \
	  $(if $(filter $(PEFT)/%,$@),'transformers>=5' onnxruntime-genai,'transformers<5' optimum-onnx) \
	  'pytest>=8.2' 'pytest-randomly>=3.15'
	@touch $@

$(GENAI)/ready: pyproject.toml runtime/python/pyproject.toml
	$(PYTHON) -m venv $(GENAI)
	$(GENAI)/bin/python $(PIP) -e runtime/python -e '.[cpu,lora,genai]' 'pytest>=8.2' 'pytest-randomly>=3.15'
	@touch $@

clean:
	rm -rf .venv $(OUT) .mypy_cache .pytest_cache .ruff_cache
