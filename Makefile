# The developer's front door; CMake and Ninja do the work. `make help` lists the targets.
BUILD ?= build
PREFIX ?= /usr/local
CMAKE_FLAGS ?=
# What kernels for NVIDIA's cards are compiled to, where nvcc is there: `all`, code for cards; `ptx`, what a card's driver
# compiles when it is opened; nothing: as the build folder has it.
CARDS ?= all
# Two bounds on time: fuzzing inside `make test`, and by `make fuzz`, both for each target.
FUZZ_SECONDS ?= 5
FUZZ_MINUTES ?= 5

TOOLS := $(shell . tools/env.sh && echo $$SHOAL_LAUNCHER)
CONFIGURE = cmake -S . -G Ninja $(if $(TOOLS),-DCMAKE_C_COMPILER_LAUNCHER=$(TOOLS)) $(if $(CARDS),-DSHOAL_CARDS='$(CARDS)') $(CMAKE_FLAGS)

.PHONY: all product for-cards
all: for-cards ## build everything: product, the tests and what is measured
	@ninja -C $(BUILD)
product: for-cards ## build the library, the command and the examples
	@ninja -C $(BUILD) $@
for-cards: $(BUILD)/build.ninja
	@[ -z "$(CARDS)" ] || grep -qxF 'SHOAL_CARDS:STRING=$(CARDS)' $(BUILD)/CMakeCache.txt || cmake -S . -B $(BUILD) -DSHOAL_CARDS='$(CARDS)'

%/build.ninja: | need-packages
	@$(CONFIGURE) -B $* $(FLAGS_$*)

FLAGS_build-asan = -DCMAKE_BUILD_TYPE=Debug -DSHOAL_SANITIZE=address,undefined -DSHOAL_CHECK_LOCKS=ON
FLAGS_build-tsan = -DCMAKE_BUILD_TYPE=Debug -DSHOAL_SANITIZE=thread
FLAGS_build-fuzz = -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang -DSHOAL_FUZZ=ON -DSHOAL_CHECK_LOCKS=ON
FLAGS_build-clang = -DCMAKE_C_COMPILER=clang

.PHONY: deps deps-all need-packages need-tensorflow
deps: ## install what building and testing need: Debian packages, and TensorFlow in a virtual environment
	@tools/deps.sh packages tensorflow newest
deps-all: deps ## and what a few tests use beside: an sshd, Slurm, whose packages start services
	@tools/deps.sh daemons
need-packages:
	@tools/deps.sh --if-missing packages
need-tensorflow: need-packages
	@tools/deps.sh --if-missing tensorflow newest

.PHONY: demo demo-serve
demo: product ## a cluster on this machine trains on Fashion-MNIST: 1 parameter server, 2 workers
	@tools/demo.sh $(BUILD)
demo-serve: product ## the same to its end: exported, served, and asked by REST what ten pictures show
	@tools/demo_serve.sh $(BUILD)

.PHONY: test test-soft check builds fuzzers races
# TensorFlow is fetched while the compilers work. (Tools are those of before, whatever packages have come since.) Cards'
# kernels run on no machine that has no card: that they compile is shown by ptx, in a fifth of the time.
test: CARDS = $(if $(wildcard $(BUILD)/build.ninja),,ptx)
test: need-packages ## everything: units, TensorFlow side by side, clusters, fuzzing for seconds
	@$(MAKE) --no-print-directory -j2 TOOLS='$(TOOLS)' CARDS='$(CARDS)' need-tensorflow builds
	@tools/python.sh tests/run.py --build $(BUILD) --fuzz-seconds $(FUZZ_SECONDS) --fuzz-seed 1 --again
test-soft: need-tensorflow all fuzzers races ## every test of clusters and faults on the soft device, and all op cases there under sanitizers
	@tools/python.sh tests/run.py --build $(BUILD) --again soft
builds: # one behind the other, each with all cores
	@$(MAKE) --no-print-directory all
	@$(MAKE) --no-print-directory fuzzers
	@$(MAKE) --no-print-directory races
