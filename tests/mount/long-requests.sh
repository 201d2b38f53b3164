#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-3.0-or-later
# One user's long requests, at absurd sizes, and another user's ordinary ones: the others go on, clients die when they are
# killed, and so does the daemon.
. "$(dirname "$0")/lib.sh"
need_mount
need_root

HOG=$(program hog)
KINDS="clone clone-deep copy compare compare-deep stat seek verify seal reseal seals ask owners"
LIST=list # by itself, so that it has a place all the time
SYNCHRONOUS=osync # writes, each of which waits for a commit; first, because the daemon keeps threads that it has started
NR_SYNCHRONOUS=64
ENDLESS=repeat # would write 8 TiB
NR_EACH=${CKPTFS_HOGS:-3} # processes of each kind
NR_FILES=${CKPTFS_HOG_FILES:-3000}
MS=${CKPTFS_HOG_MS:-250}
# A user's rounds beside long requests of another, and in turns beside the same requests on another mount: there they take
# as much of the processors and the disk, which other programs use as well, but nothing of the daemon. In most pairs of such
# periods the first is to have at least 1/SHARE of the rounds of the second. Not 1/2: when a thread of a long request loses
# its processor, perhaps with a lock that all take, it gets it back only after the other programs. On two processors with a
# load of 20 to 60, the median was 1/3 beside KINDS, 1/4 beside LIST and 1/16 beside ENDLESS, and single pairs had 1/70 to 6.
# A mount that stops has one round or none. ./bench users has the latencies.
SHARE=${CKPTFS_HOG_SHARE:-20}
NR_PAIRS=3 # at least so many good ones
NR_PAIRS_MAX=40
OTHER=$WORK/elsewhere # the other mount
HOGS=

as_user() { local uid=$1; shift; exec setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; } # in a subshell
rounds() { (as_user 1001 "$HOG" victim "$MNT/other" "$MS"); }

