#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Sealed directories: immutable in every way, for all users, until they are unsealed; all or nothing after a crash;
# listed, found again after a remount and a rebuild, and sound for fsck.
. "$(dirname "$0")/lib.sh"
need_mount
need_root
need setfattr getfattr

seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" "$@"; }
sealed() { seal --list --json "$MNT" | "$PYTHON" -c 'import json, sys
print(" ".join(e["path"].split("/")[-1] for e in json.load(sys.stdin)["sealed"]))'; } # their last names, oldest first

# refused COMMAND...: it fails with EPERM and nothing else
refused() {
	! "$@" >"$WORK/out" 2>"$WORK/said" || fail "was done though it is sealed: $*"
	grep -q "Operation not permitted" "$WORK/said" || fail_showing "another error: $*"
}

# a_checkpoint DIR: of everything there is
a_checkpoint() {
	mkdir -p "$1/deep/er"
	noise "$1" 2 >"$1/data"
	echo small >"$1/deep/er/small"
	: >"$1/empty"
	ln -s data "$1/soft"
	ln "$1/data" "$1/deep/twin"
	mkfifo "$1/fifo"
	setfattr -n user.step -v 7 "$1/data"
}
# sums DIR: names, attributes and bytes, to be compared; reading does not change them in what is sealed
sums() {
	(cd "$1" && find . -printf '%P %y %m %U %G %s %n %T@ %C@ %l\n' | sort && find . -type f -exec md5sum {} + | sort)
}

fs_mount
cd "$WORK"
a_checkpoint "$MNT/ckpt"
sums "$MNT/ckpt" >/dev/null # times of reading
exits 0 seal "$MNT/ckpt"
tells "ckpt: sealed: 5 files, 2 MiB"
sums "$MNT/ckpt" >before
exits 0 seal "$MNT/ckpt"
tells "was sealed already: 5 files"

# --- every change ---
d=$MNT/ckpt
refused "$PYTHON" -c "open('$d/data', 'r+b')"
refused "$PYTHON" -c "open('$d/data', 'ab')"
refused "$PYTHON" -c "import os; os.open('$d/data', os.O_RDONLY | os.O_TRUNC)"
refused "$PYTHON" -c "open('$d/new', 'wb')"
refused "$PYTHON" -c "import os; os.open('$d', os.O_TMPFILE | os.O_RDWR)"
refused "$PYTHON" -c "import os; os.truncate('$d/data', 5)"
refused "$PYTHON" -c "import os; os.ftruncate(os.open('$d/empty', os.O_RDWR), 5)"
refused mkdir "$d/new"
refused mkfifo "$d/new"
refused ln -s nothing "$d/new"
refused ln "$d/data" "$d/new"
refused ln "$d/data" "$MNT/new"
refused rm -f "$d/data"
refused rm -f "$d/deep/er/small"
refused rm -f "$d/soft"
refused rmdir "$d/deep/er"
refused rm -rf "$d"
refused mv "$d/data" "$d/other"
refused mv "$d/data" "$MNT/other"
refused mv "$d" "$MNT/moved"
echo mine >"$MNT/mine"
refused mv "$MNT/mine" "$d/"
refused mv -f "$MNT/mine" "$d/data"
refused "$PYTHON" -c "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.renameat2(-100, b'$MNT/mine', -100, b'$d/data', 2) < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))"
refused chmod 600 "$d/data"
refused chmod 700 "$d"
refused chmod 700 "$d/deep"
refused chown 5 "$d/data"
refused chown -h 5 "$d/soft"
refused touch "$d/data"
refused touch -a "$d/data"
refused touch "$d"
refused setfattr -n user.step -v 8 "$d/data"
refused setfattr -x user.step "$d/data"
refused setfattr -n user.ckptfs.compress -v none "$d"
if command -v setfacl >/dev/null; then refused setfacl -m u:5:r "$d/data"; fi
refused fallocate -l 100 "$d/data"
refused cp --reflink=auto "$MNT/mine" "$d/data"
cat "$d/data" >/dev/null
[ "$(getfattr --only-values -n user.step "$d/data" 2>/dev/null)" = 7 ] || fail "an extended attribute cannot be read"
sums "$d" >after
cmp before after || fail "a sealed directory is not what it was"
if command -v lsattr >/dev/null; then
	case $(lsattr -d "$d") in *i*" $d") ;; *) fail "lsattr does not show the i flag: $(lsattr -d "$d")" ;; esac
	case $(lsattr "$MNT/mine") in *i*" $MNT/mine") fail "lsattr shows a flag of what is not sealed" ;; esac