fuzzers:
	@if command -v clang >/dev/null; then $(MAKE) --no-print-directory build-fuzz/build.ninja && ninja -C build-fuzz $@ soft_device; \
	 else echo "there is no clang: fuzzing, and sanitizers on the soft device, are skipped"; fi
races: build-tsan/build.ninja
	@ninja -C build-tsan soft_device
check: all ## the unit tests alone: a minute
	@tools/python.sh tests/run.py --build $(BUILD) unit

.PHONY: test-gpu bench-gpu gpu-kit
gpu-kit: ## what a bare x86_64 machine with an NVIDIA card lacks to build us, in one archive: BUILD/gpu-kit.tar.gz
	@tools/gpu_kit.sh $(BUILD)/gpu-kit.tar.gz
test-gpu: all ## on a machine with an NVIDIA card: its kernels beside the CPU's
	@for t in $(BUILD)/tests/gpu_*_test; do SHOAL_NEEDS_GPU=1 $$t || exit 1; done
bench-gpu: all ## on such a machine: speed beside PyTorch, where that is there ($$SHOAL_TORCH: its Python)
	@python3 bench/gpu.py --build $(BUILD)
	@python3 bench/gpu_models.py --build $(BUILD)

.PHONY: large-check
large-check: all ## collectives of more than 2 GiB, which want 16 GB of memory
	@for how in '' '--servers --algorithm=auto,direct,bf16'; do \
	  $(BUILD)/shoal bench allreduce --ranks=2 --sizes=2304M --iters=1 $$how || exit 1; done

.PHONY: soak
soak: need-tensorflow all ## 10,000 steps and 1,000 sessions on a cluster, memory and threads watched
	@SHOAL_SOAK=long SHOAL_BUILD="$$(cd $(BUILD) && pwd)" tools/python.sh tests/cluster/soak_test.py

.PHONY: bench
bench: need-tensorflow all ## speed and memory beside TensorFlow and PyTorch, in one run
	@tools/deps.sh --if-missing torch
	@tools/python.sh bench/run.py --build $(BUILD)
	@tools/python.sh bench/cluster.py --build $(BUILD)
	@tools/python.sh bench/training.py --build $(BUILD)
	@SHOAL_BUILD=$(BUILD) tools/python.sh bench/serving.py
	@tools/python.sh bench/allreduce.py --build $(BUILD)
	@tools/python.sh bench/far_allreduce.py --build $(BUILD)
	@tools/python.sh bench/datasets.py --build $(BUILD)
	@tools/python.sh bench/input_wait.py --build $(BUILD)
	@tools/python.sh bench/gpt_cpu.py --build $(BUILD)
	@tools/python.sh bench/replicas.py --build $(BUILD)
	@$(BUILD)/bench/saving
	@$(BUILD)/bench/many_collectives
	@tools/python.sh bench/word2vec.py --build $(BUILD)
	@tools/python.sh bench/word2vec_ps.py --build $(BUILD)
	@tools/python.sh bench/estimator.py --build $(BUILD)

.PHONY: bench-before
BEFORE ?= d03a6ba
bench-before: need-tensorflow all ## small steps and training beside an earlier commit, which is built: BEFORE=COMMIT
	@tools/bench_before.sh $(BEFORE) $(BUILD)

.PHONY: asan tsan fuzz clang
# The units, and servers under many clients, faults and hostile requests; what needs the library in Python stays out.
SANITIZED = ^[a-z0-9_]*_test$$|tests/unit/|threads_test|faults_test|cluster/soft_device_test|cluster/(rest|serving)_test
# Where memory is watched, too: clients that mean no good.
ATTACKED = interop/soft_device_test|cluster/collective_test|http2_test|h2spec_test|budgets_test|codes_test|metadata_test
asan: need-tensorflow build-asan/build.ninja ## units and servers under AddressSanitizer and UndefinedBehaviorSanitizer
	@ninja -C build-asan && tools/python.sh tests/run.py --build build-asan --patience 4 --only '$(SANITIZED)|$(ATTACKED)' unit interop cluster chaos
