# The way into this repository for people and for CI alike: `.ci/run` is `make test` and nothing else.
.DEFAULT_GOAL := help

# NAME@MINUTES:NEEDS, as scripts/suites.sh reads it. The minutes are for two cores and a machine that has nothing built yet.
# Together they are no more than the limit of a run, which is 80: a run in which nothing is over its budget is not ended.
LINTS := fmt@1 clippy@4 deny@3 typos@1 shellcheck@1
FAST := fmt@1 clippy@4 tests@23
# What a suite needs and what takes minutes to build once has a line of its own.
TESTS := tests@23 postgres-tests@1 temporal@4 temporal-tests@2:temporal kubectl@7 kubectl-tests@2:kubectl cluster@6 chart-tests@2:kubectl cluster-image@5 \
	refusals@1:cluster cluster-tests@9:cluster,cluster-image conformance-tests@2:cluster e2e-tests@6:cluster,cluster-image
# What `make bench` measures, each a target of its own.
BENCHES := bench-api bench-runs bench-load bench-history bench-cluster

# How many seeds `make simulate` plays: some ten minutes on two cores.
SEEDS ?= 1000

.PHONY: help demo test test-fast bench bench-api bench-runs bench-load bench-history bench-cluster simulate soak lint generate build image kubectl audit cluster-up cluster-shell cluster-down
.PHONY: fmt clippy deny typos shellcheck tests postgres-tests kubectl-tests temporal temporal-tests chart-tests cluster cluster-image refusals cluster-tests conformance-tests e2e-tests need-cargo

help: # Print the targets
	@awk -F ': .*## ' '/^[a-z-]+: .*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "One suite of 'make test' alone: make fmt, clippy, deny, typos, shellcheck, tests, postgres-tests, temporal-tests, kubectl-tests, chart-tests, refusals, cluster-tests, conformance-tests or e2e-tests"

demo: need-cargo ## Build Jangar and see it work: no cluster, no Docker, no key
	cargo build --locked --release --package jangar --package jangar-agentctl --bins
	cargo run --locked --release --package jangar -- demo

test: need-cargo ## Run everything that must hold, install what that needs, and say how long each suite took
	@scripts/suites.sh $(LINTS) $(TESTS)

test-fast: need-cargo ## Run what needs neither root nor Go nor Linux, and say what that leaves out
	@reason=$$(scripts/sandbox.sh); \
	JANGAR_TEST_WITHOUT_SANDBOX="$$reason" scripts/suites.sh $(FAST); status=$$?; \
	[ -z "$$reason" ] || echo "left out of tests: pods as processes (kubelite: node_executor; testkit: conformance_pods; jangar: up, demo), because $$reason"; \
	echo 'left out: $(strip $(foreach suite,$(filter-out $(FAST),$(LINTS) $(TESTS)),$(firstword $(subst @, ,$(suite)))))'; \
	echo 'make test runs them: they install tools, or need Go, and Linux with root'; \
	exit $$status

# All of them are run: a bound that is missed in one says nothing about the others. Ten hours are more than any machine takes.
bench: need-cargo ## Measure kubelite, runs, readers of the control plane, history and Jangar beside others, and say at the end which bounds were missed
	@JANGAR_TEST_MINUTES=600 scripts/suites.sh $(BENCHES)

bench-api: need-cargo
	cargo bench --locked --package kubelite --bench api

bench-runs: need-cargo
	cargo bench --locked --package jangar --bench runs

bench-load: need-cargo
	cargo bench --locked --package jangar --bench load

bench-history: need-cargo
	postgres=$$(scripts/tools.sh postgres) && JANGAR_TEST_POSTGRES="$$postgres" cargo bench --locked --package jangar-store --bench history

# Jangar as it is shipped, and the program that measures it, built together so that they share what is compiled.
# BENCH_FLAGS=--help tells what can be asked for.
bench-cluster: need-cargo ## Measure Jangar beside Argo Workflows on a real Kubernetes: docs/benchmarks
	cargo build --locked --release --package jangar --package jangar-bench --bin jangar --bin jangar-bench
	argo=$$(scripts/tools.sh argo-workflows) && \
	tests/cluster/bench.sh run $(CURDIR)/target/release/jangar-bench \
		--jangar $(CURDIR)/target/release/jangar --argo "$$argo" \
		--out $(CURDIR)/docs/benchmarks --logs $(CURDIR)/target/benchmark $(BENCH_FLAGS)

