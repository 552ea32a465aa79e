# SPDX-License-Identifier: MIT
# Runs CMake and the scripts in tools/. "make help" lists the targets.

PREFIX ?= /usr/local
# Flags for CMake, for example make CMAKE_FLAGS=-DWEFT_WERROR=OFF
CMAKE_FLAGS ?=
# Seconds that "make fuzz" runs each target, and the targets (default: all of tests/fuzz).
FUZZ_SECONDS ?= 600
FUZZ ?=
JOBS := $(shell nproc 2>/dev/null || echo 1)

# $(call tree,FOLDER,BUILD TYPE,TESTS,MORE FLAGS): configures and builds one tree.
define tree
@cmake -S . -B $(1) -G Ninja -DCMAKE_BUILD_TYPE=$(2) -DWEFT_TESTS=$(3) $(4) $(CMAKE_FLAGS)
@cmake --build $(1)
endef

# Test builds compile CUDA kernels for one GPU generation: each further one takes minutes.
ONE_GPU = -DWEFT_CUDA_ARCHITECTURES=90a -DWEFT_CUDA_PTX=OFF

# $(call ctest,FOLDER,OPTIONS): runs the tests of one tree that OPTIONS select.
ctest = ctest --test-dir $(1) --output-on-failure --no-tests=error -j $(JOBS) $(2)

# Ninja builds in parallel. The steps of a target run one after the other, also with make -j.
.NOTPARALLEL:
.PHONY: all demo demo-figures check test test-long deb static debug sanitize fuzz arm format install clean deps help

all: ## build the program, build/weft, and the libraries (the default)
	$(call tree,build,Release,OFF)

demo: ## install missing packages, build, and train a tiny model as an example
	@tools/deps.sh demo
	$(call tree,build,Release,OFF)
	tools/demo.sh build

demo-figures: ## run the demo and record it in docs/demo.txt and README.md
	@tools/deps.sh demo
	$(call tree,build,Release,OFF)
	tools/demo.sh build --record

check: ## check quickly while you work: format, layers, a release build without CUDA, tests, a sample of the selftest
	@tools/deps.sh test
	tools/format.sh --check
	tools/check_layers.sh
	$(call tree,build-check,Release,ON,-DWEFT_CUDA=OFF -DWEFT_EMULATOR_CXX=NO)
	$(call ctest,build-check,-LE 'long|slow')
	build-check/weft selftest --device cpu --sample 600

test: ## install missing packages, build twice (release, sanitizers), run every check and test
	@tools/deps.sh test
	@tools/test.sh $(CMAKE_FLAGS)

test-long: ## run the tests that take many minutes and are not in "make test"
	@tools/deps.sh test
	$(call tree,build-test,Release,ON,$(ONE_GPU))
	$(call tree,build-sanitize,Sanitize,ON)
	@tools/fetch_models.sh build-models
	@tools/fetch_pjrt.sh build-pjrt
	$(call ctest,build-test,-L long)
	$(call ctest,build-sanitize,-L long)

deb: ## make Debian packages in build-deb/packages/ and check them with lintian
	@tools/deps.sh deb
	$(call tree,build-deb,Release,OFF,-DCMAKE_INSTALL_PREFIX=/usr -DWEFT_CUDA_ARCHITECTURES=all)
	tools/deb.sh build-deb build-deb/packages

static: ## build a static program, build-static/weft, without cuda and pjrt, and run it in an empty root folder
	@tools/deps.sh demo
	$(call tree,build-static,Release,OFF,-DWEFT_STATIC=ON)
	tools/check_static.sh build-static/weft

debug: ## build with assertions, without optimisation and with tests in build-debug/
	$(call tree,build-debug,Debug,ON)

sanitize: ## build with the sanitizers and with tests in build-sanitize/
	$(call tree,build-sanitize,Sanitize,ON)

fuzz: ## fuzz each reader for FUZZ_SECONDS (600) with clang; FUZZ="json gguf" selects readers
	@tools/deps.sh fuzz
	@cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_C_COMPILER=clang \
	    -DWEFT_FUZZ=ON $(CMAKE_FLAGS)
	@cmake --build build-fuzz --target fuzz
	tools/fuzz.sh build-fuzz $(FUZZ_SECONDS) $(FUZZ)

arm: ## cross-compile for arm64 in build-arm/ and test the kernels under qemu (takes minutes)
	@tools/deps.sh arm
	$(call tree,build,Release,OFF)
	@cmake -S . -B build-arm -G Ninja --toolchain cmake/aarch64.cmake --no-warn-unused-cli \
	    -DCMAKE_BUILD_TYPE=Release $(CMAKE_FLAGS)
	@cmake --build build-arm --target weft_cli vectors_neon vectors_dotprod vectors_i8mm
	tools/check_arm.sh build-arm build/weft

format: ## format the C files in place
	tools/format.sh

install: all ## install below PREFIX (/usr/local): program, libraries, header, pkg-config, CMake
	cmake --install build --prefix "$(PREFIX)"

clean: ## remove all build trees
	rm -rf build build-*

deps: ## install the packages that building and testing need (Debian, Ubuntu)
	@tools/deps.sh test

help: ## list the targets
	@awk -F ': ?[a-z]* ## ' '/^[a-z-]+:.* ## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
