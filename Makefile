# Setup, build, tests and demo. `make` lists the targets.

CARGO ?= cargo
PREFIX ?= /usr/local
ROOT = $(DESTDIR)$(PREFIX)
MEMTIDE = target/release/memtide
RECORDER = target/release/libmemtide_recorder.so
CLOCK = target/release/libmemtide_clock.so
# Tests that could not run: written by crate memtide-testing, printed by `make test`.
NOT_RUN = target/tests-not-run
PARTS = --package memtide-cli --package memtide-recorder --package memtide-guest --package memtide-workloads
# The lab's clock plugin is a separate workspace: see its Cargo.toml.
CLOCK_WORKSPACE = --manifest-path crates/plugins/clock/Cargo.toml
# Licences, versions and sources of dependencies: see deny.toml.
DENY_VERSION = 0.20.2
DENY = $(CARGO) deny --log-level error
DENIED = bans licenses sources
# `make fuzz`: seconds per target, and the targets (all if empty).
TIME = 60
TARGETS =
COMPLETIONS = $(addprefix $(ROOT)/share/,bash-completion/completions zsh/site-functions \
	fish/vendor_completions.d)

.PHONY: help setup build clock lab demo repro test fuzz lint deny bench install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install missing packages (Debian, Ubuntu), or list them
	@sh scripts/setup

build: setup clock ## build the memtide command and its parts
	$(CARGO) build --release $(PARTS)

clock:
	$(CARGO) build --release $(CLOCK_WORKSPACE) --target-dir target

lab: build ## install QEMU, a kernel and damo for the lab, or list what is missing
	$(MEMTIDE) lab setup

demo: setup ## compare policies on a bundled trace of a real program
	$(CARGO) build --profile demo --package memtide-cli
	@sh scripts/demo target/demo/memtide

repro: setup ## reproduce the papers' figures (over half an hour), write docs/reproduction.md
	$(CARGO) build --release --package memtide-cli
	$(MEMTIDE) repro --markdown docs/reproduction.md --report target/reproduction.html

# Each cargo command selects the whole workspace: with another selection, dependencies have other features, and
# all that uses them is built again. The lab's tests (`lab`, `lab_ends`) take longest and are last.
test: setup clock ## run all tests, list those that cannot run; with CI=true they fail
	@rm -f $(NOT_RUN)
	$(CARGO) test --workspace --lib --bin 'memtide*' --example own_policy
	$(CARGO) test $(CLOCK_WORKSPACE) --target-dir target
	$(CARGO) build --workspace --lib --bins --tests
	cp $(CLOCK) target/debug/
	target/debug/memtide lab setup || test "$(CI)" != true
	$(CARGO) test --workspace --test '[!l]*'
	$(CARGO) test --workspace --test 'l*'
	$(CARGO) test --workspace --doc
	@sh scripts/tests-not-run $(NOT_RUN)

fuzz: setup ## run each fuzz target for TIME seconds (60), or those in TARGETS
	@sh scripts/fuzz $(TIME) $(TARGETS)

lint: setup ## formatting, clippy, rustdoc, licences and sources; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) fmt $(CLOCK_WORKSPACE) --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(CLOCK_WORKSPACE) --target-dir target --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps
	@$(MAKE) --no-print-directory deny

deny:
	@$(CARGO) deny --version >/dev/null 2>&1 || { echo "installing cargo-deny $(DENY_VERSION) with cargo install"; \
		CARGO_PROFILE_DEV_DEBUG=0 $(CARGO) install --locked --debug --version $(DENY_VERSION) cargo-deny; }
	$(DENY) --workspace check $(DENIED)
	$(DENY) $(CLOCK_WORKSPACE) check $(DENIED)

bench: ## measure speeds
	$(CARGO) bench --workspace --bench '*'
	$(MAKE) lab
	@sh scripts/bench-lab $(MEMTIDE)

install: build ## install command, plugins, man pages and completions below PREFIX
	install -D -m 755 $(MEMTIDE) $(ROOT)/bin/memtide
	install -D -m 644 $(RECORDER) $(ROOT)/lib/$(notdir $(RECORDER))
	install -D -m 644 $(CLOCK) $(ROOT)/lib/$(notdir $(CLOCK))
	install -D -m 755 -t $(ROOT)/bin target/release/memtide-guest target/release/memtide-workload
	$(MEMTIDE) man $(ROOT)/share/man/man1
	install -d $(COMPLETIONS)
	$(MEMTIDE) completions bash > $(word 1,$(COMPLETIONS))/memtide
	$(MEMTIDE) completions zsh > $(word 2,$(COMPLETIONS))/_memtide
	$(MEMTIDE) completions fish > $(word 3,$(COMPLETIONS))/memtide.fish

clean: ## remove build results
	$(CARGO) clean