simulate: export JANGAR_SIM_SEEDS = $(SEEDS)
simulate: need-cargo ## Play the controllers with the bad luck of SEEDS=n seeds (1000): docs/simulation.md
	@case "$$JANGAR_SIM_SEEDS" in '' | 0 | *[!0-9]* | ????????*) \
	echo "SEEDS is '$$JANGAR_SIM_SEEDS': give a number from 1 to 9999999, as in make simulate SEEDS=5000" >&2; exit 2 ;; esac
	cargo test --locked --workspace --test simulation -- --exact seeds --nocapture
	JANGAR_SIM_THOROUGH=1 cargo test --locked --workspace --test simulation -- --exact crash_or_lost_answer_at_any_write_changes_nothing

lint: need-cargo ## Run the suites that only read the code: format, clippy, dependencies, spelling
	@scripts/suites.sh $(LINTS)

generate: need-cargo ## Write the files that are made from others: CRDs, schema, README and rights of charts/agents, docs/settings.md, docs/agentctl.md, docs/openapi.json, the tables of docs/orchestration-semantics.md
	cargo run --locked --package jangar -- crds --dir charts/agents/crds
	UPDATE_GOLDEN=1 cargo test --locked --quiet --package jangar-engine settings::
	UPDATE_GOLDEN=1 cargo test --locked --quiet --package jangar-engine --test orchestration table::
	UPDATE_GOLDEN=1 cargo test --locked --quiet --package jangar-agentctl --lib reference::
	UPDATE_GOLDEN=1 cargo test --locked --quiet --package jangar-server --lib openapi::
	sed -n '/^rules:/,$$p' tests/cluster/role.yaml >charts/agents/files/controllers-role.yaml
	sed -n '/^rules:/,$$p' tests/cluster/control-plane-role.yaml >charts/agents/files/control-plane-role.yaml
	scripts/agents/values.py

build: need-cargo ## Build the programs, optimised, into target/release
	cargo build --locked --release --workspace --exclude jangar-bench --bins

