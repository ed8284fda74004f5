# The way into this repository for people and for CI alike: `.ci/run` is `make test` and nothing else.
.DEFAULT_GOAL := help

LINTS := fmt clippy deny typos
# The tests with kubectl need its binary, which is built once into a cache and takes minutes: its time has a line of its own.
TESTS := tests kubectl kubectl-tests:kubectl

.PHONY: help demo test bench lint generate build kubectl audit fmt clippy deny typos tests kubectl-tests need-cargo

help: # Print the targets
	@awk -F ': .*## ' '/^[a-z-]+: .*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "One suite of 'make test' alone: make fmt, clippy, deny, typos, tests or kubectl-tests"

demo: need-cargo ## Build Jangar and see it work: no cluster, no Docker, no key
	cargo run --locked --release --package jangar -- demo

test: need-cargo ## Run everything that must hold, install what that needs, and say how long each suite took
	@scripts/suites.sh $(LINTS) $(TESTS)

bench: need-cargo ## Measure kubelite and runs, and print the settings beside the figures
	cargo bench --locked --package kubelite --bench api
	cargo bench --locked --package jangar --bench runs

lint: need-cargo ## Run the suites that only read the code: format, clippy, dependencies, spelling
	@scripts/suites.sh $(LINTS)

generate: need-cargo ## Write the files that are made from the code: the CRDs of charts/agents, docs/settings.md
	cargo run --locked --package jangar -- crds --dir charts/agents/crds
	UPDATE_GOLDEN=1 cargo test --locked --quiet --package jangar-engine settings::

build: need-cargo ## Build the programs, optimised, into target/release
	cargo build --locked --release --workspace --bins

kubectl: ## Print the path of a kubectl 1.35, built from its Go module if there is none
	@scripts/tools.sh kubectl

audit: need-cargo ## Look the dependencies up in the RustSec advisory database (fetches it)
	@tool=$$(scripts/tools.sh cargo-deny) && "$$tool" --locked check advisories

# The suites.

fmt: need-cargo
	cargo fmt --all --check

# The tests with kubectl are not among the default targets (see crates/kubelite/Cargo.toml), so they are named.
clippy: need-cargo
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --test kubectl -- -D warnings

# Advisories change without a change here, so they are `make audit`: docs/decisions/0008-advisories-outside-make-test.md.
deny: need-cargo
	@tool=$$(scripts/tools.sh cargo-deny) && "$$tool" --locked check -D unmatched-skip -D unnecessary-skip bans licenses sources

typos:
	@tool=$$(scripts/tools.sh typos) && "$$tool"

tests: need-cargo
	cargo test --locked --workspace --no-fail-fast

# The whole workspace is selected so that dependencies have the features they were already built with for `tests`.
kubectl-tests: need-cargo
	kubectl=$$(scripts/tools.sh kubectl) && \
	JANGAR_TEST_KUBECTL="$$kubectl" cargo test --locked --workspace --test kubectl

need-cargo:
	@scripts/tools.sh need cargo
