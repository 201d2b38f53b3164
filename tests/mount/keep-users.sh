#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Retention among users: a rule removes only what its author could have removed, and no user can delete another user's
# directories, or stop the retention of others, through names, rules or races.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setfattr setfacl rsync setpriv
ALICE=2001 BOB=2002 TEAM=3000

as() { setpriv --reuid "$1" --regid "$1" --groups $TEAM "${@:2}"; } # UID COMMAND...
retain() { "$CKPTFS_BUILD/tools/ckptfs-gc" --policies --delete --json "$MNT"; }
rule() { as "$1" setfattr -n user.ckptfs.keep -v "$2" "$3" 2>/dev/null; } # UID RULE DIRECTORY
# steps UID DIRECTORY N...: checkpoints DIRECTORY/step.N of a user
steps() {
	local uid=$1 dir=$2 n
	shift 2
	for n; do
		as "$uid" mkdir -p "$dir/step.$n/deep"
		as "$uid" sh -c 'echo "$1" >"$2/deep/file"' sh "$n" "$dir/step.$n"
		as "$uid" "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$dir/step.$n"
	done
}
attribute() { getfattr --absolute-names --only-values -n "user.ckptfs.$1" "$MNT/$2"; } # NAME PATH
there() { (cd "$1" && find . -mindepth 1 -maxdepth 1 -printf '%P\n' | sort | tr '\n' ' '); } # DIRECTORY
left() { [ "$(there "$1")" = "$2" ] || fail "$3: left are $(there "$1")"; } # DIRECTORY NAMES WHEN

fs_mount allow_other
cd "$WORK"
chmod 777 "$MNT"

# --- a rule of a user with write permission for another user's directory ---
# kind NAME UID MODE [ACL]: a directory that alice and bob can both write to
kind() {
	mkdir "$MNT/$1"
	chown "$2:$TEAM" "$MNT/$1"
	chmod "$3" "$MNT/$1"
	[ -z "${4:-}" ] || setfacl -m "$4" "$MNT/$1"
}
kind plain 0 777
kind sticky 0 1777
kind setgid 0 2775
kind acl 0 755 "u:$ALICE:rwx,u:$BOB:rwx"
kind group.of.alice $ALICE 775
kind sticky.of.alice $ALICE 1777
kind acl.of.alice $ALICE 700 "u:$BOB:rwx"
for d in plain sticky setgid acl group.of.alice sticky.of.alice acl.of.alice; do
	steps $ALICE "$MNT/$d" 1 2 3
	! rule $BOB last=1 "$MNT/$d" || fail "$d: bob has set a rule"
	rule 0 every=2 "$MNT/$d"
	! rule $BOB last=1 "$MNT/$d" || fail "$d: bob has changed a rule"
	! as $BOB setfattr -x user.ckptfs.keep "$MNT/$d" 2>/dev/null || fail "$d: bob has removed a rule"
	setfattr -x user.ckptfs.keep "$MNT/$d"
	retain >/dev/null
	left "$MNT/$d" "step.1 step.2 step.3 " "$d: after bob's rule"
done
# of root in a directory of root, it is for all; of root in another one, and of its owner, for what is the owner's
rule 0 last=1 "$MNT/plain"
rule 0 last=1 "$MNT/group.of.alice"
rule $ALICE last=1 "$MNT/acl.of.alice"
steps $BOB "$MNT/plain" 4 5
steps $BOB "$MNT/group.of.alice" 4 5
steps $BOB "$MNT/acl.of.alice" 4 5
retain >/dev/null
left "$MNT/plain" "step.3 step.5 " "a rule of root, counted for each owner"
left "$MNT/group.of.alice" "step.3 step.4 step.5 " "a rule of root for alice"
left "$MNT/acl.of.alice" "step.3 step.4 step.5 " "a rule of alice"

# lists and the report agree with that: the newest of each owner is marked, and none of them is to be deleted first
steps $ALICE "$MNT/plain" 60
steps $BOB "$MNT/plain" 61 62
"$CKPTFS_BUILD/tools/ckptfs-stat" --sealed "$MNT" | sed -n "s,^\(.\) $MNT/plain/\(step.[0-9]*\) .*,\1\2,p" >"$WORK/marked"
[ "$(tr '\n' ' ' <"$WORK/marked")" = " step.3  step.5 *step.60  step.61 *step.62 " ] || fail "marked as the newest: $(cat "$WORK/marked")"
"$CKPTFS_BUILD/tools/ckptfs-stat" --html "$WORK/report.html" "$MNT"
sed -n '/id="delete"/,/<\/section>/p' "$WORK/report.html" >"$WORK/first"
grep -q plain/step.61 "$WORK/first" || fail "what can be deleted is not listed"
! grep -E 'plain/step\.6[02]' "$WORK/first" || fail "the newest of an owner is to be deleted first"

