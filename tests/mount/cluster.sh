#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A store of a cluster, and an agent that says what the others do: where it is awaited, what becomes of new pages, what is read from others
# and for them, and that the mount goes on without.
. "$(dirname "$0")/lib.sh"
need_mount
need_cluster

helper=$CKPTFS_BUILD/fs/mount.ckptfs
stat=$CKPTFS_BUILD/tools/ckptfs-stat
head -c 32 /dev/urandom >"$WORK/key"

refused() { # CODE REGEX OPTIONS
	exits "$1" "$helper" "$STORE" "$MNT" -o "$3"
	grep -Eq "$2" "$WORK/said" || fail_showing "-o $3: does not say $2"
}
figure() { stat_json | json "cluster.$1"; } # NAME
is() { # FIGURE VALUE
	[ "$(figure "$1")" = "$2" ] || fail "cluster.$1 is $(figure "$1"), not $2"
}
agent() { # SOCKET WORD...: beside the test, until it has done all that; each word is in $WORK/agent once it is done
	: >"$WORK/agent"
	"$PYTHON" "$HERE/agent.py" "$@" >"$WORK/agent" 2>"$WORK/agent-said" &
	AGENT=$!
	has_done name
	until [ "$(figure nodes)" = 2 ]; do sleep 0.05; done
}
has_done() { # WORD
	until grep -q "^$1" "$WORK/agent"; do
		running "$AGENT" || fail "the agent ended: $(cat "$WORK/agent-said")"
		sleep 0.05
	done
}
ended() { wait "$AGENT" || fail "the agent failed: $(cat "$WORK/agent-said")"; }
page() { "$PYTHON" -c 'import os, sys
f = open(sys.argv[1], "wb")
f.write(bytes([int(sys.argv[2])]) * 4096)
f.flush()
os.fsync(f.fileno())' "$1" "$2"; } # FILE BYTE: synced

# Only a store of a cluster has a socket.
fs_mount
[ ! -e "$STORE/agent.sock" ] || fail "a store of its own awaits an agent"
is member false
"$stat" "$MNT" | grep -q "^Nodes of the cluster" && fail "ckptfs-stat shows a cluster where there is none"
fs_umount
refused 1 'made without cluster=' "agent=$WORK/s"
refused 1 'made without cluster=, which cannot be changed' "cluster=$WORK/key"
rm -r "$STORE"
# One that is to be made is not made without a key, to be refused ever after.
refused 1 'only with cluster=KEYFILE' protect=partner
refused 1 'only with cluster=KEYFILE' compact_group=2
refused 1 'only with cluster=KEYFILE' "agent=$WORK/s"
refused 1 'one of them' "cluster=$WORK/key,compact_group=2,protect=partner"
[ ! -e "$STORE" ] || fail "a store was made all the same"
chmod 644 "$WORK/key"
fs_mount "cluster=$WORK/key"
grep -q "cluster key .*chmod 600" "$WORK/daemon.log" || fail "a key that all can read is no warning"
[ "$(stat -c '%F %a' "$STORE/agent.sock")" = "socket 600" ] || fail "agent.sock is $(stat -c '%F %a' "$STORE/agent.sock")"
is member true
is agent false
page "$MNT/alone" 1
fs_umount
[ ! -e "$STORE/agent.sock" ] || fail "agent.sock is there after the mount"
head -c 32 /dev/urandom >"$WORK/other-key"
refused 1 'made with another cluster= key' "cluster=$WORK/other-key"
refused 32 'No such file' "agent=$WORK/none/s"
touch "$WORK/file"
refused 32 'not a socket' "agent=$WORK/file"

# A path that no address has room for, and one that a killed daemon has left.
deep=$WORK/$(printf '%0120d' 0)
mkdir "$deep"
fs_mount "agent=$deep/s"
[ -S "$deep/s" ] || fail "no socket where agent= says"
fs_kill
[ -S "$deep/s" ] || fail "the socket of a killed daemon should be there"
fs_mount "agent=$deep/s,commit=600,replicas=3"
is agent false
rm "$deep/s" # it has a name in another directory from here on: Python has none of the tricks
fs_umount
fs_mount "agent=$WORK/s,commit=600,replicas=3"

# What this node stores for others: there, read for them, and counted.
agent "$WORK/s" keep await get:65 stay
grep -q 'replicas 3$' "$WORK/agent" || fail "the agent was told: $(head -n 1 "$WORK/agent")"
exits 1 "$PYTHON" "$HERE/agent.py" "$WORK/s"
grep -q 'refused: 16' "$WORK/said" || fail_showing "a second agent is not told that there is one"
page "$MNT/kept" 65
has_done get
is rounds 1
is pinned_bytes 4096
is remote_bytes 0
is served_bytes 4096
"$stat" "$MNT" >"$WORK/out" # not a pipe that ends early
grep -Eq '^  deferred to a round +[0-9.]+ ([KM]i)?B$' "$WORK/out" || fail "ckptfs-stat does not show deferred data in a line: $(cat "$WORK/out")"
grep -q 'with an agent, 1 round,' "$WORK/out" || fail "ckptfs-stat does not show the cluster: $(cat "$WORK/out")"
kill "$AGENT"
wait "$AGENT" 2>/dev/null || true
page "$MNT/without" 66
is rounds 1

# What another node stores: read from there, and an error without it.
agent "$WORK/s" away await serve:67 stay
page "$MNT/away" 67
is remote_bytes 4096
fs_remount_with_agent() {
	kill "$AGENT"
	wait "$AGENT" 2>/dev/null || true
	fs_remount "agent=$WORK/s,commit=600"
}
fs_remount_with_agent
exits 1 cat "$MNT/away"
grep -q 'Input/output error' "$WORK/said" || fail_showing "without the others there is no error"
[ "$(od -An -tu1 -N1 "$MNT/kept" | tr -d ' ')" = 65 ] || fail "what is here cannot be read without the others"
agent "$WORK/s" away serve:67 stay
[ "$(tr -d C <"$MNT/away" | wc -c) $(stat -c %s "$MNT/away")" = "0 4096" ] || fail "what is elsewhere reads as something else"
is fetched_bytes 4096

# Others that have not stored what they were to: then it is here.
kill "$AGENT"
wait "$AGENT" 2>/dev/null || true
agent "$WORK/s" lose await stay
page "$MNT/lost" 68
is remote_bytes 4096
fs_remount_with_agent
[ "$(od -An -tu1 -N1 "$MNT/lost" | tr -d ' ')" = 68 ] || fail "what the others have not stored is gone"

# An agent that dies in a round delays no other node.
agent "$WORK/s" stay
stop_process "$AGENT"
( page "$MNT/stopped" 69 && touch "$WORK/synced" ) &
sleep 0.5
[ ! -e "$WORK/synced" ] || fail "nobody has waited for the round"
kill -KILL "$AGENT"
wait "$AGENT" 2>/dev/null || true
wait $! || fail "fsync failed when the agent died"
fs_umount
[ ! -e "$WORK/s" ] || fail "the socket is there after the mount"
