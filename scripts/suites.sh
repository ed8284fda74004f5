#!/usr/bin/env bash
# Runs suites one after the other and says at the end what ran, how it ended and how long it took.
#
#   scripts/suites.sh NAME[:NEEDS] ...
#
# A suite is a target of the Makefile, so the name in the table is also the way to run it again alone. A suite that fails
# does not stop the others: one run tells everything that is wrong. Only NAME:NEEDS is left out when NEEDS did not pass.
set -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Suites share the machine's cores as cargo sees fit; the flags of the make that called are not for them.
unset MAKEFLAGS MFLAGS MAKELEVEL

names=() results=() times=()
passed=0 failed=0 skipped=0

as_minutes() { printf '%dm %02ds' $(($1 / 60)) $(($1 % 60)); }

report() {
    local i
    printf '\n%-16s %-32s %8s\n' suite result time
    for i in "${!names[@]}"; do
        printf '%-16s %-32s %8s\n' "${names[i]}" "${results[i]}" "${times[i]}"
    done
    printf '%-16s %-32s %8s\n\n' total '' "$(as_minutes "$SECONDS")"
    printf 'suites: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
}

# record NAME RESULT SECONDS
record() {
    names+=("$1") results+=("$2") times+=("$(as_minutes "$3")")
}

result_of() {
    local i
    for i in "${!names[@]}"; do
        [[ "${names[i]}" == "$1" ]] && echo "${results[i]}"
    done
}

run() {
    local name=$1 needs=$2 start=$SECONDS status
    if [[ -n "$needs" && "$(result_of "$needs")" != ok ]]; then
        skipped=$((skipped + 1))
        record "$name" "skipped: $needs did not pass" 0
        return
    fi
    printf '\n==> %s\n' "$name"
    current=$name started=$start
    "${MAKE:-make}" --no-print-directory "$name"
    status=$?
    current=
    if ((status == 0)); then
        passed=$((passed + 1))
        record "$name" ok $((SECONDS - start))
    else
        failed=$((failed + 1))
        record "$name" FAILED $((SECONDS - start))
    fi
}

interrupted() {
    if [[ -n "$current" ]]; then
        failed=$((failed + 1))
        record "$current" interrupted $((SECONDS - started))
    fi
    report
    exit 130
}
trap interrupted INT TERM

for suite in "$@"; do
    needs=
    [[ "$suite" == *:* ]] && needs=${suite#*:}
    run "${suite%%:*}" "$needs"
done
report
((passed > 0 && failed == 0 && skipped == 0))