# a user removes his own, where he may: by mode, groups, the list, and not past its mask
for d in sticky setgid acl acl.of.alice; do
	steps $BOB "$MNT/$d" 7 8
	exits 0 as $BOB "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --keep-last 1 "$MNT/$d"
	[ ! -e "$MNT/$d/step.7" ] && [ -e "$MNT/$d/step.8" ] || fail "$d: bob's are not what he keeps: $(there "$MNT/$d")"
done
steps $BOB "$MNT/acl" 9
setfacl -m m::r-x "$MNT/acl"
exits 2 as $BOB "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --keep-last 1 "$MNT/acl"
says "step.8: Permission denied"

# --- a directory gets another owner, another name; rules are copied ---
kind moved $ALICE 777
steps $ALICE "$MNT/moved" 1 2
steps $BOB "$MNT/moved" 3 4
rule $ALICE last=1 "$MNT/moved"
for owner in 0 $BOB; do
	chown $owner "$MNT/moved"
	exits 0 retain
	says "moved: user.ckptfs.keep was set by user $ALICE, not the owner of the directory"
	left "$MNT/moved" "step.1 step.2 step.3 step.4 " "a rule of alice in a directory of user $owner"
done
chown $ALICE "$MNT/moved"
mv "$MNT/moved" "$MNT/renamed"
retain >/dev/null
left "$MNT/renamed" "step.2 step.3 step.4 " "a rule of alice under another name"
as $BOB cp -a "$MNT/renamed" "$MNT/copied"
rsync -aX "$MNT/renamed" "$MNT/synced"
[ "$(attribute keep copied)" = last=1 ] || fail "cp -a: no rule"
[ "$(attribute keep_uid copied)" = $BOB ] || fail "cp -a: not bob's rule"
[ "$(attribute keep_uid synced/renamed)" = 0 ] || fail "rsync: not root's rule"
! getfattr --absolute-names -d "$MNT/copied" | grep -q keep_uid || fail "the author is listed"
chmod 777 "$MNT/copied" "$MNT/synced/renamed"
for d in copied synced/renamed; do
	steps $ALICE "$MNT/$d" 7 8
	steps $BOB "$MNT/$d" 9 10
done
retain >/dev/null
left "$MNT/copied" "step.10 step.2 step.3 step.4 step.7 step.8 " "bob's copy"
left "$MNT/synced/renamed" "step.10 step.2 step.3 step.4 step.8 step.9 " "a copy of root for alice"

# --- root has sealed what is not of one owner ---
kind mixed $ALICE 755
steps $ALICE "$MNT/mixed" 1 2
as $ALICE mkdir "$MNT/mixed/step.0"
install -d -o $BOB "$MNT/mixed/step.0/bob"
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/mixed/step.0"
rule $ALICE every=2 "$MNT/mixed"
as $ALICE sh -c 'mkdir "$1/step.3" "$1/step.5"' sh "$MNT/mixed"
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/mixed/step.3"
mkdir "$MNT/mixed/step.5/of.root"
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/mixed/step.5"
steps $ALICE "$MNT/mixed" 7
retain >/dev/null
left "$MNT/mixed" "step.0 step.2 step.5 step.7 " "sealed by root"
exits 0 as $ALICE "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --keep-last 1 "$MNT/mixed"
tells "keep .*step.5 .*: not entirely owned by user $ALICE"
left "$MNT/mixed" "step.0 step.5 step.7 " "removed by alice"
chmod 777 "$MNT/mixed"
steps $BOB "$MNT/mixed" 8 9
chmod 755 "$MNT/mixed"
exits 2 as $BOB "$CKPTFS_BUILD/tools/ckptfs-gc" --delete --keep-last 1 "$MNT/mixed"
says "step.8: Permission denied"
left "$MNT/mixed" "step.0 step.5 step.7 step.8 step.9 " "in a directory that bob cannot write to"