asan tsan: export SHOAL_THREADS_SECONDS = 10
tsan: export TSAN_OPTIONS = suppressions=$(CURDIR)/tools/tsan.supp history_size=4 detect_deadlocks=0
tsan: need-tensorflow build-tsan/build.ninja ## units and servers under ThreadSanitizer
	@ninja -C build-tsan && tools/python.sh tests/run.py --build build-tsan --patience 4 --only '$(SANITIZED)' unit cluster chaos
fuzz: fuzzers ## fuzz each target for FUZZ_MINUTES
	@tools/python.sh tests/run.py --build $(BUILD) --fuzz-seconds $$(($(FUZZ_MINUTES) * 60)) fuzz
clang: build-clang/build.ninja ## build with clang, warnings as errors
	@ninja -C build-clang

# Three of them need root: they work in bare Debian systems of their own, in $$SHOAL_CACHE/chroot.
.PHONY: bare-check cross-check package-check kernels
bare-check: ## (root) demo and test in a bare Debian 12, then again with everything optional installed
	@tools/bare_check.sh
cross-check: ## (root) build for the other architecture with gcc and clang; the units under emulation
	@tools/cross_check.sh
package-check: all ## (root) packages, wheel and Dockerfile, each used in a bare Debian 12
	@SHOAL_BARE=1 SHOAL_BUILD="$$(cd $(BUILD) && pwd)" tools/python.sh tests/cluster/package_test.py
kernels: all ## tests of the kernels for every instruction set that this machine or qemu has
	@tools/kernels.sh $(BUILD)

SOURCES = $(shell git ls-files '*.c' '*.h')
.PHONY: format lint docs
format: ## lay out the sources as .clang-format says
	@clang-format -i $(SOURCES)
lint: all ## layers, lengths, cppcheck, clang-tidy: minutes at first, then only what changed
	@tools/lint.py $(BUILD)
docs: all ## write docs/ops.md from the op rows
	@$(BUILD)/gen_ops --docs > docs/ops.md

.PHONY: install uninstall deb wheel clean help
# The dynamic linker of the system looks into its list of folders, and into a cache of what is in them.
install: product ## install under PREFIX (and DESTDIR); says what the shell must know where that is not /usr/local
	@cmake --install $(BUILD) --prefix "$(PREFIX)" >$(BUILD)/installed.log || { tail $(BUILD)/installed.log; exit 1; }
	@if [ "$(PREFIX)" = /usr/local ] || [ "$(PREFIX)" = /usr ]; then [ -n "$(DESTDIR)" ] || ldconfig 2>/dev/null || true; \
	 else lib="$(PREFIX)"/$$(sed -n 's/^CMAKE_INSTALL_LIBDIR:PATH=//p' $(BUILD)/CMakeCache.txt); \
	   echo "what a shell must know to use it:"; \
	   echo "  export PKG_CONFIG_PATH='$$lib/pkgconfig' LD_LIBRARY_PATH='$$lib' PATH='$(PREFIX)/bin':\$$PATH"; fi
# Folders go too where they are empty, up to PREFIX.
uninstall: ## take back what the last `make install` put there; same PREFIX (and DESTDIR)
	@[ -e $(BUILD)/installed.log ] && cd "$(DESTDIR)$(PREFIX)" || { echo "nothing was installed there from here" >&2; exit 1; }
	@sed -n 's|^-- [A-Z][a-z-]*: $(DESTDIR)$(PREFIX)/||p' $(BUILD)/installed.log | { cd "$(DESTDIR)$(PREFIX)" && \
	  while read -r f; do [ -d "$$f" ] || rm -f "$$f"; rmdir -p "$$(dirname "$$f")" 2>/dev/null; done; true; }
deb: product ## Debian packages of the library, of what one develops with, and of the command: BUILD/packages
	@rm -f $(BUILD)/packages/*.deb # those of another version
	@cd $(BUILD) && cpack -G DEB -B packages >packages.log 2>&1 || { cat packages.log; exit 1; }
	@ls $(BUILD)/packages/*.deb
wheel: product ## a wheel for pip: the command with its libraries inside, and shoal.in_place
	@packaging/wheel.py $(BUILD)
clean: ## remove all build folders
	@rm -rf build build-asan build-tsan build-fuzz build-clang
help: ## this list
	@sed -n 's/^\([a-z][a-z -]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
