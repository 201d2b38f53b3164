#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A tier mounted by itself: every byte, name and attribute of what was sealed; damage concerns the files that have it and
# no others; a tier that does not answer holds nothing up for ever.
. "$(dirname "$0")/lib.sh"
need_root
need_mount
need setpriv

TIER=$WORK/tier
ANY=$WORK/any
READER= # the daemon of the tier
mkdir "$TIER" "$ANY"
FILL=$(program tier_fill)

seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$@"; }
on_any() { grep -qsF " $ANY fuse" /proc/mounts; }
tier_mount() { # [OPTIONS]
	local tries=0
	"$CKPTFS_BUILD/fs/mount.ckptfs" "dir:${MOUNTED_TIER:-$TIER}" "$ANY" --foreground ${1:+-o "$1"} >>"$WORK/daemon.log" 2>&1 &
	READER=$!
	until on_any && stat -f "$ANY" >/dev/null 2>&1; do
		running "$READER" || fail "mount.ckptfs ended instead of mounting"
		[ $((tries += 1)) -lt 6000 ] || fail "no answer from the mount after 5 minutes"
		sleep 0.05
	done
}
tier_umount() {
	"$CKPTFS_BUILD/tools/umount.ckptfs" "$ANY" || fail "cannot unmount the tier"
	wait "$READER" || fail "the daemon of the tier ended with $?"
	READER=
}
at_end() {
	[ -z "$READER" ] || kill -KILL "$READER" 2>/dev/null || true
	while on_any; do umount -l "$ANY" || break; done
	[ -z "$DAEMON" ] || kill -CONT "$DAEMON" 2>/dev/null || true
}
fill() { "$FILL" "$STORE" "$TIER" "$@" >"$WORK/filled" || fail "cannot fill the tier"; } # [PACK_BYTES]
tier_figure() { # KEY: of the mounted tier
	"$PYTHON" -c 'import json, os, sys
j = json.loads(os.getxattr(sys.argv[1], "user.ckptfs.stat"))
for k in sys.argv[2].split("."): j = j[k]
print(j)' "$ANY" "$1"
}

# --- a store with all kinds of things ---
fs_mount compress=none
all_kinds "$MNT/run/step.1"
for i in $(seq 300); do echo "$i" >"$MNT/run/step.1/ranks/deep/file.$i"; done
seal "$MNT/run/step.1"
mkdir -p "$MNT/private/of/me/sealed"
echo secret >"$MNT/private/of/me/sealed/file"
seal "$MNT/private/of/me/sealed"
chmod 700 "$MNT/private/of" # the catalog is written after that
describe "$MNT/run/step.1" >expected
fs_umount
fill 1000000
[ "$(wc -l <filled)" = 2 ] || fail "not two checkpoints in the tier"

# --- what cannot be mounted, and options that mean nothing ---
refused() { # CODE REGEX ARGUMENT...
	exits "$1" "$CKPTFS_BUILD/fs/mount.ckptfs" "${@:3}"
	says "$2"
	! on_any || fail "it is mounted all the same"
}
refused 32 "dir:$WORK/none" "dir:$WORK/none" "$ANY"
refused 1 'begins with a slash' dir:relative "$ANY"
refused 32 'unknown scheme' nothing:/x "$ANY"
refused 1 'option compress: not supported for a mount of a tier' "dir:$TIER" "$ANY" -o compress=lz4
refused 1 'option verify: not supported for a mount of a tier' "dir:$TIER" "$ANY" -o ro,verify
refused 1 'option remount: not supported for a mount of a tier' "dir:$TIER" "$ANY" -o remount,ro
refused 1 'option tier_timeout: only valid with tier=, or for a mount of a tier' "$STORE" "$ANY" -o tier_timeout=5
refused 32 'does not exist; mkdir it first' "dir:$TIER" "$WORK/no/such"
exits 0 "$CKPTFS_BUILD/fs/mount.ckptfs" -f "dir:$TIER" "$ANY"

