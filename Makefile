# Set-up, builds, tests and the demonstration. `make` lists the targets.

CARGO ?= cargo
PREFIX ?= /usr/local
ROOT = $(DESTDIR)$(PREFIX)
MEMTIDE = target/release/memtide
RECORDER = target/release/libmemtide_recorder.so
COMPLETIONS = $(addprefix $(ROOT)/share/,bash-completion/completions zsh/site-functions fish/vendor_completions.d)

.PHONY: help setup build demo test lint bench install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (Debian, Ubuntu), or say what is
	@sh scripts/setup

build: setup ## build the memtide command
	$(CARGO) build --release --package memtide-cli --package memtide-recorder

demo: build ## compare all policies on a bundled trace of a real program
	@sh scripts/demo $(MEMTIDE)

test: setup ## run all tests; with CI=true a test that cannot run fails
	$(CARGO) test --workspace

lint: ## formatting, clippy and rustdoc, warnings as errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

bench: ## measure speeds
	$(CARGO) bench --workspace

install: build ## install the command, its recorder, man pages and completions below PREFIX
	install -D -m 755 $(MEMTIDE) $(ROOT)/bin/memtide
	install -D -m 644 $(RECORDER) $(ROOT)/lib/$(notdir $(RECORDER))
	$(MEMTIDE) man $(ROOT)/share/man/man1
	install -d $(COMPLETIONS)
	$(MEMTIDE) completions bash > $(word 1,$(COMPLETIONS))/memtide
	$(MEMTIDE) completions zsh > $(word 2,$(COMPLETIONS))/_memtide
	$(MEMTIDE) completions fish > $(word 3,$(COMPLETIONS))/memtide.fish

clean: ## remove what was built
	$(CARGO) clean
