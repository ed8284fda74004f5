#!/usr/bin/env bash
# Checks manifests against strict schemas, without a cluster and without the network once the schemas are made.
#
#   scripts/kubeconform.sh DIRECTORY|FILE ...
#
# A directory with a kustomization is rendered as Argo CD does it; its files are then not checked one by one. Every object must have
# a schema: one that is skipped is a failure, and so is a directory without objects.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/agents/lib.sh"
(($# > 0)) || die "usage: scripts/kubeconform.sh DIRECTORY|FILE ..., such as scripts/kubeconform.sh argocd"
kubeconform=$(tool kubeconform) kustomize=$(tool kustomize) helm=$(tool helm3)
schemas=$("$root/scripts/agents/schemas.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# check NAME FILE: all objects of a file, with the name under which it is spoken of.
check() {
    local said status=0
    said=$("$kubeconform" -strict -summary -output text -schema-location "$schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" - <"$2" 2>&1) || status=$?
    printf '%s: %s\n' "$1" "${said//$'\n'/$'\n'  }"
    ((status == 0)) || return 1
    [[ "$said" == *", Skipped: 0"* ]] || { echo "$1: objects were skipped, which is no check" && return 1; }
    [[ "$said" != *"Summary: 0 resources"* ]] || { echo "$1: there is no object in it" && return 1; }
}

failed=0
for place in "$@"; do
    [[ -e "$place" ]] || die "$place does not exist"
    rendered=()
    while IFS= read -r -d '' kustomization; do
        directory=$(dirname "$kustomization")
        rendered+=(-not -path "$directory/*")
        if render "$directory" >"$work/rendered.yaml"; then
            check "$directory (rendered)" "$work/rendered.yaml" || failed=1
        else
            echo "$directory: kustomize could not render it" && failed=1
        fi
    done < <(find "$place" -name kustomization.yaml -print0 | sort -z)
    # What stands beside a kustomization without being part of it, such as the Application that points to it.
    while IFS= read -r -d '' file; do
        check "$file" "$file" || failed=1
    done < <({
        find "$place" -type f \( -name '*.yaml' -o -name '*.yml' \) "${rendered[@]}" -print0
        find "$place" -type f -name application.yaml -print0
    } | sort -zu)
done
((failed == 0)) || die "manifests are wrong; see above"