fi

# --- what is not sealed goes on ---
mv "$MNT/mine" "$MNT/yours"
mkdir "$MNT/above"
cp --reflink=auto "$d/data" "$MNT/above/copy"
cmp "$d/data" "$MNT/above/copy" || fail "a copy differs"

# --- refusals ---
exits 2 seal "$d/data"
says "not a directory"
exits 2 seal "$WORK"
says "not on a mounted ckptfs"
exits 2 seal "$d/deep"
says "it is in a sealed directory"
exits 2 seal --unseal "$d/deep"
says "it is in the sealed directory ckpt (relative to the mountpoint)"
exits 2 seal "$MNT"
says "not sealed: it is a mountpoint, .*; seal a directory below it, or use --force"
exits 2 seal /proc
says "not on a mounted ckptfs"
exits 1 seal --force --unseal "$MNT"
exits 2 seal --force "$MNT"
says "ckpt (relative to the mountpoint) is sealed separately"
exits 2 seal "$MNT/nowhere"
says "No such file"
exits 1 seal
exits 1 seal --list --unseal "$MNT"
exits 0 seal --unseal "$MNT/above"
tells "was not sealed"
mkdir "$MNT/busy"
exec 7>"$MNT/busy/open"
exits 2 seal "$MNT/busy"
says "busy/open (relative to the mountpoint) is open for writing"
exec 7>&-
touch "$MNT/busy/free" # nothing is half sealed
exits 0 seal "$MNT/busy" # also right after the close
exec 7<"$MNT/busy/open" # readers do not matter
[ "$(sealed)" = "ckpt busy" ] || fail "listed: $(sealed)"
exec 7<&-
exits 0 seal --list "$MNT/above"
tells "^  CHECKPOINT  *STATE  *DURABLE  *SIZE  *NEW  *FILES  *AGE"
tells "^  $MNT/ckpt  *sealed  *local  *2 MiB  *2 MiB  *5  *[0-9]*[sm]"
tells "^\* $MNT/busy "
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" --sealed "$MNT"
tells "$MNT/busy"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" --sealed --json "$MNT"
"$PYTHON" -c 'import json, sys
e = json.load(open(sys.argv[1]))["sealed"][0]
assert (e["path"], e["files"], e["directories"], e["bytes"]) == (sys.argv[2] + "/ckpt", 5, 3, (2 << 20) + 6), e' "$WORK/out" "$MNT" ||
	fail_showing "other figures"

# A mapping is a writer, too, also when its descriptor is closed.
mkdir "$MNT/mapped"
echo "some bytes" >"$MNT/mapped/file"
"$PYTHON" - "$MNT/mapped" "$CKPTFS_BUILD/tools/ckptfs-seal" <<'PY'
import mmap, subprocess, sys
where, tool = sys.argv[1:]
with open(where + "/file", "r+b") as f:
    m = mmap.mmap(f.fileno(), 0)
m[0:4] = b"SOME"
assert subprocess.run([tool, where], stderr=subprocess.DEVNULL).returncode == 2
m[5:6] = b"B"
m.close()
subprocess.run([tool, "--quiet", where], check=True)
assert open(where + "/file").read() == "SOME Bytes\n"
PY
seal --quiet --unseal "$MNT/mapped"

# A file with a name elsewhere is sealed under both; what is sealed is not sealed twice.
ln "$MNT/mapped/file" "$MNT/outside"
seal --quiet "$MNT/mapped"
refused "$PYTHON" -c "open('$MNT/outside', 'ab')"
refused rm -f "$MNT/outside"
refused mv "$MNT/outside" "$MNT/elsewhere"
seal --quiet --unseal "$MNT/mapped"
mkdir "$MNT/second"
mv "$MNT/outside" "$MNT/second/"
seal --quiet "$MNT/mapped"
exits 2 seal "$MNT/second"
says "second/outside (relative to the mountpoint) is sealed separately"
seal --quiet --unseal "$MNT/mapped"
rm -r "$MNT/mapped" "$MNT/second"

