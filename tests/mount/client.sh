#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What libckptfs promises (client_api.c), with both ways of noticing writes; its mount ends and comes back; where files cannot be cloned.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
no_commit_timer

api=$(program client_api) client=$(program client)
small_disk 160m
export BALLAST=$disk/ballast
full_store=$STORE full=$WORK/full
STORE=$WORK/store
mkdir "$full"
pages=$(cat /proc/sys/vm/nr_hugepages)
echo $((pages + 8)) >/proc/sys/vm/nr_hugepages 2>/dev/null || true
ended() { # whatever comes
	umount "$full" 2>/dev/null || true
	echo "$pages" >/proc/sys/vm/nr_hugepages 2>/dev/null || true
}

run() { # TRACKING [MODE]
	local name=$1${2:+-$2}
	mkdir "$MNT/$name"
	"$CKPTFS_BUILD/fs/mount.ckptfs" "$full_store" "$full" --foreground >>"$WORK/full.log" 2>&1 &
	full_daemon=$!
	await mountpoint -q "$full"
	fallocate -l 120M "$BALLAST"
	# 20 s on a machine that does six things at once, and more with sanitizers
	CKPTFS_TRACKING=$1 CKPTFS_MODE=${2:-} timeout -k 5 1000 "$api" "$MNT/$name" "$full" >"$WORK/said" 2>"$WORK/errors" || {
		code=$?
		ended
		cat "$WORK/said" >&2
		tail -n 5 "$WORK/errors" "$WORK/full.log" >&2
		fail "$name: exit code $code" # 124: not done in time
	}
	sed "s/^ok/ok $name:/" "$WORK/said"
	umount "$full"
	wait "$full_daemon" # its open files take room even when they have been removed
	rm -rf "$full_store"
}

fs_mount
run mprotect
if CKPTFS_TRACKING=userfaultfd "$client" "$MNT/probe" 1 1 >/dev/null 2>"$WORK/said"; then
	run userfaultfd
	run userfaultfd sync # which the kernel notes by itself
elif grep -q 'no userfaultfd' "$WORK/said"; then
	echo "ok (without userfaultfd: $(tail -n 1 "$WORK/said"))"
else
	cat "$WORK/said"
	fail "userfaultfd"
fi
ended

# A program that may not have userfaultfd is told so, and is tracked by mprotect(2).
if [ "$(cat /proc/sys/vm/unprivileged_userfaultfd 2>/dev/null)" = 0 ] && ! as_nobody test -r /dev/userfaultfd; then
	mkdir -m 777 "$MNT/nobody"
	! CKPTFS_TRACKING=userfaultfd as_nobody "$client" "$MNT/nobody/uffd" 10 3 >/dev/null 2>"$WORK/said" || fail "nobody has userfaultfd"
	grep -q 'no userfaultfd: userfaultfd(2) needs root' "$WORK/said" || fail "nobody is not told why: $(cat "$WORK/said")"
	as_nobody "$client" "$MNT/nobody/run" 10 3 >"$WORK/out" 2>"$WORK/said" || { cat "$WORK/said"; fail "nobody"; }
	grep -q 'tracking by mprotect(2)' "$WORK/said" || fail "the mechanism is not logged: $(cat "$WORK/said")"
	CKPTFS_TRACKING=userfaultfd "$client" "$MNT/root" 10 3 >"$WORK/right" 2>/dev/null || fail "root"
	cmp "$WORK/out" "$WORK/right" || fail "nobody comes to another result"
	echo "ok without userfaultfd memory is tracked by mprotect(2), and that is logged"
fi

# A program that loads the library late is told what that means with mprotect(2), and only then.
late() { # TRACKING [PRELOAD]
	rm -rf "$MNT/late"
	CKPTFS_TRACKING=$1 LD_PRELOAD=${2:-} "$PYTHON" -c '
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
lib.ckptfs_malloc.restype, lib.ckptfs_malloc.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_size_t]
assert lib.ckptfs_init(sys.argv[2].encode(), None) == 0 and lib.ckptfs_malloc(b"p", 65536)
assert lib.ckptfs_checkpoint() == 0 and lib.ckptfs_finish() == 0' "$library" "$MNT/late" 2>"$WORK/said" || fail "late: $(cat "$WORK/said")"
	grep -q 'loaded after the C library' "$WORK/said"
}
library=$CKPTFS_BUILD/client/libckptfs.so.0
if [ -e "$CKPTFS_BUILD/client/libckptfs-preload.so" ]; then # not with sanitizers
	late mprotect || fail "it was not said that it was loaded late"
	! late mprotect "$library" || fail "told that it was loaded late, and it was not"
	echo "ok a library that is loaded late is told"
