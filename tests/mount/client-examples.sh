#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# The examples of libckptfs, in C and Fortran, as they are compiled where it is installed: killed in the middle, they go on and come to the same
# result, in all modes and with both ways of noticing writes. And <ckptfs/ioctl.h>, without the library.
#   ROUNDS   how often each is killed at least (default 3)
. "$(dirname "$0")/lib.sh"
need_mount
need cc pkg-config
: "${ROUNDS:=3}"

[ -z "${CKPTFS_SANITIZED:-}" ] && ! ldd "$CKPTFS_BUILD/client/libckptfs.so.0" | grep 'lib[at]san' >/dev/null || skip "what is installed has no sanitizer"
DESTDIR=$WORK/root meson install --no-rebuild -C "$CKPTFS_BUILD" >/dev/null || fail "install"
pc=$(dirname "$(find "$WORK/root" -name ckptfs.pc)")
export PKG_CONFIG_LIBDIR=$pc PKG_CONFIG_SYSROOT_DIR=$WORK/root
LD_LIBRARY_PATH=$(dirname "$pc")
export LD_LIBRARY_PATH
examples=$(find "$WORK/root" -path '*examples/heat.c' -printf '%h')

modes=(adaptive async sync predictive) trackings=("" mprotect)
checkpoints() { { find "$1" -maxdepth 1 -name '[0-9]*' 2>/dev/null || true; } | wc -l; } # DIR

# Once from the beginning to the end, killed some time after each time that it has taken a checkpoint, until it has been killed often enough.
disturb() { # PROGRAM DIR
	local pid code=137 have
	while [ $code = 137 ]; do
		have=$(checkpoints "$2")
		"$1" "$2" 1500 >"$WORK/out" 2>"$WORK/said" &
		pid=$!
		until [ "$(checkpoints "$2")" -gt "$have" ] || ! running $pid; do sleep 0.01; done
		sleep "0.0$((RANDOM % 100))"
		[ $killed -ge "$ROUNDS" ] || kill -KILL $pid 2>/dev/null || true
		code=0
		{ wait $pid || code=$?; } 2>/dev/null
		[ $code = 137 ] && killed=$((killed + 1))
	done
	[ $code = 0 ] || fail "exit status $code: $(cat "$WORK/said")"
	[ "$have" = 0 ] || grep -q 'restarting at step' "$WORK/said" || fail "it began at the beginning: $(cat "$WORK/said")"
}
try() { # PROGRAM NAME
	local killed=0 runs=0
	"$1" "$WORK/$2.undisturbed" 1500 >"$WORK/right" 2>/dev/null || fail "$2: undisturbed"
	while [ $killed -lt "$ROUNDS" ]; do
		export CKPTFS_MODE=${modes[$((runs % 4))]} CKPTFS_TRACKING=${trackings[$((runs / 4 % 2))]}
		disturb "$1" "$MNT/$2"
		cmp "$WORK/out" "$WORK/right" || fail "$2, $CKPTFS_MODE ${CKPTFS_TRACKING:-default}: $(cat "$WORK/out"), undisturbed: $(cat "$WORK/right")"
		rm -r "${MNT:?}/$2"
		runs=$((runs + 1))
	done
	unset CKPTFS_MODE CKPTFS_TRACKING
	echo "ok $2: $(cat "$WORK/out"), killed $killed times in $runs runs"
}

fs_mount
cc -O2 -Wall "$examples/heat.c" $(pkg-config --cflags --libs ckptfs) -o "$WORK/heat_c" || fail "heat.c does not compile"
try "$WORK/heat_c" c
if [ -e "$pc/ckptfs-fortran.pc" ]; then
	gfortran -O2 -Wall "$examples/heat.f90" $(pkg-config --cflags --libs ckptfs-fortran) -o "$WORK/heat_f" || fail "heat.f90 does not compile"
	try "$WORK/heat_f" fortran
else
	echo "ok (no Fortran compiler when this was built)"
fi

# The headers, in both languages, without the library: what they ask a mount for.
for language in c c++; do
	command -v "${language/c++/g++}" >/dev/null || [ $language = c ] || continue
	cc -x $language -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags ckptfs) "$HERE/ioctl_user.c" -o "$WORK/ioctl_user" || fail "$language: the headers do not compile"
	mkdir "$MNT/ioctl.$language"
	"$WORK/ioctl_user" "$MNT/ioctl.$language" || fail "$language: ioctl_user"
	! { : >"$MNT/ioctl.$language/more"; } 2>/dev/null || fail "$language: a directory that has been sealed is written to"
done
"$WORK/ioctl_user" "$WORK" 2>"$WORK/said" && fail "elsewhere it says that it has been done"
grep -q 'Inappropriate ioctl' "$WORK/said" || fail "elsewhere: $(cat "$WORK/said")"
echo "ok the headers, in C and C++"
fs_umount