# --- requests at a time ---
tier_threads() { # OPTIONS
	tier_mount "$1"
	find "/proc/$READER/task" -mindepth 1 -maxdepth 1 | wc -l
	tier_umount
}
tier_threads tier_parallel=40 >many
tier_threads tier_parallel=1 >few
[ "$(cat many)" -ge $(($(cat few) + 30)) ] || fail "$(cat many) threads with 40 requests at a time, $(cat few) with one"

# --- every byte and attribute ---
tier_mount rw,noauto,_netdev,x-systemd.automount,cache=32M # as fstab may have it
describe "$ANY/run/step.1" >found
diff expected found || fail "not what was sealed"
grep -q " $ANY fuse.ckptfs ro," /proc/mounts || fail "not mounted read-only"
grep " $ANY " /proc/mounts | grep -q nosuid || fail "programs of others may have set-user-ID"
for change in "touch $ANY/run/step.1/empty" "mkdir $ANY/new" "rm $ANY/run/step.1/link" "rmdir $ANY/run"; do
	! $change 2>said || fail "possible: $change"
	says 'Read-only'
done
[ "$(ls -A "$ANY")" = "$(printf 'private\nrun')" ] || fail "the root has $(ls -A "$ANY")"
id=$(ls "$ANY/.ckptfs/stores")
for view in "stores/$id/run/step.1" "sealed/$id/0000000000000001"; do
	[ "$(cat "$ANY/.ckptfs/$view/ranks/deep/file.17")" = 17 ] || fail "$view: not there"
done
describe "$ANY/.ckptfs/sealed/$id/0000000000000001" | diff expected - || fail "not the same by its number"

# --- in any order, mapped, by several at once ---
any_order() { # FILE...: what is read is what reading all of it returns
	"$PYTHON" - "$@" <<'PY'
import mmap, os, random, sys, threading
files = sys.argv[1:]
whole = {f: open(f, "rb").read() for f in files}
bad = []
def some(seed):
    r = random.Random(seed)
    for _ in range(150):
        f = r.choice(files)
        at, n = r.randrange(len(whole[f])), r.choice((1, 100, 4096, 70000, 2000000))
        flags = os.O_RDONLY | (os.O_DIRECT if r.random() < 0.2 else 0)
        fd = os.open(f, flags)
        if flags & os.O_DIRECT:
            at -= at % 4096
            m = mmap.mmap(-1, 1 << 20)
            n = os.preadv(fd, [m], at)
            got = m[:n]
        else:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            got = os.pread(fd, n, at)
        if got != whole[f][at:at + len(got)] or (not got):
            bad.append((f, at, n))
        os.close(fd)
threads = [threading.Thread(target=some, args=(i,)) for i in range(6)]
[t.start() for t in threads]
[t.join() for t in threads]
for f in files:
    with open(f, "rb") as o, mmap.mmap(o.fileno(), 0, prot=mmap.PROT_READ) as m:
        r = random.Random(f)
        for at in [r.randrange(len(m)) for _ in range(200)]:
            if m[at] != whole[f][at]:
                bad.append((f, at))
sys.exit(str(bad) if bad else 0)
PY
}
any_order "$ANY/run/step.1/"{ranks/0,ranks/1,ranks/odd,sparse} || fail "reads in any order return other bytes"

# --- the kernel checks permissions ---
exits 1 as_nobody cat "$ANY/run/step.1/ranks/1"
as_nobody cat "$ANY/run/step.1/ranks/odd" >odd || fail "the access list does not count"
head -c 1234567 "$ANY/run/step.1/ranks/1" | cmp - odd || fail "another user reads other bytes"
exits 2 as_nobody ls "$ANY/run/step.1/ranks/deep/er/.." # 711
exits 1 as_nobody cat "$ANY/private/of/me/sealed/file" # a directory above it was closed