# --- other users ---
mkdir -m 777 "$MNT/home"
fs_remount allow_other
as_nobody mkdir "$MNT/home/nobody"
as_nobody sh -c "echo x >'$MNT/home/nobody/file'"
mkdir "$MNT/home/nobody/roots" 2>/dev/null || true
exits 2 as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/above"
says "only its owner and root"
exits 2 as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" --unseal "$d"
says "only its owner and root"
exits 2 as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/home/nobody"
says "home/nobody/roots (relative to the mountpoint) belongs to another user"
rmdir "$MNT/home/nobody/roots"
as_nobody chmod 555 "$MNT/home/nobody"
exits 2 as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/home/nobody"
says "Permission denied"
as_nobody chmod 755 "$MNT/home/nobody"
exits 0 as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" "$MNT/home/nobody"
refused as_nobody rm -f "$MNT/home/nobody/file"
refused rm -f "$MNT/home/nobody/file"
[ "$(sealed)" = "ckpt busy nobody" ] || fail "root sees: $(sealed)"
exits 0 as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" --list "$MNT"
tells "home/nobody"
says_not "$MNT/ckpt"
exits 0 as_nobody "$CKPTFS_BUILD/tools/ckptfs-seal" --unseal "$MNT/home/nobody"
as_nobody rm -r "$MNT/home/nobody"
# What is another's is sealed all the same, and said to be.
mkdir -m 700 "$MNT/closed"
exits 3 as_nobody "$CKPTFS_BUILD/tools/ckptfs-restart-path" "$MNT"
says "ckpt: skipped: sealed, but only its owner and root can verify it"
says "closed: skipped: cannot be read"
says "above: skipped: not sealed"
rmdir "$MNT/closed"

# --- it stays, also in an index that is rebuilt ---
fs_umount
fs_sound "after sealing"
fs_rebuild
fs_mount
[ "$(sealed)" = "ckpt busy" ] || fail "after a rebuild: $(sealed)"
sums "$d" >after
cmp before after || fail "a sealed directory is not what it was after a rebuild"
refused rm -f "$d/data"
mv "$MNT/above" "$MNT/higher"
fs_umount
fs_mount ro
exits 2 seal "$MNT/higher"
says "Read-only"
exits 2 seal --unseal "$d"
says "Read-only"
[ "$(sealed)" = "ckpt busy" ] || fail "of a mount for reading: $(sealed)"
fs_remount

# --- unsealed, it is a directory like any other ---
exits 0 seal --unseal "$d"
tells "ckpt: unsealed"
echo more >>"$d/data"
rm "$d/deep/twin"
exits 0 seal "$d"
tells "5 files"
seal --quiet --unseal "$d" "$MNT/busy"
rm -r "$d" "$MNT/busy"
[ -z "$(sealed)" ] || fail "still listed: $(sealed)"

# --- the whole mount ---
mkdir -p "$MNT/inner"
exits 0 seal --force "$MNT"
refused touch "$MNT/new"
exits 0 seal --list "$MNT"
tells "^\* $MNT "
fs_remount
refused touch "$MNT/new"
exits 0 seal --unseal "$MNT"
touch "$MNT/new"

# --- a crash: what was acknowledged is sealed, and whole ---
a_checkpoint "$d"
seal --quiet "$d"
fs_kill
fs_sound "after kill -9 behind a seal"
fs_mount
[ "$(sealed)" = ckpt ] || fail "a seal that was acknowledged is gone"
noise "$d" 2 | cmp - "$d/data" || fail "sealed bytes are gone"
refused touch "$d/empty"
seal --quiet --unseal "$d"
fs_kill
fs_mount
[ -z "$(sealed)" ] || fail "an unseal that was acknowledged is undone"
touch "$d/empty"

# A crash at any moment: all of it or nothing. Each directory is sealed as soon as it is written.
mkdir "$MNT/many"
for round in 1 2 3 4 5 6; do
	(
		for i in $(seq 1000); do
			e=$MNT/many/$round.$i
			mkdir "$e" "$e/sub" # not -p: without a mount it would be made on the mountpoint
			for f in $(seq 20); do echo "$round $i $f" >"$e/sub/$f"; done
			seal --quiet "$e"
			echo "$round.$i" >>"$WORK/acknowledged"
		done
	) 2>/dev/null &
	writer=$!
	sleep "0.$((round * 13 % 10))7"
	sleep 0.3
	fs_kill
	{ wait "$writer" || true; } 2>/dev/null
	fs_sound "after kill -9 while sealing"
	fs_mount
done
seal --list --json "$MNT" >listed.json
"$PYTHON" - "$WORK" "$MNT" <<'PY'
import json, os, sys
work, mnt = sys.argv[1:]
listed = {e["path"]: e for e in json.load(open(work + "/listed.json"))["sealed"]}
for name in open(work + "/acknowledged").read().split():
    assert f"{mnt}/many/{name}" in listed, f"{name} was acknowledged, and is not sealed"