fi

# Memory of several processes that is equal is stored once: regions lie at pages of their files.
stored() { "$CKPTFS_BUILD/tools/ckptfs-stat" --json "$MNT" | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["stored_bytes"])'; }
"$client" "$MNT/first" 7 5 16 >/dev/null || fail "first"
sync "$MNT/first/000001"
once=$(stored)
"$client" "$MNT/second" 7 5 16 >/dev/null || fail "second"
sync "$MNT/second/000001"
twice=$(stored)
[ $((twice - once)) -lt 100000 ] || fail "16 MiB that another process has, too, take $((twice - once)) bytes more"
echo "ok equal memory of two processes is stored once"

# Memory is not for other users, whatever the umask is; the user that wrote it can restart from it.
mkdir -m 777 "$MNT/private"
(umask 0 && as_nobody "$client" "$MNT/private/run" 5 2 >/dev/null 2>&1) || fail "private"
[ "$(stat -c %a "$MNT"/private/run/00000[12])" = $'400\n400' ] || fail "memory is readable: $(ls -l "$MNT/private/run")"
! setpriv --reuid 65533 --regid 65534 --clear-groups cat "$MNT/private/run/000001" >/dev/null 2>&1 || fail "another user reads memory"
as_nobody "$client" "$MNT/private/run" 6 2 >"$WORK/out" 2>"$WORK/said" || { cat "$WORK/said"; fail "private, restarted"; }
grep -q '^restarted 4 from 000002' "$WORK/out" || fail "not from its own memory: $(head -n 1 "$WORK/out")"
echo "ok memory is readable by its owner only"

# The newest checkpoint has a page that cannot be read any more: the one before it is taken, and all comes out as it would have.
"$client" "$WORK/undisturbed" 20 100 >"$WORK/out" 2>/dev/null || fail "undisturbed"
right=$(tail -n 1 "$WORK/out")
"$client" "$MNT/damaged" 10 3 >/dev/null || fail "before it is damaged"
page=$({ cmp -l "$MNT/damaged/000002" "$MNT/damaged/000003" || true; } | awk '$1 > 65536 && !page { page = int(($1 - 1) / 4096) * 4096 } END { print page }')
flip_chunk "$MNT/damaged/000003" "$page"
fs_remount # whatever has been read is forgotten
mkdir "$MNT/older"
mv "$MNT"/damaged/00000[12] "$MNT/older"
! "$client" "$MNT/damaged" 20 3 >"$WORK/out" 2>"$WORK/said" || fail "begun at the beginning, with memory that is half a checkpoint"
mv "$MNT"/older/* "$MNT/damaged"
"$client" "$MNT/damaged" 20 3 >"$WORK/out" 2>"$WORK/said" || { cat "$WORK/said"; fail "a damaged checkpoint ends the program"; }
grep -q '^restarted 6 from 000002' "$WORK/out" || fail "not from the one before: $(head -n 1 "$WORK/out")"
[ "$(tail -n 1 "$WORK/out")" = "$right" ] || fail "$(tail -n 1 "$WORK/out"), undisturbed: $right"
echo "ok a checkpoint that cannot be read is passed over"

# Where files cannot be cloned a checkpoint is copied, and that is said.
[ "$(stat -f -c %T "$WORK")" = btrfs ] || [ "$(stat -f -c %T "$WORK")" = xfs ] || {
	"$client" "$WORK/plain" 12 5 >/dev/null 2>"$WORK/said" || fail "on a plain directory"
	grep -q 'warning checkpoints .*cannot clone files' "$WORK/said" || fail "copying is not logged"
	echo "ok copies are made where files cannot be cloned, and that is said"
}

: >"$WORK/out"
mkfifo "$WORK/go-on"
"$api" "$MNT" --outlive <"$WORK/go-on" >"$WORK/out" 2>"$WORK/errors" &
survivor=$!
exec 3>"$WORK/go-on"
says() { # WHAT: the program does, and waits
	until grep -q "$1" "$WORK/out"; do
		running "$survivor" || { cat "$WORK/out" "$WORK/errors"; fail "it ended before it said '$1'"; }
		sleep 0.05
	done
}
says 'kill it'
fs_kill
echo >&3
says 'mount it'
fs_mount
echo >&3
wait "$survivor" || { cat "$WORK/out" "$WORK/errors"; fail "it did not outlive its mount"; }
echo "ok a program outlives its mount and goes on when there is one again"
fs_umount
