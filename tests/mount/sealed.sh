#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Epochs: what is listed of sealed directories, the root that proves one, and the way back to the last that does.
. "$(dirname "$0")/lib.sh"
need_mount

seal() { "$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$@"; }
epoch_stat() { "$CKPTFS_BUILD/tools/ckptfs-stat" "$@"; }
restart() { "$CKPTFS_BUILD/tools/ckptfs-restart-path" "$@"; }
# of CHECKPOINT KEY: a figure of the list
of() {
	epoch_stat --sealed --json "$MNT" | "$PYTHON" -c 'import json, sys
print(next(e for e in json.load(sys.stdin)["sealed"] if e["path"] == sys.argv[1])[sys.argv[2]])' "$MNT/$1" "$2"
}
root_of() { of "$1" root; }

# step N: a checkpoint of 4 MiB of which 1 MiB is not in the one before it
step() {
	mkdir -p "$MNT/run/step.$1/ranks"
	{ noise same 3; noise "$1" 1; } >"$MNT/run/step.$1/ranks/0"
	echo "$1" >"$MNT/run/step.$1/info"
}
fs_mount compress=none
cd "$WORK"
exits 0 epoch_stat --sealed "$MNT"
tells "^$MNT: no sealed directories"
for n in 1 2 3; do
	step $n
	seal "$MNT/run/step.$n"
done

# --- the list ---
exits 0 epoch_stat --sealed "$MNT"
tells "^  CHECKPOINT  *STATE  *DURABLE  *SIZE  *NEW  *FILES  *AGE\$"
tells "^  $MNT/run/step.1  *sealed  *local  *4 MiB  *4 MiB  *2  *[0-9]"
tells "^\\* $MNT/run/step.3  *sealed  *local  *4 MiB  *1 MiB  *2  *[0-9]"
[ "$(grep -c '^\*' out)" = 1 ] || fail_showing "not one is the newest"
[ "$(of run/step.2 new_bytes)" = $(((1 << 20) + 4096)) ] || fail "new: $(of run/step.2 new_bytes)"
[ "$(of run/step.2 newest) $(of run/step.3 newest)" = "False True" ] || fail "another one is the newest"
[ "$(root_of run/step.1)" != "$(root_of run/step.2)" ] || fail "two epochs have one root"
[ "$(root_of run/step.1 | tr -d '\n' | wc -c)" = 64 ] || fail "no SHA-256: $(root_of run/step.1)"

# --- the root is of what is in it, and of nothing else ---
before=$(root_of run/step.3)
seal --unseal "$MNT/run/step.3"
seal "$MNT/run/step.3"
[ "$(root_of run/step.3)" = "$before" ] || fail "the same directory has another root"
"$CKPTFS_BUILD/tools/ckptfs-gc" --delete --place --quiet "$MNT" >/dev/null
[ "$(root_of run/step.3)" = "$before" ] || fail "collecting has changed a root"
exits 0 epoch_stat --verify --quick "$MNT/run/step.3"
fs_umount
fs_sound "with roots"
fs_rebuild
fs_mount compress=none
[ "$(root_of run/step.3)" = "$before" ] || fail "a rebuild has changed a root"
exits 0 epoch_stat --verify --json "$MNT/run/step.3"
[ "$(json state read_bytes root <out | tr '\n' ' ')" = "valid $(((4 << 20) + 2)) $before " ] || fail_showing "other figures"
exits 0 epoch_stat --verify "$MNT/run/step.1" "$MNT/run/step.2"
tells "step.1: valid: 2 files, 4 MiB, 4 MiB read, root $(root_of run/step.1)"

# --- what is not sealed, and wrong use ---
step 4
exits 3 epoch_stat --verify "$MNT/run/step.4"
tells "step.4: not sealed"
exits 3 epoch_stat --verify --json "$MNT/run/step.4"
tells '"state":"unsealed".*"why":"not sealed"'
exits 2 epoch_stat --verify "$WORK"
says "not on a mounted ckptfs"
exits 2 epoch_stat --verify "$MNT/nowhere"
exits 1 epoch_stat --verify
exits 1 epoch_stat --quick "$MNT"
exits 1 epoch_stat --verify --sealed "$MNT"

# --- the way back ---
exits 0 restart "$MNT/run"
[ "$(cat out)" = "$MNT/run/step.3" ] || fail_showing "another one was found"
says "step.4: skipped: not sealed"
exits 0 restart --quiet "$MNT"
[ ! -s said ] || fail_showing "something was said"
exits 0 restart --null "$MNT/run/step.2" # itself
[ "$(tr '\0' '!' <out)" = "$MNT/run/step.2!" ] || fail_showing "another one was found"
mkdir "$MNT/empty"
exits 3 restart "$MNT/empty"
says "no sealed directory in it"
exits 2 restart "$WORK"
exits 2 restart "$MNT/nowhere"
exits 1 restart
exits 1 restart --quick --no-verify "$MNT"

# --- damage ---
strike "$MNT/run/step.3/ranks/0"
fs_remount compress=none # what is read comes from the disk
exits 3 epoch_stat --verify "$MNT/run/step.3"
tells "step.3: damaged: $MNT/run/step.3/ranks/0 cannot be read"
exits 3 epoch_stat --verify --json "$MNT/run/step.2" "$MNT/run/step.3"
[ "$(sed -n 's/.*"state":"\([a-z]*\)".*/\1/p' out | tr '\n' ' ')" = "valid damaged " ] || fail_showing "other states"
exits 0 restart "$MNT/run"
[ "$(cat out)" = "$MNT/run/step.2" ] || fail_showing "a damaged one was taken"
says "step.3: skipped: damaged"
says "step.4: skipped: not sealed"
exits 0 restart --no-verify "$MNT/run"
[ "$(cat out)" = "$MNT/run/step.3" ] || fail_showing "it has been verified"
exits 0 restart --quick "$MNT/run"
[ "$(cat out)" = "$MNT/run/step.3" ] || fail_showing "bytes were read"