# --- names that users choose to look like those of ckptfs-gc ---
as $ALICE mkdir -m 700 "$MNT/sticky/work"
as $ALICE touch "$MNT/sticky/work/precious"
as $BOB mkdir -p "$MNT/sticky/.ckptfs-gc.$(stat -c %i "$MNT/sticky/work")" "$MNT/sticky/.ckptfs-gc.17/deep"
as $BOB "$PYTHON" - "$MNT/sticky/.ckptfs-gc.18" <<'PY'
import os, sys
os.mkdir(sys.argv[1])
os.chdir(sys.argv[1])
for _ in range(1200):
    os.mkdir("deep")
    os.chdir("deep")
PY
rule 0 last=1 "$MNT/sticky"
exits 0 retain
[ "$(there "$MNT/sticky" | tr ' ' '\n' | grep -c ckptfs-gc)" = 3 ] || fail "some are gone: $(there "$MNT/sticky")"
[ -e "$MNT/sticky/work/precious" ] || fail "alice's directory is gone"
[ ! -e "$MNT/sticky/step.1" ] && [ -e "$MNT/sticky/step.3" ] || fail "left are: $(there "$MNT/sticky")"

# --- no moment at which a checkpoint is listed, or has its name, and is not sealed ---
kind race $ALICE 777
steps $ALICE "$MNT/race" $(seq 20)
as $BOB "$PYTHON" - "$MNT/race" <<'PY' &
import errno, os, sys
os.chdir(sys.argv[1])
left = set(range(1, 20))
while left:
    for n in sorted(left):
        try:
            os.rename(f"step.{n}", f"mine.{n}")
            sys.exit(f"step.{n} was not sealed and had its name")
        except OSError as e:
            if e.errno == errno.ENOENT:
                left.discard(n)
            elif e.errno != errno.EPERM:
                raise
PY
racer=$!
rule $ALICE last=1 "$MNT/race"
exec 9<"$MNT/race"
flock -n 9 # no obstacle either
exits 0 retain
exec 9<&-
left "$MNT/race" "step.20 " "while bob renames"
wait $racer || fail "bob has renamed a checkpoint"

# --- deep ones, with few descriptors, and one that lies too deep for a path ---
deepen() { # UID DIRECTORY NR NAME: directories inside each other; the last one is sealed with --seal
	as "$1" "$PYTHON" - "$CKPTFS_BUILD/tools/ckptfs-seal" "${@:2}" <<'PY'
import os, subprocess, sys
seal, path, nr, name, *seals = sys.argv[1:]
os.makedirs(path, exist_ok=True)
os.chdir(path)
for _ in range(int(nr)):
    os.mkdir(name)
    os.chdir(name)
if seals:
    os.mkdir("step.1")
    subprocess.run([seal, "--quiet", "step.1"], check=True)
PY
}
kind deep $ALICE 755
deepen $ALICE "$MNT/deep/step.1" 1200 d
as $ALICE sh -c 'echo linked >"$1/deep/step.1/d/d/file"; ln "$1/deep/step.1/d/d/file" "$1/deep/linked"' sh "$MNT"
as $ALICE "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/deep/step.1"
steps $ALICE "$MNT/deep" 2
as $BOB mkdir "$MNT/bob"
deepen $BOB "$MNT/bob" 900 deeper seal
rule $ALICE last=1 "$MNT/deep"
(ulimit -n 32; exits 0 retain)
left "$MNT/deep" "linked step.2 " "a deep checkpoint"
writable() { as $ALICE sh -c 'echo more >>"$1"' sh "$MNT/deep/linked" 2>/dev/null; }
await writable
[ "$(stat -c %h "$MNT/deep/linked") $(tr '\n' ' ' <"$MNT/deep/linked")" = "1 linked more " ] ||
	fail "a file with another name is not what it was"

# --- killed while a removed checkpoint is taken apart: it is gone for good, and so is all of it after the next mount ---
cat >"$WORK/remove.py" <<'PY'
import errno, fcntl, os, signal, struct, sys, time
path, daemon, delay = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
later = [os.open(d, os.O_RDONLY) for d in sys.argv[4:]] # to be sealed as soon as possible
SEAL, REMOVE, SYNC, SIZE = 12, 8, 3, 4232


def command(fd, number, size, reads, text):
    fcntl.ioctl(fd, (3 if reads else 1) << 30 | size << 16 | ord("K") << 8 | number, bytearray(text.ljust(size, b"\0")))