for path, e in listed.items():
    assert e["files"] == 20, (path, e["files"])
    round, i = path.split("/")[-1].split(".")
    for f in range(1, 21):
        assert open(f"{path}/sub/{f}").read() == f"{round} {i} {f}\n", f"{path}/sub/{f}: other bytes"
        try:
            open(f"{path}/sub/{f}", "r+b")
            raise AssertionError(f"{path}/sub/{f} can be written to")
        except PermissionError:
            pass
for name in os.listdir(f"{mnt}/many"):
    path = f"{mnt}/many/{name}"
    if path not in listed: # not sealed, and nothing of it is
        os.makedirs(f"{path}/sub", exist_ok=True)
        open(f"{path}/sub/new", "wb").close()
        for f in os.listdir(f"{path}/sub"):
            open(f"{path}/sub/{f}", "ab").close()
print(f"{len(listed)} sealed")
PY

# --- many at once: writers, and processes that seal what they write ---
"$PYTHON" - "$MNT" "$CKPTFS_BUILD/tools/ckptfs-seal" <<'PY'
import errno, hashlib, os, subprocess, sys, threading
mnt, tool = sys.argv[1:]
top = mnt + "/race"
os.mkdir(top)
stop = threading.Event()
refused = wrong = 0
def write(k):
    global refused, wrong
    n = 0
    while not stop.is_set():
        try:
            with open(f"{top}/file.{k}.{n % 50}", "ab") as f:
                f.write(bytes([k]) * 5000)
            os.rename(f"{top}/file.{k}.{n % 50}", f"{top}/name.{k}.{n % 50}")
        except OSError as e:
            if e.errno not in (errno.EPERM, errno.EBUSY): # sealed, or being sealed
                wrong = e
                return
            refused += 1
        n += 1
def state():
    return {n: (os.stat(f"{top}/{n}").st_mtime_ns, hashlib.md5(open(f"{top}/{n}", "rb").read()).hexdigest())
            for n in sorted(os.listdir(top))}
threads = [threading.Thread(target=write, args=(k,)) for k in range(3)]
for t in threads:
    t.start()
sealed = 0
for i in range(40):
    code = subprocess.run([tool, "--quiet", top], stderr=subprocess.DEVNULL).returncode
    if code == 0:
        before = state()
        assert before == state(), "a sealed directory changes"
        sealed += 1
        subprocess.run([tool, "--quiet", "--unseal", top], check=True)
    else:
        assert code == 2, code
stop.set()
for t in threads:
    t.join()
assert not wrong, wrong
subprocess.run([tool, "--quiet", top], check=True)
print(f"sealed {sealed} of 40 times, {refused} changes refused")
PY

# --- the mountpoint itself ---
for e in $(sealed); do seal --quiet --unseal "$(find "$MNT" -name "$e")"; done
mkdir -p "$MNT/inner"
exits 0 seal --force "$MNT"
exits 2 seal --unseal "$MNT/inner"
says "inner: not unsealed: it is in the sealed directory . (relative to the mountpoint)"
exits 0 seal --unseal "$MNT"

# --- deeper than a path can be: no listing fails because of it ---
mkdir -p "$MNT/sinks/ckpt" "$MNT/stays"
seal --quiet "$MNT/sinks/ckpt"
seal --quiet "$MNT/stays"
"$PYTHON" - "$MNT" "$CKPTFS_BUILD/tools/ckptfs-seal" <<'PY' || fail "something deep"
import os, subprocess, sys
where, tool = sys.argv[1:]
os.mkdir(where + "/down")
os.chdir(where + "/down")
for _ in range(2100):
    os.mkdir("d")
    os.chdir("d")
done = subprocess.run([tool, "."], stderr=subprocess.PIPE)
assert done.returncode == 2 and b"File name too long" in done.stderr, done
os.rename(where + "/sinks", "sinks")
PY
[ "$(sealed)" = stays ] || fail "listed: $(sealed)"

# Sealing and unsealing all the time does not fill the log.
lines() { grep -c "directory [0-9]*: $1" "$WORK/daemon.log" || true; } # WHAT
sealed=$(lines "sealed with") unsealed=$(lines unsealed)
mkdir "$MNT/again"
for _ in $(seq 50); do
	seal --quiet "$MNT/again"
	seal --quiet --unseal "$MNT/again"
done
[ $(($(lines "sealed with") - sealed)) -lt 50 ] && [ $(($(lines unsealed) - unsealed)) -lt 50 ] || fail "a line for each of 50 seals"
fs_umount
fs_sound "in the end"
