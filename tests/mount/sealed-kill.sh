#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# kill -9 of the daemon at random moments, while epochs are sealed, unsealed, removed by a policy and drained: each is sealed as a whole or not at all, the
# newest that was acknowledged proves itself, and whatever has its name where it was drained to is whole. ROUNDS, and SEED for the moments.
. "$(dirname "$0")/lib.sh"
need_mount
tools=$CKPTFS_BUILD/tools
rounds=${ROUNDS:-6} RANDOM=${SEED:-7}

# The job: it goes on where it was. `begun` and `sealed` are the last step that was begun, and acknowledged.
cat >"$WORK/job" <<'SH'
set -e
note() { echo "$2" >"$1.new" && mv "$1.new" "$1"; } # the job is killed, too
n=$(cat begun)
while :; do
	n=$((n + 1))
	note begun $n
	mkdir -p "$MNT/step.$n/deep"
	for f in 1 2 3 deep/4; do seq -f "$n $f %.0f" 3000 >"$MNT/step.$n/$f"; done
	ckptfs-seal --quiet "$MNT/step.$n"
	note sealed $n
	case $((n % 4)) in
	0) ckptfs-seal --quiet --unseal "$MNT/step.$((n - 1))" || true ;; # never the newest; a kill may have been before it was sealed
	1) rm -rf "$MNT/step.$((n - 2))" 2>/dev/null || true ;; # what is not sealed may go
	2) ckptfs-gc --quiet --delete --keep-last 3 "$MNT" >/dev/null ;;
	3) ckptfs-run --quiet --shared --mount "$MNT" --flush-to to true ;;
	esac
done
SH

cat >"$WORK/check" <<'PY'
import errno, json, os, re, subprocess, sys
mnt, sealed = sys.argv[1], int(sys.argv[2])
ask = lambda *a: subprocess.run(a, check=True, stdout=subprocess.PIPE, text=True).stdout
listed = {os.path.basename(e["path"]): e for e in json.loads(ask("ckptfs-seal", "--list", "--json", mnt))["sealed"]}


def is_whole(top):
    n = int(top.split(".")[-1])
    for f in ("1", "2", "3", "deep/4"):
        with open(f"{top}/{f}") as file:
            assert file.read() == "".join(f"{n} {f} {i}\n" for i in range(1, 3001)), f"{top}/{f}: other bytes"


def is_sealed(path):
    """Whether it can be changed; nothing is."""
    try:
        if os.path.isdir(path):
            os.mkdir(path + "/new")
            os.rmdir(path + "/new")
        else:
            os.close(os.open(path, os.O_WRONLY))
        return False
    except OSError as e:
        assert e.errno == errno.EPERM, (path, e)
        return True


steps = [d for d in os.listdir(mnt) if re.fullmatch(r"step\.\d+", d)]
for d in steps:
    top = f"{mnt}/{d}"
    states = {is_sealed(os.path.join(where, name)) for where, dirs, files in os.walk(top) for name in files + ["."]}
    assert states == {d in listed}, f"{d} is half sealed, and {'listed' if d in listed else 'not listed'}"
    if d in listed:
        is_whole(top)
assert set(listed) <= set(steps), f"sealed, and not there: {set(listed) - set(steps)}"
if listed:
    ask("ckptfs-stat", "--verify", *[f"{mnt}/{d}" for d in listed])
if sealed > 0:
    newest = ask("ckptfs-restart-path", mnt).strip()
    assert int(newest.split(".")[-1]) >= sealed, f"{newest} is the newest, though step.{sealed} was acknowledged"
if os.path.isdir("to"):
    for d in os.listdir("to"):
        if d.startswith("step."):
            is_whole("to/" + d)
print(f"ok acknowledged {sealed}, {len(steps)} there, {len(listed)} sealed, {len(os.listdir('to')) if os.path.isdir('to') else 0} drained")
PY

PATH=$tools:$CKPTFS_BUILD/fs:$PATH
cd "$WORK"
echo 0 >begun
echo 0 >sealed
fs_mount
for round in $(seq "$rounds"); do
	bash job >said 2>&1 &
	job=$!
	sleep "$((RANDOM % 2)).$((RANDOM % 10))$((RANDOM % 10))"
	running $job || fail_showing "the job has ended"
	daemon_kill
	kill -KILL $job 2>/dev/null || true # before the mountpoint is a plain directory again
	{ wait $job || true; } 2>/dev/null
	fs_kill
	fs_sound "after kill -9 in round $round"
	fs_mount
	exits 0 "$PYTHON" check "$MNT" "$(cat sealed)"
	cat out
	rm -rf to/.step.* # as an administrator would; the next drain does, too
done
[ "$(cat sealed)" -gt "$rounds" ] || fail "only $(cat sealed) epochs in $rounds rounds"
fs_umount