# --- what is known about them ---
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" --sealed "$ANY"
tells "$ANY/run/step.1  *sealed  *tier "
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" --verify "$ANY/run/step.1" "$ANY/private/of/me/sealed"
tells 'step.1: valid: '
exits 0 "$CKPTFS_BUILD/tools/ckptfs-restart-path" "$ANY/run"
tells "^$ANY/run/step.1\$"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-restart-path" "$ANY/.ckptfs/stores/$id/run"
tells "^$ANY/.ckptfs/stores/$id/run/step.1\$"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" "$ANY"
tells 'tier'
exits 0 "$CKPTFS_BUILD/tools/ckptfs-diff" "$ANY/run/step.1/ranks" "$ANY/.ckptfs/stores/$id/run/step.1/ranks"
for tool in "ckptfs-gc --delete" ckptfs-scrub "ckptfs-seal --unseal"; do
	exits 2 "$CKPTFS_BUILD/tools/"$tool "$ANY/run/step.1"
	says 'Read-only\|a mounted tier has no store'
done
for words in "--keep-last 1" "--policies --delete"; do
	exits 2 "$CKPTFS_BUILD/tools/ckptfs-gc" $words "$ANY"
	says 'a mounted tier is read-only; use ckptfs gc --tier and the URL of the tier$'
done

# --- newer seals of a path, and other stores ---
tier_umount
fs_mount compress=none
seal --unseal "$MNT/run/step.1"
echo changed >"$MNT/run/step.1/empty"
sleep 0.01
seal "$MNT/run/step.1"
fs_umount
fill 1000000
mv "$STORE" "$WORK/first"
fs_mount compress=none,chunking=cdc # chunks of any lengths
mkdir -p "$MNT/run/step.1" "$MNT/run/step.2"
echo other >"$MNT/run/step.1/empty"
noise five 40 >"$MNT/run/step.2/large"
seal "$MNT/run/step.1" "$MNT/run/step.2"
fs_umount
fill
tier_mount
[ "$(cat "$ANY/run/step.1/empty")" = other ] || fail "the newest seal of a path is not shown"
[ "$(cat "$ANY/.ckptfs/stores/$id/run/step.1/empty")" = changed ] || fail "the newest of a store is not shown"
describe "$ANY/.ckptfs/sealed/$id/0000000000000001" | diff expected - || fail "an earlier seal is not shown by its number"
noise five 40 >large
cmp large "$ANY/run/step.2/large" || fail "other bytes of chunks of any lengths"
any_order "$ANY/run/step.2/large" || fail "reads of chunks of any lengths return other bytes"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-stat" --verify "$ANY/run/step.2"
[ "$("$CKPTFS_BUILD/tools/ckptfs-stat" --sealed "$ANY" | grep -c sealed)" = 5 ] || fail "not five are listed"

# --- a manifest that goes and one that comes, while it is mounted ---
other=$(ls "$ANY/.ckptfs/stores" | grep -v "$id")
exec 5<"$ANY/run/step.2/large"
head -c 100000 <&5 >beginning
rm "$TIER/sealed/$other/0000000000000001"
await [ ! -e "$ANY/.ckptfs/sealed/$other/0000000000000001" ]
await grep -q changed "$ANY/run/step.1/empty" # the other store's is the newest now
rm "$TIER/sealed/$other/0000000000000002"
await [ ! -e "$ANY/run/step.2" ]
cat <&5 >>beginning # it is open
exec 5<&-
noise five 40 | cmp - beginning || fail "an open file of a checkpoint that is gone returns other bytes"
fill # again, by the other store
await [ -e "$ANY/run/step.2/large" ]

# --- numbers that other checkpoints have by now: the tier was emptied, and the store flushes to it from 1 on ---
rm "$TIER/sealed/$other/"*
await [ ! -e "$ANY/run/step.2" ]
fs_mount compress=none,chunking=cdc
for step in 1 2; do
	seal --unseal "$MNT/run/step.$step"
	echo "$step" >"$MNT/run/step.$step/again"
