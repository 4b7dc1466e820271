# Set-up, builds, tests and the demonstration. `make` lists the targets.

CARGO ?= cargo
PREFIX ?= /usr/local
MEMTIDE = target/release/memtide

.PHONY: help setup build demo test lint bench install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (Debian, Ubuntu), or say what is
	@sh scripts/setup

build: setup ## build the memtide command
	$(CARGO) build --release --package memtide-cli

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

install: build ## install the command, its man pages and completions below PREFIX
	install -D -m 755 $(MEMTIDE) $(DESTDIR)$(PREFIX)/bin/memtide
	$(MEMTIDE) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(MEMTIDE) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/memtide
	$(MEMTIDE) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_memtide
	$(MEMTIDE) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/memtide.fish

clean: ## remove what was built
	$(CARGO) clean
