#!/usr/bin/env bash
# Runs suites one after the other and says at the end what ran, how it ended and how long it took.
#
#   scripts/suites.sh NAME[@MINUTES][:NEEDS,...] ...
#
# A suite is a target of the Makefile, so the name in the table is also the way to run it again alone. A suite that fails
# does not stop the others: one run tells everything that is wrong. Only NAME:NEEDS is left out when one of NEEDS did not pass.
#
# MINUTES is what a suite may take on two cores with nothing built yet. One that takes longer passes with a warning: somebody
# should look before everybody waits. All together may take JANGAR_TEST_MINUTES; then the suite that runs is ended, and
# whatever is left is not run.
set -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
# Suites share the machine's cores as cargo sees fit; the flags of the make that called are not for them.
unset MAKEFLAGS MFLAGS MAKELEVEL

limit=$((${JANGAR_TEST_MINUTES:-80} * 60))
# What a suite that is asked to end may take to clean up after itself; a bench takes a second or two.
grace=${JANGAR_TEST_GRACE_SECONDS:-60}

names=() results=() times=() budgets=() warnings=()
passed=0 failed=0 skipped=0

as_minutes() { printf '%dm %02ds' $(($1 / 60)) $(($1 % 60)); }

report() {
    local i
    printf '\n%-16s %-32s %8s %8s\n' suite result time budget
    for i in "${!names[@]}"; do
        printf '%-16s %-32s %8s %8s\n' "${names[i]}" "${results[i]}" "${times[i]}" "${budgets[i]}"
    done
    printf '%-16s %-32s %8s %8s\n\n' total '' "$(as_minutes "$SECONDS")" "$(as_minutes "$limit")"
    for i in "${!warnings[@]}"; do printf 'warning: %s\n' "${warnings[i]}"; done
    printf 'suites: %d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
}

# record NAME RESULT SECONDS BUDGET
record() {
    names+=("$1") results+=("$2") times+=("$(as_minutes "$3")")
    if [[ -z "$4" ]]; then
        budgets+=('')
        return
    fi
    budgets+=("$(as_minutes $(($4 * 60)))")
    (($3 <= $4 * 60)) || warnings+=("$1 took $(as_minutes "$3"), which is over its budget of $4 minutes (see the Makefile)")
}

result_of() {
    local i
    for i in "${!names[@]}"; do
        [[ "${names[i]}" == "$1" ]] && echo "${results[i]}"
    done
}

# end GROUP: asks all processes of a group to end. They may have to clean up, so they are waited for; those that do not listen
# are made to end.
end() {
    local try
    kill -TERM -- "-$1" 2>/dev/null || return
    for ((try = 0; try < grace * 10; try++)); do
        kill -0 -- "-$1" 2>/dev/null || return
        sleep 0.1
    done
    kill -KILL -- "-$1" 2>/dev/null
}

# supervise SECONDS COMMAND ...: ends the command, with all that it has started, when the time is up. `timeout` would do the
# same, but not every system has it.
supervise() {
    local seconds=$1 status
    shift
    # Each gets a process group of its own, by which it can be ended whole.
    set -m
    "$@" </dev/null &
    group=$!
    { sleep "$seconds" && end "$group"; } 2>/dev/null &
    watch=$!
    set +m
    wait "$group" 2>/dev/null
    status=$?
    # The first process of a suite that was ended may be gone before those that it has started.
    ((SECONDS < limit)) || end "$group"
    group=
    kill -TERM -- "-$watch" 2>/dev/null
    wait "$watch" 2>/dev/null
    return "$status"
}

run() {
    local name=$1 budget=$2 needs start=$SECONDS
    if ((SECONDS >= limit)); then
        skipped=$((skipped + 1))
        record "$name" 'not run: out of time' 0 "$budget"
        return
    fi
    for needs in ${3//,/ }; do
        [[ "$(result_of "$needs")" != ok ]] || continue
        skipped=$((skipped + 1))
        record "$name" "skipped: $needs did not pass" 0 "$budget"
        return
    done
    printf '\n==> %s\n' "$name"
    current=$name started=$start
    if supervise $((limit - SECONDS)) "${MAKE:-make}" --no-print-directory "$name"; then
        passed=$((passed + 1))
        record "$name" ok $((SECONDS - start)) "$budget"
    elif ((SECONDS >= limit)); then
        failed=$((failed + 1))
        record "$name" 'ENDED: out of time' $((SECONDS - start)) "$budget"
    else
        failed=$((failed + 1))
        record "$name" FAILED $((SECONDS - start)) "$budget"
    fi
    current=
}

# The suite is not in the process group of the terminal, so an interrupt has to be handed on.
interrupted() {
    trap '' INT TERM
    if [[ -n "$group" ]]; then
        end "$group"
        kill -TERM -- "-$watch" 2>/dev/null
    fi
    if [[ -n "$current" ]]; then
        failed=$((failed + 1))
        record "$current" interrupted $((SECONDS - started)) ''
    fi
    report
    exit 130
}
trap interrupted INT TERM

# Budgets that add up to more than the limit would let a run fail in which no suite was slow. A limit that somebody sets is theirs.
sum=0
for suite in "$@"; do
    suite=${suite%%:*}
    [[ "$suite" != *@* ]] || sum=$((sum + ${suite#*@}))
done
if [[ -z "${JANGAR_TEST_MINUTES:-}" ]] && ((sum * 60 > limit)); then
    echo "the budgets add up to $sum minutes, and all suites together have $((limit / 60)): see the Makefile" >&2
    exit 2
fi

for suite in "$@"; do
    needs='' budget=''
    [[ "$suite" == *:* ]] && needs=${suite#*:}
    suite=${suite%%:*}
    [[ "$suite" == *@* ]] && budget=${suite#*@}
    run "${suite%%@*}" "$budget" "$needs"
done
report
((passed > 0 && failed == 0 && skipped == 0))