done
sleep 0.01
seal "$MNT/run/step.2" "$MNT/run/step.1"
fs_umount
fill
await [ -e "$ANY/run/step.2/again" ]
[ "$(cat "$ANY/run/step.1/again" "$ANY/run/step.2/again")" = "$(printf '1\n2')" ] || fail "other checkpoints at these paths"
cmp large "$ANY/run/step.2/large" || fail "not what was sealed"
tier_umount
tier_mount # which lists it, and reads no manifest
rm "$TIER/sealed/$other/"*
fs_mount compress=none,chunking=cdc
seal --unseal "$MNT/run/step.1"
mv "$MNT/run/step.1" "$MNT/run/step.3" # without it, step.2 has its number
seal "$MNT/run/step.3"
fs_umount
fill
# nothing was listed meanwhile, so the numbers are the same
for step in 1 2; do
	[ ! -e "$ANY/run/step.$step/again" ] || [ "$(cat "$ANY/run/step.$step/again")" = "$step" ] ||
		fail "the content of another checkpoint is shown at a path"
done
await grep -q 1 "$ANY/run/step.3/again"
await grep -q 2 "$ANY/run/step.2/again"

# --- memory ---
tier_umount
tier_mount cache=16M
readers=()
for i in 1 2 3 4; do
	cmp large "$ANY/run/step.2/large" &
	readers+=("$!")
done
for i in "${readers[@]}"; do wait "$i" || fail "several readers get other bytes"; done
[ "$(tier_figure tier.cache_bytes)" -le $((16 << 20)) ] || fail "the cache is larger than its limit"
tier_umount

# --- what another program has mounted over it stays, and the daemon ends ---
tier_mount
mount -t tmpfs tmpfs "$ANY"
kill -TERM "$READER"
wait "$READER" || fail "the daemon of the tier ended with $?"
READER=
[ "$(stat -f -c %T "$ANY")" = tmpfs ] || fail "the daemon has unmounted what was mounted over it"
umount "$ANY"
umount "$ANY" # the mount below, which no daemon answers

# --- damage ---
MOUNTED_TIER=
tier_mount
dir=$ANY/.ckptfs/sealed/$id/0000000000000001
dd if="$dir/ranks/0" of=page bs=4096 skip=1000 count=1 status=none
"$PYTHON" - "$TIER/packs" page >place <<'PY'
import os, sys
page = open(sys.argv[2], "rb").read()
for dir, _, files in os.walk(sys.argv[1]):
    for path in [os.path.join(dir, n) for n in files]:
        at = open(path, "rb").read().find(page)
        if at >= 0:
            print(path, at)
PY
read -r pack at <place
flip() { # FILE OFFSET: other bits in one byte
	"$PYTHON" -c 'import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.pwrite(fd, bytes([os.pread(fd, 1, int(sys.argv[2]))[0] ^ 0x5a]), int(sys.argv[2]))' "$@"
}
having() { # files that have this page
	"$PYTHON" - "$dir" page <<'PY'
import os, stat, sys
page = open(sys.argv[2], "rb").read()
for dir, _, files in os.walk(sys.argv[1]):
    for path in [os.path.join(dir, n) for n in files]:
        if stat.S_ISREG(os.lstat(path).st_mode):
            b = open(path, "rb").read()
            if any(b[i:i + 4096].ljust(4096, b"\0") == page for i in range(0, len(b), 4096)):
                print(os.path.relpath(path, sys.argv[1]))
PY
}
failing() { # and those that cannot be read
	(cd "$dir" && find . -type f | while read -r f; do cat "$f" >/dev/null 2>&1 || echo "${f#./}"; done)
}
having | sort >having
[ -s having ] || fail "no file has this page"
tier_umount
printf '\x5a\xa5' | dd of="$pack" bs=1 seek=$((at + 17)) conv=notrunc status=none
tier_mount
failing | sort >failing
diff having failing || fail "damage concerns other files"
grep -q "file .ckptfs/sealed/$id/0000000000000001/$(head -n 1 having): cannot read .* packs/.*is damaged" daemon.log ||
	fail "the log names no file and object"
