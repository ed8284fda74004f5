#!/usr/bin/env bash
# What the scripts say when something is missing or goes wrong, and that they clean up: `make refusals`.
set -uo pipefail

here=$(dirname "${BASH_SOURCE[0]}")
# A bench of its own, so that one that is up stays as it is.
JANGAR_BENCH=refusals-$(cksum <<<"$(cd "$here" && pwd)" | cut -d' ' -f1)
export JANGAR_BENCH
source "$here/lib/base.sh"
source "$here/lib/namespaces.sh"

work=$(mktemp -d)
# Whatever a failed check leaves of the bench goes, too.
trap '"$cluster/bench.sh" down; rm -rf "$work"' EXIT
failed=0

# fails NAME WORDS COMMAND ...: the command fails, and its last words are these. `*` stands for any text.
fails() {
    local name=$1 words=$2 said status=0
    shift 2
    said=$(timeout 240 "$@" 2>&1 </dev/null) || status=$?
    # shellcheck disable=SC2053 # It is a pattern.
    if ((status != 0)) && [[ "${said##*$'\n'}" == $words ]]; then
        echo "ok: $name"
    else
        failed=1
        printf 'FAILED: %s\n  expected at the end: %s\n  status %d, and it said:\n%s\n' "$name" "$words" "$status" "$said"
    fi
}

# holds NAME COMMAND ...
holds() {
    local name=$1 said
    shift
    if said=$("$@" 2>&1 </dev/null); then
        echo "ok: $name"
    else
        failed=1
        printf 'FAILED: %s: %s said:\n%s\n' "$name" "$*" "$said"
    fi
}

# without PROGRAM: prints a PATH on which everything is but that.
without() {
    local directories directory
    mkdir -p "$work/without-$1"
    IFS=: read -ra directories <<<"$PATH"
    # The first one of a name is the one that counts.
    for directory in "${directories[@]}"; do
        find -L "$directory" -maxdepth 1 -type f -perm -u+x ! -name "$1" -exec ln -s -t "$work/without-$1" {} + 2>/dev/null
    done
    echo "$work/without-$1"
}

# fake NAME: a program of that name, first on the PATH `$work/fakes:$PATH`; its text is the standard input.
fake() {
    mkdir -p "$work/fakes"
    cat >"$work/fakes/$1"
    chmod +x "$work/fakes/$1"
}

# shellcheck disable=SC2329 # holds calls it.
is_gone() { ! is_alive && [[ ! -e "$state" ]]; }

# A program that is missing.
fails 'openssl is missing' '*openssl is not installed (Debian: apt-get install openssl)' \
    env PATH="$(without openssl)" "$cluster/bench.sh" build
fails 'go is missing' '*go is not installed.*get Go*' \
    env PATH="$(without go)" XDG_CACHE_HOME="$work/empty" "$root/scripts/tools.sh" kwok

# No space.
fake df <<'SH'
#!/bin/sh
printf 'Filesystem 1024-blocks Used Available Capacity Mounted\nfake 9000000 8997952 2048 100%% /\n'
SH
fails 'no space for a build' '*building kwok needs * MB in *, and 2 MB are free there.*' \
    env PATH="$work/fakes:$PATH" XDG_CACHE_HOME="$work/empty" "$root/scripts/tools.sh" kwok
fails 'no space for a bench' '*a bench needs * MB in *, and 2 MB are free there' \
    env PATH="$work/fakes:$PATH" "$cluster/bench.sh" up
holds 'nothing is left of it' is_gone

# No root. Another user may not be able to read the checkout.
if ((EUID == 0)); then
    mkdir "$work/copy"
    cp -r "$root/scripts" "$work/copy"
    mkdir "$work/copy/tests"
    cp -r "$cluster" "$work/copy/tests"
    chmod -R a+rX "$work"
    # shellcheck disable=SC2016 # It is for that shell.
    obstacle=$(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ bash -c \
        'source "$1/lib/base.sh"; source "$1/lib/real-node.sh"; real_node_obstacle' - "$work/copy/tests/cluster" 2>&1)
    holds 'a user without rights is told to be root' test "$obstacle" = 'a real node needs root: run the same command as root'

    # All but the real node boots for them, with tools that were built before.
    mkdir -p "$work/theirs/jangar/tools"
    for tool in kube kwok; do
        tool=$("$root/scripts/tools.sh" "$tool")
        cp -r "${tool%/*}" "$work/theirs/jangar/tools"
    done
    chown -R 65534:65534 "$work/theirs"
    nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/ XDG_CACHE_HOME="$work/theirs")
    if "${nobody[@]}" unshare --user --net --mount --pid --fork -- true 2>/dev/null; then
        holds 'fake nodes work without root' "${nobody[@]}" "$work/copy/tests/cluster/bench.sh" run \
            kubectl wait --for=condition=Ready node --all --timeout=60s
    else
        fails 'namespaces are refused to a user without rights' '*this machine refuses to make namespaces*' \
            "${nobody[@]}" "$work/copy/tests/cluster/bench.sh" up
    fi
    holds 'nothing is left of it' test ! -e "$work/theirs/jangar/bench/$JANGAR_BENCH"
fi

