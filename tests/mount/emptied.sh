#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A directory from which many names were removed: the index searches through what is left of them. One user has it do that
# again and again; another's requests go on.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

HOG=$(program hog)
NR=${CKPTFS_EMPTIED:-100000} # names
MS=2000
# At least one round in so many of what the quiet mount completes; or so many for each request of the other user, if one
# takes that long. Without the fix there were 2 or 3 for each, with it some hundred.
SHARE=20
PER_TRY=10
PIDS=

as_user() { local uid=$1; shift; exec setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; } # in a subshell
rounds() { (as_user 1001 "$HOG" victim "$MNT/other" "$MS"); }
end_pids() {
	local pid
	# shellcheck disable=SC2086 # each is a word
	kill -KILL $PIDS 2>/dev/null || true
	for pid in $PIDS; do
		{ gone "$pid" || fail "a client that was killed is still there"; wait "$pid" || true; } 2>/dev/null
	done
	PIDS=
}

cat >"$WORK/emptied.py" <<'PY'
"""make DIR NR: makes names, and removes all but the last in the order of the listing.
rmdir|rename|seal DIR TRIES SEAL: one request again and again; TRIES has their number."""
import errno, os, subprocess, sys
what, top, arg = sys.argv[1:4]
if what == "make":
    os.mkdir(top)
    for i in range(int(arg)):
        os.mknod(f"{top}/{i}")
    for name in [e.name for e in os.scandir(top)][:-1]:
        os.unlink(f"{top}/{name}")
    os.mkdir(top + ".empty")
    sys.exit()

def is_refused(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno == errno.ENOTEMPTY
    return False

tries = 0
while True:
    tries += 1
    with open(arg, "w") as f:
        f.write(f"{tries}\n")
    if what == "rmdir":
        assert is_refused(os.rmdir, top)
    elif what == "rename":
        assert is_refused(os.rename, top + ".empty", top)
    else:
        subprocess.run([sys.argv[4], "--quiet", top], check=True)
        subprocess.run([sys.argv[4], "--unseal", "--quiet", top], check=True)
PY

install -m 666 /dev/null "$WORK/tries"
fs_mount
mkdir "$MNT/user" "$MNT/other"
chown 1000:1000 "$MNT/user"
chown 1001:1001 "$MNT/other"
(as_user 1000 "$PYTHON" "$WORK/emptied.py" make "$MNT/user/a" "$NR")
read -r before p50 p99 longest <<<"$(rounds)"
echo "quiet: $before rounds of a user, p50 $p50, p99 $p99, longest $longest us"
for what in rmdir rename seal; do
	as_user 1000 "$PYTHON" "$WORK/emptied.py" $what "$MNT/user/a" "$WORK/tries" "$CKPTFS_BUILD/tools/ckptfs-seal" &
	PIDS=$!
	read -r busy p50 p99 longest <<<"$(rounds)"
	running "$PIDS" || fail "$what ended"
	end_pids
	read -r after _ <<<"$(rounds)"
	tries=$(cat "$WORK/tries")
	quiet=$((before < after ? before : after))
	echo "$busy rounds, p50 $p50, p99 $p99, longest $longest us beside $tries x $what; then, quiet, $after"
	[ $((busy * SHARE)) -ge "$quiet" ] || [ "$busy" -ge $((PER_TRY * tries)) ] ||
		fail "only $busy of $quiet rounds beside $tries x $what"
	before=$after
done

# A removed checkpoint is erased some names at a time, and not searched from its beginning each time.
mkdir -p "$MNT/kept/old" "$MNT/kept/new"
(cd "$MNT/kept/old" && seq "$NR" | xargs touch)
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/kept/old"
"$CKPTFS_BUILD/tools/ckptfs-seal" --quiet "$MNT/kept/new"
read -r before _ <<<"$(rounds)"
"$CKPTFS_BUILD/tools/ckptfs-gc" --keep-last 1 --delete --quiet "$MNT/kept" &
PIDS=$!
await test ! -e "$MNT/kept/old"
sleep 2
read -r busy p50 p99 longest <<<"$(rounds)"
wait "$PIDS" || fail "ckptfs-gc failed"
echo "$before rounds when quiet; $busy rounds, p50 $p50, p99 $p99, longest $longest us beside a removal"
[ $((busy * 50)) -ge "$before" ] || fail "only $busy of $before rounds beside the removal of a checkpoint" # without the fix 2

"$CKPTFS_BUILD/tools/ckptfs-seal" --unseal --quiet "$MNT/user/a" 2>/dev/null || true # it was killed before or after that
rm "$MNT/user/a"/*
rmdir "$MNT/user/a" "$MNT/user/a.empty"
[ ! -e "$MNT/user/a" ] || fail "an empty directory is still there"
fs_umount
exits 0 "$CKPTFS_BUILD/tools/fsck.ckptfs" "$STORE"
