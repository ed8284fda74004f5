#!/usr/bin/env bash
# Says why pods cannot be kept apart from this machine, if so: it tries to make the namespaces that a sandbox is made of.
if [[ "$(uname -s)" != Linux ]]; then
    echo 'only Linux has the namespaces that a sandbox is made of'
elif ! command -v unshare >/dev/null; then
    echo 'there is no unshare (of util-linux) to find out whether this machine lets us make a sandbox'
elif ! unshare --user --map-root-user --pid --mount --fork true 2>/dev/null; then
    echo 'this machine refuses the namespaces that a sandbox is made of (see kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)'
fi
