#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Users take turns with a tier: one who seals often, or unseals what is being flushed, does not keep the checkpoints of
# others out of it.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
tools=$CKPTFS_BUILD/tools
restore=$(program tier_restore)
TIER=$WORK/tier
mkdir "$TIER"
at_end() { touch "$WORK/enough"; }
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; } # UID COMMAND...
is() { [ "$(figure "tier.$1")" = "$2" ]; } # KEY VALUE: to be awaited
checkpoint() { # USER NAME MIB
	mkdir -p "$MNT/$1/$2"
	noise "$2" "$3" >"$MNT/$1/$2/data"
	chown "$1:$1" "$MNT/$1/$2" "$MNT/$1/$2/data"
}
order() { # the paths in the tier, in the order of their flushes
	rm -rf "$WORK/back"
	mkdir "$WORK/back"
	"$restore" "dir:$TIER" "$WORK/back" || fail "the tier cannot be read"
	(cd "$WORK/back" && find . -name '*.path' | sort -V | xargs -r -n 1 sh -c 'cat "$0"; echo') | xargs
}

# --- by turns, the newest one of a user first ---
no_commit_timer
mv "$TIER" "$TIER.later"
fs_mount "tier=dir:$TIER"
await is state retrying
for name in 1001/a 1002/b 1002/c 1002/d 1001/e 1002/f; do
	checkpoint "${name%/*}" "${name#*/}" 1
	as "${name%/*}" "$tools/ckptfs-seal" -q "$MNT/$name"
done
mv "$TIER.later" "$TIER"
await is in_tier 6
[ "$(order)" = "1002/f 1001/e 1002/d 1001/a 1002/c 1002/b" ] || fail "flushed in this order: $(order)"

# --- one user unseals what is being flushed, and seals it again, without end ---
fs_remount "tier=dir:$TIER,tier_rate=1M"
checkpoint 1001 loop 16
checkpoint 1002 small 1
as 1001 bash -c '
	until [ -e "$2" ]; do
		"$0" -q "$1" || exit 1
		sleep 1
		"$0" -q --unseal "$1" || exit 1
	done' "$tools/ckptfs-seal" "$MNT/1001/loop" "$WORK/enough" &
loop=$!
await is state flushing
exits 0 as 1002 "$tools/ckptfs-seal" --wait=tier:4m "$MNT/1002/small"
running "$loop" || fail "the loop has ended"
touch "$WORK/enough"
wait "$loop" || fail "the loop failed"
is failures 0 || fail "that was a failure: $(figure tier.reason)"
fs_umount
