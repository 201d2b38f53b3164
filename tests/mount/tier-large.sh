#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A checkpoint whose manifest would be too large for memory is not flushed. It is reported, and others are flushed.
. "$(dirname "$0")/lib.sh"
need_mount
tools=$CKPTFS_BUILD/tools
TIER=$WORK/tier
mkdir "$TIER"

fs_mount "tier=dir:$TIER"
mkdir "$MNT/large" "$MNT/small"
"$PYTHON" - "$MNT/large" <<'EOT'
import os, sys
for i in range(4250): # 259 MiB of attributes
    path = f"{sys.argv[1]}/{i}"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.setxattr(path, "user.large", i.to_bytes(4, "little") * 16000)
EOT
echo small >"$MNT/small/data"
"$tools/ckptfs-seal" -q "$MNT/small"
"$tools/ckptfs-seal" -q "$MNT/large" # the newest, and the first one to be flushed
await at_least tier.failures 1
await at_least tier.in_tier 1
[ "$(figure tier.in_tier) of $(figure tier.sealed)" = "1 of 2" ] || fail "$(figure tier.in_tier) of $(figure tier.sealed) are in the tier"
[[ "$(figure tier.reason)" = "directory "*": cannot flush: File too large" ]] || fail "the reason is $(figure tier.reason)"
exits 3 "$tools/ckptfs-seal" --no-seal --wait=tier "$MNT/large"
says "not in the tier dir:$TIER: its manifest would be too large"
exits 32 timeout 120 "$tools/umount.ckptfs" --flush "$MNT"
says "$MNT/large: not in the tier: its manifest would be too large"
says "not unmounted: too large for the tier"
mounted || fail "unmounted although a checkpoint is not in the tier"
grep -q 'large: its manifest in the tier would exceed 268435456 bytes' "$WORK/daemon.log" || fail "the log does not name it"
[ "$(find "$TIER/sealed" -type f | wc -l)" = 1 ] || fail "other manifests: $(find "$TIER/sealed")"
exits 0 "$tools/ckptfs-gc" --tier --keep-last 1 --delete "dir:$TIER"
"$tools/ckptfs-seal" -q --unseal "$MNT/large"
rm -r "$MNT/large"
fs_umount
