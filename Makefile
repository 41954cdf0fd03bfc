# Two commands: `make run` and `make test`. Everything else is a part of them or for developers.
SHELL := /bin/bash
CARGO ?= cargo
DATA ?= .tenure
TARGET := $(or $(CARGO_TARGET_DIR),target)
.PHONY: run build test test-long check fmt lint console-check deny unit walk schemathesis fuzz sanitize bench setup-run setup-test clean

run: setup-run build
	@exec $(TARGET)/release/tenure up --data-dir $(DATA) --demo

build:
	$(CARGO) build --release -p tenure-cli -p tenure-agent -p tenure-guard -p tenure-broker -p tenure-remote

test: setup-test check console-check unit schemathesis deny

# The same tests with the long trial counts.
test-long: export TENURE_POWER_CUTS = 50000
test-long: export TENURE_KILLS = 2000
test-long: export TENURE_CRASHES = 2000
test-long: export TENURE_PROPERTY_OPS = 10000000
test-long: export TENURE_SHARE_RUNS = 5
test-long: export TENURE_HANDOVERS = 10000
test-long: export TENURE_POCL_HANDOVERS = 10000
test-long: export TENURE_LEDGER_KILLS = 2000
test-long: export TENURE_TAMPER_ROUNDS = 6000
test-long: export TENURE_FUZZ_ROUNDS = 10000
test-long: export TENURE_AUDIT_JOBS = 1000000
test-long: export TENURE_RECURRENCE_RULES = 10000
test-long: export TENURE_BOOKING_ATTEMPTS = 1000000
test-long: export TENURE_BOOKING_WINDOWS = 10000
test-long: test fuzz sanitize

check: fmt lint

fmt:
	$(CARGO) fmt --all --check

lint:
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings

# The types of the console's scripts.
console-check:
	scripts/console-check

deny:
	scripts/deny

# The agent's tests want the guard and the broker's programs beside the agent, where only a build puts them. Every failure is named in one run.
unit:
	@[ -d "$${TENURE_SHARED:-../shared}" ] || echo "unit: $${TENURE_SHARED:-../shared} is not there: tests of traces are left out, and those against contracts fail unless TENURE_WITHOUT_SHARED=1"
	$(CARGO) build -p tenure-guard -p tenure-broker -p tenure-remote
	$(CARGO) test --workspace --all-features --no-fail-fast

schemathesis:
	crates/server/tests/schemathesis.sh

# What a hostile tenant writes: decoder, ring, and the worker on a driver that is a double.
fuzz:
	scripts/fuzz

# The unsafe rooms under address and thread sanitizer, and their pure parts under miri where there is one.
sanitize:
	scripts/sanitize

bench:
	$(CARGO) build --release -p tenure-sim -p tenure-cli -p tenure-agent -p tenure-guard -p tenure-broker -p tenure-remote --lib --bins --examples
	$(TARGET)/release/tenure-bench all

setup-run:
	@scripts/setup run

setup-test:
	@scripts/setup test
	@scripts/setup-devices

# The agent's networks are mounted in its directory, which cannot be removed before they are.
clean:
	@if [ -x $(TARGET)/release/tenure-agent ] && [ -d $(DATA)/agent ]; then $(TARGET)/release/tenure-agent leave --state-dir $(DATA)/agent; fi
	rm -rf $(TARGET) $(DATA)
