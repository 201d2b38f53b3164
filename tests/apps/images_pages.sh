#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Core files whose memory begins at other places of a page in each of them, as gcore has it: their pages are those of each other, and of the libraries' own
# files, with chunks that are pages.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need gcore gdb readelf

size() { stat -Lc %s "$1"; }

library() { ldconfig -p | awk -v n="$1" '$1 == n && !nr++ { print $NF }'; } # NAME: its file
libc=$(library libc.so.6) libm=$(library libm.so.6)
[ -r "$libc" ] && [ -r "$libm" ] || skip "libc or libm is not found"

core() { # NAME [LIBRARY]: of a program that sleeps, with a library more
	local pid
	setarch -R env ${2:+LD_PRELOAD=$2} sleep 1000 </dev/null >/dev/null 2>&1 &
	pid=$!
	await grep -q "${2:-$libc}" "/proc/$pid/maps"
	await grep -q '^State:.S' "/proc/$pid/status"
	echo 0x7f >"/proc/$pid/coredump_filter" # also what is mapped from files, as code is
	gcore -o "$MNT/core" "$pid" >"$WORK/said" 2>&1 || { cat "$WORK/said" >&2; fail "gcore"; }
	kill "$pid"
	wait "$pid" 2>/dev/null || true
	mv "$MNT/core.$pid" "$MNT/$1"
}
begins() { # FILE: where its first memory is in a page
	echo $(($(readelf -lW "$1" | awk '$1 == "LOAD" && !nr++ { print $2 }') % 4096))
}
stores() { # MOST COMMAND...: it stores so many bytes at most
	local before most=$1 more
	before=$(new)
	shift
	"$@"
	sync
	more=$(($(new) - before))
	echo "$*: $more bytes are new"
	[ "$more" -le "$most" ] || fail "$*: more than $most"
}

for chunking in page auto; do
	fs_mount chunking=$chunking
	stores $((64 << 20)) core first
	stores $(($(size "$libm") + (256 << 10))) core second "$libm"
	[ "$(begins "$MNT/first")" != "$(begins "$MNT/second")" ] || skip "gcore begins memory at the same place in both" # a page more would not be seen
	stores $(($(size "$libc") / 10)) cp "$libc" "$MNT/libc" # a relocated page or two
	stores $(($(size "$libm") / 10)) cp "$libm" "$MNT/libm"
	stores $((64 << 10)) cp "$MNT/second" "$MNT/third" # with the headers first
	cp "$MNT/second" "$WORK/second"
	fs_remount chunking=$chunking
	cmp "$MNT/second" "$MNT/third"
	cmp "$MNT/second" "$WORK/second"
	gdb -batch -ex 'info registers pc' "$(command -v sleep)" "$MNT/second" >"$WORK/out" 2>&1
	tells '^pc \|^rip \|^Program terminated\|#0'
	fs_umount
	fs_sound "after cores, chunking=$chunking"
	rm -rf "$STORE"
done
echo "ok"