# A build that is killed in the middle.
rm "$work/fakes/df"
fake go <<SH
#!/usr/bin/env bash
[[ "\$1" != env ]] || { echo "$work" && exit; }
while [[ "\$1" != -o ]]; do shift; done
echo half >"\$2"
[[ -e "$work/has-time" ]] || { echo \$\$ >"$work/go" && exec sleep 40; }
printf '#!/bin/sh\n' >"\$2"
chmod +x "\$2"
SH
build=(env PATH="$work/fakes:$PATH" XDG_CACHE_HOME="$work/interrupted" "$root/scripts/tools.sh" kwok)
"${build[@]}" >/dev/null 2>&1 </dev/null &
pid_of_build=$!
for ((try = 0; try < 600; try++)); do
    [[ ! -s "$work/go" ]] || break
    sleep 0.05
done
{ kill -KILL "$pid_of_build" && wait "$pid_of_build"; } 2>/dev/null
kill "$(<"$work/go")"
holds 'a killed build leaves nothing that looks finished' test -z "$(find "$work/interrupted/jangar/tools" -name 'kwok-*')"
touch "$work/has-time"
holds 'the next build does not mind' "${build[@]}"
holds 'and is finished' test -x "$work"/interrupted/jangar/tools/kwok-*/kwok

# Suites that fail, and budgets that cannot be kept.
fake make <<'SH'
#!/usr/bin/env bash
[[ "${!#}" != broken ]]
SH
fails 'a suite that fails does not stop those after it' 'suites: 1 passed, 1 failed, 0 skipped' \
    env MAKE="$work/fakes/make" "$root/scripts/suites.sh" broken sound
fails 'budgets that add up to more than the limit' 'the budgets add up to 81 minutes, and all suites together have 80: *' \
    env -u JANGAR_TEST_MINUTES MAKE="$work/fakes/make" "$root/scripts/suites.sh" one@40 two@41:one

# Tests that fail are told once more at the end, with their words.
fake cargo <<'SH'
#!/usr/bin/env bash
printf 'test sound ... ok\ntest broken ... FAILED\n\nfailures:\n\n---- broken stdout ----\nthe roof leaks\n\n'
printf 'failures:\n    broken\n\nand a thousand lines\n'
[[ "$*" == 'test sound' ]]
SH
fails 'what failed is told once more' 'the roof leaks' \
    env PATH="$work/fakes:$PATH" "$root/scripts/cargo-test.sh" broken
said=$(env PATH="$work/fakes:$PATH" "$root/scripts/cargo-test.sh" sound)
holds 'where nothing failed, nothing is' test -n "$said" -a "${said/once more/}" = "$said"

# The page about tests names the budgets that the Makefile has.
# shellcheck disable=SC2329 # It is called by its name.
budgets_are_told() {
    local suite budget told
    while IFS=@ read -r suite budget; do
        told=$(sed -n "s/^| \`make $suite\` .*| \([0-9]*\) min |\$/\1/p" "$root/docs/testing.md")
        [[ "$told" == "$budget" ]] || { echo "docs/testing.md says '$told' of $suite, and the Makefile $budget"; return 1; }
    done < <(grep -oE '\b[a-z0-9-]+s@[0-9]+' "$root/Makefile" | grep -v '^typos@' | sort -u)
}
holds 'budgets are those of the page about tests' budgets_are_told

# Suites that do not end in time. The clock of the script begins two seconds before its limit.
fake make <<SH
#!/usr/bin/env bash
trap '' TERM
[[ "\${!#}" != leaves ]] || trap - TERM
(trap '' TERM; exec sleep 40) &
echo \$! >"$work/\${!#}"
[[ "\${!#}" != leaves ]] || { sleep 40; exit; }
wait
SH
for suite in stubborn leaves; do
    fails "a suite that is out of time: $suite" 'suites: 0 passed, 1 failed, 0 skipped' \
        env SECONDS=55 JANGAR_TEST_MINUTES=1 JANGAR_TEST_GRACE_SECONDS=1 MAKE="$work/fakes/make" "$root/scripts/suites.sh" "$suite"
    # One that has ended and is only waited for has no more such time.
    holds "nothing that it started goes on: $suite" test -z "$(started "$(<"$work/$suite")")"
done
fails 'no time at all' 'suites: 0 passed, 0 failed, 1 skipped' \
    env JANGAR_TEST_MINUTES=0 MAKE="$work/fakes/make" "$root/scripts/suites.sh" stubborn

# A step of the boot that fails.
mkdir -p "$work/broken/tests"
cp -r "$root/scripts" "$work/broken"
cp -r "$cluster" "$work/broken/tests"
sed -i 's/^kind: Node$/kind: Nod/' "$work/broken/tests/cluster/lib/fake-nodes.sh"
fails 'a step of the boot fails' '*the bench did not boot; what its parts said is in *' "$work/broken/tests/cluster/bench.sh" up
holds 'nothing is left of it' is_gone

# A boot that is killed in the middle, with the script that looks after it.
"$cluster/bench.sh" up >/dev/null 2>&1 </dev/null &
pid_of_boot=$!
for ((try = 0; try < 600; try++)); do
    [[ ! -s "$first_process" ]] || break
    sleep 0.05
done
{ kill -KILL "$pid_of_boot" && wait "$pid_of_boot"; } 2>/dev/null
holds 'what is left of a killed boot is not up' test ! -e "$booted"
holds 'the next start does not mind' "$cluster/bench.sh" run kubectl get nodes
holds 'nothing is left of it' is_gone

exit "$failed"