# --- holes are not read, and damage between them is found ---
mkdir "$MNT/sparse"
truncate -s 4P "$MNT/sparse/file"
for at in 0 1M 5M 2T 2049T 4095T; do
	noise "$at" 1 | head -c 10000 | dd of="$MNT/sparse/file" bs=10000 seek="$(numfmt --from=iec "$at")" oflag=seek_bytes conv=notrunc status=none
done
seal "$MNT/sparse"
exits 0 epoch_stat --verify --json "$MNT/sparse"
[ "$(json state <out)" = valid ] && [ "$(json read_bytes <out)" -ge 60000 ] && [ "$(json read_bytes <out)" -le $((6 << 20)) ] ||
	fail_showing "other figures of a file with holes"
exits 0 restart "$MNT/sparse"
exits 0 "$CKPTFS_BUILD/tools/ckptfs-gc" --verify --keep-last 1 "$MNT/sparse"
flip_chunk "$MNT/sparse/file" $((2049 << 40))
fs_remount compress=none
exits 3 epoch_stat --verify "$MNT/sparse"
tells "sparse: damaged: $MNT/sparse/file cannot be read"

# --- a mount that dies meanwhile: that there is none to begin with is not said, as the job would begin anew ---
for n in 6 7; do
	mkdir "$MNT/run/step.$n"
	noise "$n" 64 >"$MNT/run/step.$n/data"
	seal "$MNT/run/step.$n"
done
for tool in "ckptfs-restart-path" "ckptfs-gc --verify --keep-last 1"; do
	fs_remount compress=none
	exits 2 "$PYTHON" - "$DAEMON" "$CKPTFS_BUILD/tools/"$tool "$MNT/run" <<'PY'
import os, signal, subprocess, sys
daemon, *command = sys.argv[1:]
def reading(): # its process that has threads (tools/common/watchdog.h)
    try:
        with open(f"/proc/{p.pid}/task/{p.pid}/children") as f:
            return next((int(child) for child in f.read().split() if len(os.listdir(f"/proc/{child}/task")) > 1), None)
    except (FileNotFoundError, ProcessLookupError): # it ends
        return None
def stop(child): # it cannot end before the daemon does
    try:
        os.kill(child, signal.SIGSTOP)
        if reading() == child:
            return True
        os.kill(child, signal.SIGCONT)
    except ProcessLookupError:
        pass
    return False
child = None
while not child: # on a busy machine it may have ended when its threads are looked for
    p = subprocess.Popen(command)
    while p.poll() is None and not child:
        child = reading()
    if child and not stop(child):
        child = None
    if not child:
        p.wait()
os.kill(int(daemon), signal.SIGKILL)
os.kill(child, signal.SIGCONT)
sys.exit(p.wait())
PY
	says_not "from the beginning"
	fs_kill
	fs_mount compress=none
done
for n in 6 7; do
	seal --unseal "$MNT/run/step.$n"
	rm -r "$MNT/run/step.$n"
done

# --- a part of the filesystem, as containers are given one ---
if [ "$(id -u)" = 0 ]; then
	part=$WORK/$'a\vpart'
	mkdir "$part" "$MNT/other" "$MNT/runs"
	seal "$MNT/other"
	seal "$MNT/runs"
	mount --bind "$MNT/run" "$part"
	exits 0 restart "$part"
	[ "$(cat out)" = "$part/step.2" ] || fail_showing "another one was found"
	says "part/step.3: skipped: damaged"
	exits 0 epoch_stat --sealed --json "$part"
	"$PYTHON" -c 'import json, sys
j = json.load(sys.stdin)
assert [e["path"] for e in j["sealed"]] == [f"{sys.argv[1]}/step.{n}" for n in (1, 2, 3)], j
assert j["mountpoint"] == sys.argv[1], j' "$part" <out || fail_showing "other epochs"
	exits 0 "$CKPTFS_BUILD/tools/ckptfs-gc" --keep-last 1 "$part"
	tells "^remove  .*part/step.1 "
	if has_cluster; then
		exits 2 "$CKPTFS_BUILD/tools/ckptfs-compact" --replicas "$part"
		says "only part of the filesystem is mounted here"
	fi
	umount "$part"
	mount --bind "$MNT/run/step.1" "$part" # itself
	exits 0 restart "$part"
	[ "$(cat out)" = "$part" ] || fail_showing "another one was found"
	umount "$part"
	seal --unseal "$MNT/other"
	seal --unseal "$MNT/runs"
fi

# --- names that are to do something to a terminal ---
evil=$MNT/run/$'step.5\n\e[2Jx'
mkdir "$evil"
echo x >"$evil/"$'file\e'
seal "$evil"
for command in "epoch_stat --sealed" "epoch_stat --verify"; do
	exits 0 $command "$evil"
	! grep -q $'\e' out said || fail_showing "$command: a name is shown as it is"
	tells 'step.5\\012\\033\[2Jx'
done
exits 0 restart "$MNT/run"
[ "$(cat out)" = "$evil" ] || fail_showing "a path is not what it is"
fs_umount