exits 3 "$CKPTFS_BUILD/tools/ckptfs-stat" --verify "$dir"
tells 'damaged'
dd if=page of="$pack" bs=1 seek="$at" conv=notrunc status=none # mended meanwhile
failing >failing
[ ! -s failing ] || fail "what was mended cannot be read: $(cat failing)"
# a pack that is gone, and tables that are damaged
tier_umount
mv "$pack" away
tier_mount
failing >failing
[ -s failing ] || fail "a pack is gone and all can be read"
grep -q 'cannot read .*is missing' daemon.log || fail "the log does not say what is missing"
tier_umount
cp away "$pack"
flip "$pack" $(($(stat -c %s "$pack") - 64 - 3000))
tier_mount
failing | diff failing - || fail "damaged tables concern other files than a pack that is gone"
cp away "$pack"
flip "$TIER/sealed/$id/0000000000000001" 5000
tier_umount
tier_mount
exits 2 ls "$dir/ranks"
grep -q 'the manifest is damaged' daemon.log || fail "the log does not say that a manifest is damaged"
[ "$(cat "$ANY/.ckptfs/stores/$id/run/step.1/empty")" = changed ] || fail "other checkpoints suffer from it"
tier_umount

# --- a tier that does not answer ---
# It lies on a mounted store, whose daemon stands still.
rm -r "$STORE"
fs_mount
mkdir "$MNT/tier"
cp -r "$TIER/." "$MNT/tier"
MOUNTED_TIER=$MNT/tier
tier_mount tier_timeout=2
head -c 1000 "$ANY/run/step.2/large" >/dev/null # its manifest is known
stop_process "$DAEMON"
exits 1 tail -c 1000 "$ANY/run/step.2/large"
says 'Input/output error'
grep -q 'large: cannot read .*does not answer' daemon.log || fail "the log does not say that there is no answer"
exits 2 ls "$ANY/.ckptfs/sealed/$id/0000000000000002/ranks"
umount "$ANY" # although a request still hangs
wait "$READER" || fail "the daemon of the tier ended with $?"
kill -CONT "$DAEMON"
tier_mount tier_timeout=10h
head -c 1000 "$ANY/run/step.2/large" >/dev/null
stop_process "$DAEMON"
tail -c 1000 "$ANY/run/step.2/large" >/dev/null 2>&1 &
reader=$!
await grep -q '^State:.[SD]' "/proc/$reader/status"
sleep 0.5 # until it reads; before that the kill is no test, but right as well
kill -INT "$reader"
kill -TERM "$reader"
await eval "! running $reader"
umount "$ANY"
wait "$READER" || fail "the daemon of the tier ended with $?"
READER=
kill -CONT "$DAEMON"

# --- a user with many requests, at a tier that does not answer, holds no other user up ---
as_user() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; } # UID COMMAND...
first_mib='import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM) # nothing else of the file
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED) # from the daemon
sys.stdout.buffer.write(os.pread(fd, 1 << 20, 0))'
known=$ANY/.ckptfs/stores/$id/run/step.1/ranks/deep
tier_mount tier_timeout=10h
stat "$known/file.17" >/dev/null # the manifest is in memory
"$PYTHON" -c "$first_mib" "$ANY/run/step.2/large" >/dev/null # and so is this
stop_process "$DAEMON"
# 100 reads that wait in the kernel's queue if it has one, 100 that do not, and 100 look-ups in what was not read yet
as_user 1000 "$PYTHON" - "$ANY/run/step.2/large" "$ANY/private/of/me/sealed/file" <<'PY' &
import mmap, os, sys
for i in range(300):
    if os.fork() == 0:
        os.close(1)
        if i >= 200:
            os.stat(sys.argv[2])
            os._exit(0)
        fd = os.open(sys.argv[1], os.O_RDONLY | (os.O_DIRECT if i >= 100 else 0))
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        os.preadv(fd, [mmap.mmap(-1, 4096)], (24 << 20) + i * 69632)
        os._exit(0)
