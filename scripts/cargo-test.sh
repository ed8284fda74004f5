#!/usr/bin/env bash
# cargo test, which says at its end once more what failed and with which words: they may stand thousands of lines above.
#
#   scripts/cargo-test.sh ARGUMENT ...
#
# Whoever sits at a terminal can look, and has cargo's own output.
set -uo pipefail
[[ ! -t 1 ]] || exec cargo test "$@"

# So many lines of what failed tests printed are worth repeating.
lines_max=400

said=$(mktemp)
trap 'rm -f "$said"' EXIT
cargo test "$@" 2>&1 | tee "$said"
status=${PIPESTATUS[0]}
if ((status != 0)); then
    printf '\nwhat failed, once more:\n'
    grep '^test .* FAILED$' "$said"
    # Each target prints what its failed tests said, and after that their names.
    awk '/^---- .* stdout ----$/ { inside = 1 } /^failures:$/ { inside = 0 } inside' "$said" | head -n "$lines_max"
fi
exit "$status"
