#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Retention on a mount where one user has sealed much, or leads it elsewhere: the rules of other users are applied, and the
# work grows as the number of sealed directories, not faster.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setfattr setpriv
ALICE=2001 BOB=2002

as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; } # UID COMMAND...
seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$@"; }
retain() { "$CKPTFS_BUILD/tools/ckptfs-gc" --policies --delete --json "$MNT"; }
there() { (cd "$1" && find . -mindepth 1 -maxdepth 1 -printf '%P\n' | sort | tr '\n' ' '); } # DIRECTORY
left() { [ "$(there "$1")" = "$2" ] || fail "$3: left are $(there "$1")"; } # DIRECTORY NAMES WHEN
steps() { # UID DIRECTORY N...: checkpoints DIRECTORY/step.N of a user
	local uid=$1 dir=$2 n
	shift 2
	for n; do
		as "$uid" mkdir -p "$dir/step.$n"
		as "$uid" "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$dir/step.$n"
	done
}
home() { mkdir "$MNT/$1"; chown "$2" "$MNT/$1"; } # NAME UID
rule() { as "$1" setfattr -n user.ckptfs.keep -v "$2" "$3"; } # UID RULE DIRECTORY

fs_mount allow_other
cd "$WORK"
chmod 755 "$MNT"
home alice $ALICE
home bob $BOB

# --- one user seals many directories with one entry each ---
NR=60
asked() { # FROM TO: bob seals so many; how many ioctls does retention need?
	local n before
	for n in $(seq "$1" "$2"); do as $BOB mkdir -p "$MNT/bob/run.$n/step"; done
	for n in $(seq "$1" "$2"); do as $BOB "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/bob/run.$n/step"; done
	"$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o remount,ro # so that no collection follows, of which is asked how far it is
	before=$(figure requests.ioctl.count)
	exits 2 retain
	says "mounted read-only"
	echo $(($(figure requests.ioctl.count) - before))
	"$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o remount,rw
}
once=$(asked 1 $NR)
twice=$(asked $((NR + 1)) $((2 * NR)))
echo "$once and $twice ioctls for $NR and $((2 * NR)) sealed directories"
[ $((twice - once)) -le $((2 * NR)) ] || fail "$NR more sealed directories: $once ioctls have become $twice"
steps $ALICE "$MNT/alice" 1 2 3
rule $ALICE last=1 "$MNT/alice"
exits 0 retain
left "$MNT/alice" "step.3 " "alice's rule"
[ "$(find "$MNT/bob" -name step | wc -l)" = $((2 * NR)) ] || fail "some of bob's are gone"

# --- tags: links on the mount are followed, links elsewhere are not ---
# Nothing answers on this mount: whatever asks there waits until its end.
mkdir "$WORK/silent" "$MNT/silent"
"$PYTHON" - "$WORK/silent" "$MNT/silent" <<'PY' &
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
held = []
for path in sys.argv[1:]:
    fd = os.open("/dev/fuse", os.O_RDWR)
    held.append(fd)
    data = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"silent", path.encode(), b"fuse.silent", 0, data) != 0:
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
time.sleep(100000)
PY
silent=$!
is_silent() { grep -q " $WORK/silent fuse" /proc/mounts && grep -q " $MNT/silent fuse" /proc/mounts; }
await is_silent
# in_time COMMAND...: exits 0 although something does not answer
in_time() {
	"$@" >"$WORK/out" 2>"$WORK/said" &
	local pid=$!
	if ! gone $pid; then
		kill -KILL $silent
		fail "$* waits for a filesystem that does not answer"
	fi
	wait $pid || fail_showing "$* failed"
}
home tags $ALICE
steps $ALICE "$MNT/tags" $(seq 10 21)
ln -s "$MNT" "$WORK/alias"
mkdir "$WORK/far"
cd "$MNT/tags"
as $ALICE ln -s step.10 relative
as $ALICE ln -s "$MNT//tags/step.11" absolute
as $ALICE ln -s ../tags/./step.12/ beside
as $ALICE ln -s "$WORK/alias/tags/step.13" other.path
as $ALICE ln -s "$WORK/alias/tags/absolute" other.path.to.link
as $ALICE ln -s relative chain
as $ALICE ln -s "$WORK/far/step.99" nowhere
as $ALICE ln -s "$WORK/silent/deep/step.14" silent.file
as $ALICE ln -s "$WORK/silent" silent
as $ALICE ln -s ../silent silent.inside
as $ALICE ln -s ../silent/a/b silent.inside.deep
as $ALICE ln -s loop loop
cd "$WORK"
rule $ALICE tagged "$MNT/tags"
in_time retain
left "$MNT/tags" "absolute beside chain loop nowhere other.path other.path.to.link relative silent silent.file \
silent.inside silent.inside.deep step.10 step.11 step.12 step.13 step.14 step.21 " "tags"

# --- something mounted where the rule, a checkpoint or a part of one is ---
steps $ALICE "$MNT/alice" 4 5
as $ALICE mkdir "$MNT/alice/step.6" "$MNT/alice/step.6/in"
as $ALICE "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/alice/step.6"
home mounted $ALICE
steps $ALICE "$MNT/mounted" 1 2
rule $ALICE last=1 "$MNT/mounted"
mount --bind "$WORK/silent" "$MNT/mounted"
mount --bind "$WORK/silent" "$MNT/alice/step.4"
mount --bind "$WORK/silent" "$MNT/alice/step.6/in"
in_time "$CKPTFS_BUILD/tools/ckptfs-gc" --policies --verify --delete --json "$MNT"
says "$MNT/mounted: skipped: another filesystem is mounted on it or above"
says "$MNT/alice/step.6: not valid: cannot read $MNT/alice/step.6/in: "
kill -KILL $silent # umount(8) asks as well
{ wait $silent || true; } 2>/dev/null
umount "$MNT/mounted" "$MNT/alice/step.4" "$MNT/alice/step.6/in" "$WORK/silent" "$MNT/silent"
left "$MNT/mounted" "step.1 step.2 " "behind a mount"
left "$MNT/alice" "step.4 step.5 step.6 " "with something mounted in the newest" # last=1 keeps it, though it cannot be verified

fs_umount
fs_sound "after removals"