PY
await eval '[ "$(pgrep -c -U 1000)" -ge 300 ]'
sleep 1 # until they read; before that the rest is no test, but right as well
alone() { # COMMAND...: of another user, ends
	as_user 1001 "$@" &
	await eval "! running $!"
	wait "$!" || fail "another user cannot: $*"
}
alone stat "$known/file.42" >/dev/null
alone "$PYTHON" -c "$first_mib" "$ANY/run/step.2/large" >found
head -c 1M large | cmp - found || fail "another user reads other bytes"
pgrep -U 1000 | sed -n '20,40p;120,140p;220,225p' >killed
while read -r pid; do kill -TERM "$pid"; done <killed
while read -r pid; do await eval "! running $pid"; done <killed
"$CKPTFS_BUILD/tools/umount.ckptfs" "$ANY" 2>/dev/null && fail "unmounted while files are open"
kill -TERM "$READER"
wait "$READER" || fail "the daemon of the tier ended with $?"
READER=
await eval '! pgrep -U 1000 >/dev/null'
kill -CONT "$DAEMON"

# --- reads that are killed before the tier was asked leave nothing behind ---
readers_of_1000() { # NUMBER FIRST STEP BYTES: each reads this many bytes of a file, from its own place
	as_user 1000 "$PYTHON" - "$ANY/run/step.2/large" "$@" <<'PY'
import mmap, os, sys
nr, first, step, length = map(int, sys.argv[2:])
for i in range(nr):
    if os.fork() == 0:
        os.close(1)
        fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
        os.preadv(fd, [mmap.mmap(-1, length)], first + i * step)
        os._exit(0)
PY
	sleep 1 # until they read; before that the rest is no test, but right as well
}
end_readers() {
	pkill -TERM -U 1000 || fail "no reader is left"
	await eval '! pgrep -U 1000 >/dev/null'
}
tier_mount tier_timeout=10h,cache=16M
stat "$known/file.17" "$ANY/run/step.2/large" >/dev/null
"$PYTHON" -c "$first_mib" "$ANY/run/step.2/large" >/dev/null
stop_process "$DAEMON"
for first in 1 20; do
	readers_of_1000 19 $((first << 20)) $((1 << 20)) $((1 << 20))
	end_readers
done
used=$(tier_figure tier.cache_bytes)
[ "$used" -le $((20 << 20)) ] || fail "$used bytes of reads that were killed are in memory" # 16 requests hang
kill -TERM "$READER"
wait "$READER" || fail "the daemon of the tier ended with $?"
READER=
kill -CONT "$DAEMON"

# --- objects that cannot be read occupy no thread while other objects are read ---
fs_umount
"$PYTHON" - "$STORE" large <<'PY' || fail "no such bytes in any pack"
import glob, os, sys
whole = open(sys.argv[2], "rb").read()
want = [whole[at:at + 64] for at in range(24 << 20, 36 << 20, 512 << 10)]
found = set()
for pack in glob.glob(sys.argv[1] + "/packs/*.pack"):
    with open(pack, "r+b") as f:
        b = f.read()
        for w in want:
            at = b.find(w)
            while at >= 0:  # the file and the object in the tier share the page, unless it is not aligned in the object
                os.pwrite(f.fileno(), bytes([w[0] ^ 1]), at)
                found.add(w)
                at = b.find(w, at + 1)
        os.fsync(f.fileno())
sys.exit(len(found) < len(want))
PY
fs_mount
tier_mount tier_timeout=10h
stat "$known/file.17" >/dev/null
"$PYTHON" -c "$first_mib" "$ANY/run/step.2/large" >/dev/null
readers_of_1000 24 $((24 << 20)) $((512 << 10)) 4096
echo 99 >want
alone cmp "$known/file.99" want
end_readers
tier_umount
fs_umount