fd = os.open(path, os.O_RDONLY)
reader = os.open(path + "/0/1", os.O_RDONLY)
inside = os.open(path + "/0", os.O_RDONLY)
command(fd, SEAL, SIZE, True, struct.pack("IIII", SIZE, 1, REMOVE, 0))
while later:
    try:
        command(later[0], SEAL, SIZE, True, struct.pack("IIII", SIZE, 1, 0, 0))
        later.pop(0)
    except OSError as e:
        assert e.errno in (errno.EEXIST, errno.EBUSY), e
assert not os.path.exists(path)
assert os.pread(reader, 100, 0) == b"1\n", "an open file has lost its bytes"
try:
    os.mkdir("new", dir_fd=inside)
    sys.exit("a removed directory can be changed")
except OSError:
    pass
time.sleep(delay)
if daemon:
    if delay > 0:
        command(fd, SYNC, 8, False, struct.pack("II", 8, 1)) # some of what has been done by now is durable
    os.kill(daemon, signal.SIGKILL)
PY
inodes() { "$CKPTFS_BUILD/tools/fsck.ckptfs" -n --json "$STORE" | json inodes; }
fs_umount
before=$(inodes)
fs_mount
big() { # a checkpoint of 40 directories with 60 files each, of which each has a second name: a transaction is needed for each
	"$PYTHON" - "$MNT/big" <<'PY'
import os, sys
for d in range(40):
    os.makedirs(f"{sys.argv[1]}/{d}")
    for f in range(60):
        with open(f"{sys.argv[1]}/{d}/{f}", "w") as out:
            print(f, file=out)
        os.link(f"{sys.argv[1]}/{d}/{f}", f"{sys.argv[1]}/{d - d % 2}/{d}.{f}")
PY
	"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/big"
}
for delay in 0 0.001 0.01; do
	big
	{ "$PYTHON" remove.py "$MNT/big" "$DAEMON" $delay; } 2>/dev/null
	fs_kill
	exits 0 "$CKPTFS_BUILD/tools/fsck.ckptfs" -p "$STORE" # has the journal, too
	echo "$(($(inodes) - before)) inodes were left after $delay s"
	fs_mount
	[ ! -e "$MNT/big" ] || fail "a removed checkpoint is there again"
	collect # waits for it
	fs_umount
	[ "$(inodes)" = "$before" ] || fail "$(($(inodes) - before)) inodes of a removed checkpoint are left"
	fs_mount
done

# --- a file with several names in a removed checkpoint, and one in a later seal ---

"$PYTHON" - "$MNT" <<'PY'
import os, sys
os.chdir(sys.argv[1])
for d in "big/0", "big/many", "big/z", "later":
    os.makedirs(d)
with open("big/0/1", "w") as out:
    print("1", file=out)
os.link("big/0/1", "later/file")
for f in range(1500): # with a second name each, so that the reaper is busy for a while
    open(f"big/many/{f}", "w").close()
    os.link(f"big/many/{f}", f"big/many/{f}.twin")
os.link("big/0/1", "big/z/file")
PY
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/big"
"$PYTHON" remove.py "$MNT/big" 0 0 "$MNT/later"
collect
! { echo more >>"$MNT/later/file"; } 2>/dev/null || fail "erasing a removed checkpoint has made a sealed file writable"
[ "$(stat -c %h "$MNT/later/file")" = 1 ] || fail "a name of a removed checkpoint is left"
"$CKPTFS_BUILD/tools/ckptfs-seal" --unseal "$MNT/later" >/dev/null
rm -r "$MNT/later"

big
"$PYTHON" remove.py "$MNT/big" 0 0
for flag in ro rw; do "$CKPTFS_BUILD/fs/mount.ckptfs" "$STORE" "$MNT" -o remount,$flag; done # it stops, and goes on
collect
fs_umount
# The kernel may still refer to the three that remove.py had open: the next mount erases those.
[ $(($(inodes) - before)) -le 3 ] || fail "$(($(inodes) - before)) inodes are left after a remount"
fs_mount
big
"$PYTHON" remove.py "$MNT/big" 0 0
fs_umount # does not wait
fs_sound "after a removal that was cut short"
fs_mount
collect
fs_umount
[ "$(inodes)" = "$before" ] || fail "$(($(inodes) - before)) inodes of a removed checkpoint are left"
fs_sound "after removals"