start_hogs() { # MOUNT KIND...
	local mount=$1 kind i
	shift
	rm -f "$WORK"/marks/*
	HOGS=
	for kind; do
		for ((i = 0; i < NR_EACH; i++)); do
			as_user 1000 "$HOG" "$kind" "$mount/user" "$WORK/marks/$kind.$i" 2>>"$WORK/hogs.log" &
			HOGS+=" $!"
		done
	done
	for kind; do
		await test -e "$WORK/marks/$kind.$((NR_EACH - 1))"
	done
}

kill_hogs() {
	local pid
	# shellcheck disable=SC2086 # each is a word
	kill -KILL $HOGS 2>/dev/null || true
	for pid in $HOGS; do
		gone "$pid" || fail "a client that was killed is still there"
		{ wait "$pid" || true; } 2>/dev/null
	done
}

mkdir -m 777 "$WORK/marks"
fs_mount
mkdir "$OTHER"
"$CKPTFS_BUILD/fs/mount.ckptfs" "$OTHER.store" "$OTHER"
for mount in "$MNT" "$OTHER"; do
	mkdir "$mount/user" "$mount/user/many" "$mount/user/whole" "$mount/user/sealed" "$mount/other"
	for dir in many whole; do
		(cd "$mount/user/$dir" && seq -f f%.0f "$NR_FILES" | xargs touch)
	done
	truncate -s 900P "$mount/user/sealed/sparse"
	seq 300 | (cd "$mount/user/sealed" && xargs touch)
	chown -R 1000:1000 "$mount/user"
	chown 1001:1001 "$mount/other"
	(as_user 1000 "$HOG" files "$mount/user")
	(as_user 1000 "$CKPTFS_BUILD/tools/ckptfs-seal" "$mount/user/sealed" >/dev/null)
done
(as_user 1000 "$HOG" once "$MNT/user" verify) || fail "8 TiB of zeros cannot be verified"
for tool in diff analyze compact; do # which read files: not all that a size claims
	with=$([ $tool = diff ] && echo "$MNT/other" || true)
	"$CKPTFS_BUILD/tools/ckptfs-$tool" "$MNT/user/sealed" ${with:+"$with"} >"$WORK/said" 2>&1 || [ $tool = diff ] ||
		fail_showing "ckptfs-$tool failed"
done
exec 5>>"$MNT/user/many/f$NR_FILES" 6>>"$OTHER/user/many/f$NR_FILES" # so that sealing it fails
sync -f "$MNT" "$OTHER"

beside() { # MOUNT: rounds of a user beside long requests there
	# shellcheck disable=SC2086 # each is a word
	NR_EACH=$nr start_hogs "$1" $kinds
	read -r completed p50 p99 longest <<<"$(rounds)"
	[ "$1" != "$MNT" ] || [ $pairs != 0 ] || ask_others
	kill_hogs
}
ask_others() { # root's own, and other users', have places that one user cannot take
	local uid
	for uid in 0 1001; do
		(as_user $uid "$CKPTFS_BUILD/tools/ckptfs-stat" --if-deleted "$MNT/other" >/dev/null) ||
			fail "no place for a question of user $uid"
	done
}
for kinds in "$SYNCHRONOUS" "$KINDS" "$LIST" "$ENDLESS $ENDLESS $ENDLESS"; do
	[ "${kinds%% *}" != "$ENDLESS" ] || SHARE=$((5 * SHARE)) # it writes as fast as the daemon can, as dd(1) would
	nr=$([ "$kinds" = "$SYNCHRONOUS" ] && echo "$NR_SYNCHRONOUS" || echo "$NR_EACH")
	pairs=0 good=0
	until [ $good -ge $NR_PAIRS ] && [ $((2 * good)) -gt $pairs ]; do
		[ $pairs -lt $NR_PAIRS_MAX ] || fail "only in $good of $pairs periods a user had 1/$SHARE of the rounds beside $kinds"
		beside "$MNT"
		with=$completed
		echo "$with rounds, p50 $p50, p99 $p99, longest $longest us beside $nr x $kinds"
		beside "$OTHER"
		echo "$completed rounds, p50 $p50, p99 $p99, longest $longest us beside the same elsewhere"
		[ $((with * SHARE)) -lt "$completed" ] || good=$((good + 1))
		pairs=$((pairs + 1))
	done
done
exec 6>&-
"$CKPTFS_BUILD/tools/umount.ckptfs" "$OTHER"

# A signal with a handler is no reason to fail.
"$PYTHON" - "$MNT/user" <<'PY'
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for _ in range(3):
    assert len(os.getxattr(sys.argv[1] + "/deep", "user.ckptfs.fingerprint")) == 30
signal.setitimer(signal.ITIMER_REAL, 0)
PY

# The daemon ends whatever is under way.
# shellcheck disable=SC2086 # each is a word
start_hogs "$MNT" $KINDS $LIST $ENDLESS
exec 5>&-
kill -TERM "$DAEMON"
gone "$DAEMON" || fail "the daemon does not end while long requests are under way"
wait "$DAEMON" || fail "the daemon ended with an error"
DAEMON=
kill_hogs
fs_kill
fs_mount
[ "$(stat -c %s "$MNT/user/sparse")" = $((512 << 50)) ] || fail "a file has changed"

# A delta that waits for memory, which another user's has for minutes, ends with its client.
fs_remount dirty=64M
install -d -o 1001 "$MNT/other/lineage"
rm -rf "$MNT/user/lineage"
install -d -o 1000 "$MNT/user/lineage"
HOGS=
for of in 1000:user 1001:other; do
	as_user "${of%:*}" "$HOG" tables "$MNT/${of#*:}" "$WORK/marks/tables.${of#*:}" 2>>"$WORK/hogs.log" &
	HOGS+=" $!"
	last=$!
	await test -e "$WORK/marks/tables.${of#*:}"
	sleep 2 # the first has the memory by then, the second waits for it
done
for pid in $HOGS; do
	running "$pid" || fail "no delta: $(cat "$WORK/hogs.log")"
done
kill -KILL "$last"
gone "$last" || fail "a client that was killed waits for memory that another user's delta has"
kill_hogs

# One user's deltas leave memory to others: they would have 30 of 32 MiB.
cp "$(program delta)" "$WORK/delta"
crowd() { (as_user "$1" "$WORK/delta" crowd "$MNT/$2/lineage" 1 "$3" "$4"); } # USER DIR MIB ERRNO
crowd 0 other 31 74 || fail "root does not have all memory for tables"
crowd 1000 user 25 27 || fail "a user's table took more than three quarters of the memory"
HOGS=
for i in 1 2; do
	as_user 1000 "$HOG" half-tables "$MNT/user" "$WORK/marks/half-tables.$i" 2>>"$WORK/hogs.log" &
	HOGS+=" $!"
	await test -e "$WORK/marks/half-tables.$i"
done
sleep 2 # they have all that they get
crowd 1001 other 4 74 & # EBADMSG: it has got the memory
last=$!
gone "$last" || fail "a user's delta waits for memory that another user's deltas have"
wait "$last" || fail "a delta with a damaged table was not refused"
for pid in $HOGS; do
	running "$pid" || fail "no delta: $(cat "$WORK/hogs.log")"
done
kill_hogs

# So do those of several users, each of which takes all that it gets: two would have 30 of 32 MiB.
HOGS=
for uid in 1002 1003 1004; do
	install -d -o $uid "$MNT/$uid" "$MNT/$uid/lineage"
	as_user $uid "$HOG" half-tables "$MNT/$uid" "$WORK/marks/half-tables.$uid" 2>>"$WORK/hogs.log" &
	HOGS+=" $!"
	await test -e "$WORK/marks/half-tables.$uid"
done
sleep 2
for of in 1001:12 0:15; do
	crowd "${of%:*}" other "${of#*:}" 74 & # the next user has 3/4 of the other 17 MiB, and root what is left
	last=$!
	gone "$last" || fail "a delta of user ${of%:*} waits for memory that deltas of other users have"
	wait "$last" || fail "a delta with a damaged table was not refused"
done
for pid in $HOGS; do
	running "$pid" || fail "no delta: $(cat "$WORK/hogs.log")"
done
kill_hogs
fs_umount
"$CKPTFS_BUILD/tools/fsck.ckptfs" "$STORE" >"$WORK/said" 2>&1 || fail_showing "the store is damaged"