# TARGETS="x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu" makes images for both, where rustc and a linker can.
# Their names are those that charts/agents asks for, unless REPOSITORY and TAG say otherwise.
image: need-cargo ## Build the images of Jangar and of agent-runner as OCI archives, optimised and static, each with the list of its parts
	@JANGAR_IMAGE_TARGETS="$(TARGETS)" JANGAR_IMAGE_TAG="$(or $(TAG),$(shell sed -n 's/^appVersion: *"*\([^"]*\)"*/\1/p' charts/agents/Chart.yaml))" scripts/image.sh release $(or $(REPOSITORY),ghcr.io/proompteng)
	@tests/image/checked.py release

kubectl: ## Print the path of a kubectl 1.35, built from its Go module if there is none
	@scripts/tools.sh kubectl

cluster-up: ## Boot a real Kubernetes in namespaces of its own and leave it up: docs/testing.md
	@tests/cluster/bench.sh up

cluster-shell: ## Open a shell in the network of that cluster, with kubectl
	@tests/cluster/bench.sh shell

cluster-down: ## End that cluster and remove what it left
	@tests/cluster/bench.sh down

soak: need-cargo cluster-image ## Kill the leading controllers a hundred times on a real cluster, and count what came of the runs
	cargo test --locked --workspace --test e2e --no-run
	JANGAR_SOAK=100 tests/cluster/bench.sh run cargo test --locked --workspace --test e2e -- leader_is_killed

audit: need-cargo ## Look the dependencies up in the RustSec advisory database (fetches it)
	@tool=$$(scripts/tools.sh cargo-deny) && "$$tool" --locked check advisories

# The suites.

fmt: need-cargo
	cargo fmt --all --check

# The tests with kubectl and on a cluster are not among the default targets (see their Cargo.toml), so they are named.
clippy: need-cargo
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked --workspace --test kubectl --test chart --test cluster --test conformance_cluster --test e2e --test temporal_server --test temporal --test postgres -- -D warnings

# Advisories change without a change here, so they are `make audit`: docs/decisions/0008-advisories-outside-make-test.md.
deny: need-cargo
	@tool=$$(scripts/tools.sh cargo-deny) && "$$tool" --locked check -D unmatched-skip -D unnecessary-skip bans licenses sources

typos:
	@tool=$$(scripts/tools.sh typos) && "$$tool"

# Files that are sourced are checked with those that source them.
shellcheck:
	@tool=$$(scripts/tools.sh shellcheck) && "$$tool" --check-sourced .ci/run scripts/*.sh scripts/agents/schemas.sh scripts/agents/validate-agents.sh tests/chart/installed.sh tests/chart/delivered.sh tests/cluster/*.sh tests/cluster/lib/packages.sh

# Where nobody can make a sandbox, `make test-fast` leaves out what needs one. In `make test` it fails.
tests: need-cargo
	scripts/cargo-test.sh --locked --workspace --no-fail-fast $(if $(JANGAR_TEST_WITHOUT_SANDBOX),--no-default-features)

# The history on a real Postgres, found or installed; on SQLite it is among `tests`.
postgres-tests: need-cargo
	postgres=$$(scripts/tools.sh postgres) && \
	JANGAR_TEST_POSTGRES="$$postgres" scripts/cargo-test.sh --locked --workspace --test postgres

# The whole workspace is selected so that dependencies have the features they were already built with for `tests`.
kubectl-tests: need-cargo
	kubectl=$$(scripts/tools.sh kubectl) && \
	JANGAR_TEST_KUBECTL="$$kubectl" scripts/cargo-test.sh --locked --workspace --test kubectl -- --skip on_cluster::

# A Temporal server with a worker, from their Go modules.
temporal:
	@scripts/tools.sh temporal >/dev/null

# First the client by itself, then the program.
temporal-tests: need-cargo
	server=$$(scripts/tools.sh temporal) && \
	JANGAR_TEST_TEMPORAL="$$server" scripts/cargo-test.sh --locked --workspace --test temporal_server --test temporal

# Renders are compared with crates/jangar/tests/chart/snapshots; INSTA_UPDATE=always writes them anew.
chart-tests: need-cargo
	helm3=$$(scripts/tools.sh helm3) && helm4=$$(scripts/tools.sh helm4) && kustomize=$$(scripts/tools.sh kustomize) && \
	scripts/tools.sh kubeconform >/dev/null && scripts/agents/schemas.sh >/dev/null && \
	JANGAR_TEST_HELM3="$$helm3" JANGAR_TEST_HELM4="$$helm4" JANGAR_TEST_KUSTOMIZE="$$kustomize" \
	scripts/cargo-test.sh --locked --workspace --test chart

cluster:
	@tests/cluster/bench.sh build

# The image that the tests give to the real node. It need not be fast, so it is quick to build. What holds of it holds of a release.
cluster-image: need-cargo
	@scripts/image.sh dev
	@tests/image/checked.py dev

# Bad input of the scripts themselves.
refusals:
	@tests/cluster/refusals.sh

# Compiled before it runs: inside the network of a cluster there is no registry. The image is built anew if the code has
# changed, so that no old one is tested.
cluster-tests: need-cargo cluster cluster-image
	cargo test --locked --workspace --test cluster --no-run
	cargo build --locked --workspace --bin agentctl
	tests/cluster/bench.sh run scripts/cargo-test.sh --locked --workspace --test cluster
	postgres=$$(scripts/tools.sh postgres) && JANGAR_TEST_POSTGRES="$$postgres" tests/cluster/bench.sh run tests/chart/installed.sh
	tests/cluster/bench.sh run tests/chart/delivered.sh

# That kubelite gives the same answers is among `tests`, and that kubectl prints the same on it among `kubectl-tests`. What
# kubectl prints is compared to the letter, so it gets a cluster that nobody has put anything into.
conformance-tests: need-cargo
	cargo test --locked --workspace --test conformance_cluster --test kubectl --no-run
	tests/cluster/bench.sh run scripts/cargo-test.sh --locked --workspace --test conformance_cluster
	kubectl=$$(scripts/tools.sh kubectl) && JANGAR_TEST_KUBECTL="$$kubectl" \
	tests/cluster/bench.sh alone scripts/cargo-test.sh --locked --workspace --test kubectl on_cluster::

# More tests at once than there are cores: they mostly wait for the cluster.
e2e-tests: need-cargo cluster-image
	cargo test --locked --workspace --test e2e --no-run
	tests/cluster/bench.sh run scripts/cargo-test.sh --locked --workspace --test e2e -- --test-threads=8

need-cargo:
	@scripts/tools.sh need cargo
