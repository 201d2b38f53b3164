#!/bin/bash
# The examples of libckptfs, in C and Fortran, as they are compiled by whoever has installed it: killed in the middle, they go on and come to the same
# result. And <ckptfs/ioctl.h>, without the library.
. "$(dirname "$0")/lib.sh"
need_mount
need cc pkg-config

[ -z "${CKPTFS_SANITIZED:-}" ] && ! ldd "$CKPTFS_BUILD/client/libckptfs.so.0" | grep 'lib[at]san' >/dev/null || skip "what is installed has no sanitizer"
DESTDIR=$WORK/root meson install --no-rebuild -C "$CKPTFS_BUILD" >/dev/null || fail "install"
pc=$(dirname "$(find "$WORK/root" -name ckptfs.pc)")
export PKG_CONFIG_LIBDIR=$pc PKG_CONFIG_SYSROOT_DIR=$WORK/root
LD_LIBRARY_PATH=$(dirname "$pc")
export LD_LIBRARY_PATH
examples=$(find "$WORK/root" -path '*examples/heat.c' -printf '%h')

try() { # PROGRAM
	"$1" "$WORK/$2.undisturbed" 1500 >"$WORK/right" 2>/dev/null || fail "$2: undisturbed"
	"$1" "$MNT/$2" 1500 >"$WORK/out" 2>"$WORK/said" &
	local pid=$!
	until [ -e "$MNT/$2/000003" ]; do
		running $pid || fail "$2: no third checkpoint: $(cat "$WORK/said")"
		sleep 0.01
	done
	kill -KILL $pid
	{ wait $pid || true; } 2>/dev/null
	"$1" "$MNT/$2" 1500 >"$WORK/out" 2>"$WORK/said" || fail "$2: $(cat "$WORK/said")"
	grep -q 'going on at step' "$WORK/said" || fail "$2: it began at the beginning: $(cat "$WORK/said")"
	cmp "$WORK/out" "$WORK/right" || fail "$2: $(cat "$WORK/out"), undisturbed: $(cat "$WORK/right")"
	echo "ok $2: $(cat "$WORK/out")"
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
