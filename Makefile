# Every command a developer needs. `make` builds dist/, which is all a machine with a GPU needs.
PREFIX ?= /usr/local
DIST := dist

.PHONY: build test test-programs library-aarch64 soak lint fmt demo dist bench gpu-test install clean setup header kernels fuzz valgrind criu

build: setup dist

setup:
	@scripts/setup build

dist: setup
	@scripts/dist $(DIST)

header:
	@scripts/setup test
	@scripts/fetch-header

kernels:
	@scripts/setup test
	@scripts/compile-kernels

test-programs: header
	cargo test --workspace --locked --no-run

# A test needs it, and makes it where it is not yet there.
library-aarch64:
	@scripts/setup test
	@scripts/library-aarch64

test: dist header
	NVSNAP_ARTIFACTS=$(CURDIR)/$(DIST) cargo test --workspace --locked --no-fail-fast

SECONDS ?= 600
soak: dist
	@$(DIST)/tests/soak $(SECONDS)

lint: header
	@scripts/setup lint
	@scripts/lint

fmt:
	cargo fmt --all

demo: dist
	@$(DIST)/bin/nvsnap-gpushare-demo

bench: dist
	cargo bench --workspace --locked
	@if [ -e /dev/nvidiactl ]; then $(DIST)/gpu-tests/run bench torch-four; else $(DIST)/tests/bench --stand-in 1024; fi

fuzz:
	@scripts/fuzz $(or $(SECONDS),60)

valgrind:
	@scripts/valgrind

criu: dist
	@scripts/criu $(DIST)

gpu-test: dist
	@$(DIST)/gpu-tests/run

install: dist
	@scripts/install $(DIST) $(DESTDIR)$(PREFIX)

clean:
	cargo clean
	rm -rf $(DIST)
