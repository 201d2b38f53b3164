#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Agents over real MPI, each with a daemon that does what it is told (fake_daemon.c): what is decided, fetched and refused, and that whatever dies,
# no process is left behind.
set -euo pipefail
build=${CKPTFS_BUILD:?is the build directory and must be set}
agent=$build/tests/cluster/ckptfs-agent daemon=$build/tests/cluster/fake_daemon rogue=$build/tests/cluster/rogue
[ -x "$agent" ] || { echo "skipped: built without MPI"; exit 77; }
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
# mpirun gives those that are left a second, which none here needs.
export OMPI_MCA_btl=self,vader OMPI_MCA_odls_base_sigkill_timeout=0
export CKPTFS_AGENT_STALL_MS=4000 CKPTFS_AGENT_END_MS=3000

[ "$(id -u)" != 0 ] || root=--allow-run-as-root
top=$(mktemp -d)
# What a rank that is killed leaves of its shared memory goes with the rest.
export OMPI_MCA_btl_vader_backing_directory=$top
daemons=()
cleanup() {
	for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
	! mountpoint -q "$top/mounted/a mount" || umount "$top/mounted/a mount"
	rm -rf "$top"
}
trap cleanup EXIT

fail() {
	head -v -n 50 "$dir"/* 2>/dev/null | cut -c 1-300 || true
	echo "FAILED: $case: $*"
	exit 1
}

begin() { # NAME: of what is looked at
	case=$1
	dir=$top/$1
	mkdir "$dir"
	nr=0 daemons=() others=()
	echo "$case"
}

node() { # NAME=VALUE...: one more, with a daemon that is told so
	(cd "$dir" && exec "$daemon" $nr.sock id=$((nr + 1)) key=5 name=n$nr "$@" >$nr.out 2>$nr.err) &
	daemons+=($!)
	nr=$((nr + 1))
}

# All agents, until they end; and then all daemons, which see that.
agents() { # STATUS: 0, or any but 0
	local i n rc=0
	for ((i = 0; i < nr; i++)); do
		for ((n = 0; n < 12000; n++)); do [ ! -S "$dir/$i.sock" ] || break; sleep 0.01; done
	done
	for n in 1 2 3 4 5; do
		rc=0
		# shellcheck disable=SC2016
		timeout -k 5 300 mpirun ${root:-} --oversubscribe -n $nr sh -c \
			'CKPTFS_AGENT_HOST=h$((OMPI_COMM_WORLD_RANK % $2)) exec "$0" --socket "$1/$OMPI_COMM_WORLD_RANK.sock" $3' \
			"$agent" "$dir" "${hosts:-1000}" "${options:-}" "${others[@]}" >"$dir/said" 2>&1 || rc=$?
		# Two mpirun that create their session directory at the same time: one of them ends before it starts anything.
		grep -q 'orte_session_dir failed' "$dir/said" || break
	done
	[ $rc != 124 ] || fail "the agents do not end"
	if [ "$1" = 0 ]; then
		[ $rc = 0 ] || fail "exit status $rc"
	else
		[ $rc != 0 ] || fail "exit status 0"
	fi
	for i in "${!daemons[@]}"; do
		wait "${daemons[$i]}" || fail "daemon $i: exit status $?"
	done
	daemons=()
}

told() { # NODE LINE
	grep -qxF -- "$2" "$dir/$1.out" || fail "node $1 was not told: $2"
}
not_told() { # NODE PATTERN
	! grep -q -- "$2" "$dir/$1.out" || fail "node $1 was told: $2"
}
said() { # TEXT, in any agent's words
	grep -qF -- "$1" "$dir/said" || fail "no agent said: $1"
}
same() { # KIND: of lines that all nodes are told
	local i
	for ((i = 1; i < nr; i++)); do
		[ "$(grep "^$1" "$dir/0.out")" = "$(grep "^$1" "$dir/$i.out")" ] || fail "nodes 0 and $i differ: $1"
	done
}

# --- rounds ---

for n in 1 2 3 5 8; do
	begin decided-$n
	node pages=1-300 replicas=2 rounds=3 quit=1
	for ((k = 1; k < n; k++)); do node pages=1-300 replicas=2; done
	agents 0
	same decision
	same settled
	told 0 "settled 3 $(printf '1%.0s' $(seq $n))"
	pages=$(grep -c '^decision 3' "$dir/0.out")
	[ "$pages" = 1 ] || fail "decided $pages times"
	if [ $n = 1 ]; then told 0 "decision 3"; else
		[ "$(grep '^decision 1' "$dir/0.out" | grep -oE ' [0-9]+:[0-9]+,[0-9]+' | wc -l)" = 300 ] || fail "not all pages have two owners"
		[ "$(grep '^decision 3' "$dir/0.out" | tr -d '*')" = "$(sed -n 's/^decision 1/decision 3/p' "$dir/0.out")" ] || fail "they are not remembered"
	fi
done

begin what-one-node-has-is-its-own
node pages=1-5,100 rounds=1 quit=1
node pages=3-7,200
node pages=300
agents 0
[ "$(grep -oE ' [0-9]+:' "$dir/0.out" | tr -d ' :\n')" = 345 ] || fail "pages 3 to 5 are shared, and no others"
[ "$(grep '^decision' "$dir/0.out")" = "$(grep '^decision' "$dir/1.out")" ] || fail "they differ"
told 2 "decision 1"

begin more-than-a-sample
node pages=1-3000 rounds=1 quit=1
node pages=1-3000
node pages=1501-4500
agents 0
[ "$(grep -oE ' [0-9]+:' "$dir/0.out" | wc -l)" = 3000 ] || fail "not all that are popular"
[ "$(grep -oE ' [0-9]+:' "$dir/2.out" | wc -l)" = 1500 ] || fail "not all that are popular"

begin nothing-in-common
node pages=1-3000 rounds=1 quit=1
node pages=10001-13000
agents 0
told 0 "decision 1"
told 1 "decision 1"

begin no-more-than-there-is-memory-for
node pages=1-3000 rounds=1 quit=1 max=2000
node pages=1-3000
agents 0
same decision
[ "$(grep -oE ' [0-9]+:' "$dir/0.out" | wc -l)" = 2000 ] || fail "not the 2000 that there is memory for"

begin every-daemon-wants-one
for k in 0 1 2; do node pages=1-10 rounds=2 quit=1; done
agents 0
told 0 "settled 1 111"

begin what-was-wanted-when-it-began-is-no-other-one
node pages=1-10 rounds=1 collect=1 quit=1 crosses=1
for k in 1 2; do node pages=1-10 crosses=1; done
agents 0
told 0 "settled 1 111"
not_told 0 "decision 2"

begin a-node-that-offers-nothing-in-time-is-not-waited-for
export CKPTFS_AGENT_OFFER_MS=300
node pages=1-10 rounds=2 quit=1
node pages=1-10
node pages=1-10 silent=begin
agents 0
not_told 2 decision
told 0 "settled 2 110"
! grep -qE '[:,]2' "$dir/0.out" || fail "it owns what it has not offered"

begin a-late-offer-gets-an-empty-decision
node pages=1-10 rounds=1 quit=1
node pages=1-10
node pages=1-10 late=800
agents 0
told 0 "settled 1 110"
not_told 2 ':'
unset CKPTFS_AGENT_OFFER_MS

begin nodes-that-have-not-stored-are-reported
node pages=1-10 rounds=1 quit=1
node pages=1-10 stored=28
node pages=1-10
agents 0
same settled
told 0 "settled 1 101"

begin a-silent-node-has-not-stored
export CKPTFS_AGENT_STORED_MS=300
node pages=1-10 rounds=2 quit=1
node pages=1-10 silent=decision
agents 0
told 0 "settled 1 10"
told 0 "settled 2 10"
unset CKPTFS_AGENT_STORED_MS

# --- what is remembered ---

begin a-latecomer-finds-what-was-popular
node pages=1-10/ rounds=2 quit=1
node pages=1-10/
node pages=/5-12
agents 0
[ "$(grep '^decision 1' "$dir/0.out" | tr ' ' '\n' | grep -E '^([5-9]|10):')" = "$(grep '^decision 2' "$dir/2.out" | tr -d '*' | tr ' ' '\n' | grep :)" ] || fail "not what was decided"
[ "$(grep '^decision 2' "$dir/2.out" | grep -oE '\*' | wc -l)" = 6 ] || fail "not all of it is there already"

begin what-an-owner-has-not-stored-is-not-remembered
node pages=1-10/1-10 rounds=2 quit=1 stored=28
node pages=1-10/
node pages=/1-10
agents 0
not_told 2 '0\*'
[ "$(grep '^decision 2' "$dir/2.out" | grep -oE '1\*' | wc -l)" = "$(grep '^decision 1' "$dir/1.out" | grep -oE ':1' | wc -l)" ] || fail "what the other has stored is"

begin fewer-owners-than-are-asked-for-get-company
node pages=1-4// replicas=2 rounds=3 quit=1
node pages=1-4// replicas=2 stored=28
node pages=/1-4/ replicas=2
node pages=//1-4 replicas=2
agents 0
told 2 "decision 2 1:0*,2 2:0*,2 3:0*,2 4:0*,2"
told 3 "decision 3 1:0*,2* 2:0*,2* 3:0*,2* 4:0*,2*"

begin two-at-once-do-not-both-store-it
node pages=1-40// replicas=2 rounds=3 quit=1
node pages=1-40// replicas=2 stored=28
node pages=/1-40/ replicas=2
node pages=/1-40/ replicas=2
agents 0
[ "$(grep '^decision 2' "$dir/2.out")" = "$(grep '^decision 2' "$dir/3.out")" ] || fail "they differ"
[ "$(grep '^decision 2' "$dir/2.out" | grep -oE ':0\*,[23]( |$)' | wc -l)" = 40 ] || fail "not one more for each"

begin on-the-same-host-one-will-do
hosts=2
node pages=1-4/ replicas=2 rounds=2 quit=1
node pages=1-4/ replicas=2 stored=28
node pages=/1-4 replicas=2
agents 0
hosts=
told 2 "decision 2 1:0* 2:0* 3:0* 4:0*"

begin pages-stored-without-a-round-are-found-later
node tells=1-4 pages=20/ rounds=2 quit=1
node pages=/1-4
agents 0
told 1 "decision 2 1:0* 2:0* 3:0* 4:0*"
not_told 0 shared

begin a-node-that-stores-the-same-without-a-round-is-told
node tells=1-1000 shared=1 quit=1
node tells=501-1500
node tells=5000-5100
agents 0
told 0 shared
not_told 2 shared

begin without-homes-a-node-that-stores-without-a-round-is-told-so
options=--no-lookup
node tells=1-10 shared=1 quit=1
node pages=1
agents 0
options=
told 0 shared

begin without-memory-nothing-is-remembered
options="--remember 0"
node pages=1-10/ rounds=2 quit=1
node pages=1-10/
node pages=/1-10
agents 0
options=
told 2 "decision 2"

begin another-world-remembers-nothing
node pages=1-4/ rounds=1 quit=1
node pages=1-4/
agents 0
rm "$dir"/*.sock
nr=0
node pages=5-6/1-4 rounds=2 quit=1
node pages=7-8/
agents 0
told 0 "decision 2"

# --- what one node alone has stored ---

begin a-single-page-is-found-in-the-next-round
node pages=1-10,20// rounds=3 quit=1
node pages=/5-12/
node pages=//1-12
agents 0
told 1 "decision 2 5:0* 6:0* 7:0* 8:0* 9:0* 10:0*"
told 2 "decision 3 1:0* 2:0* 3:0* 4:0* 5:0* 6:0* 7:0* 8:0* 9:0* 10:0* 11:1* 12:1*"
told 0 "pinned 5 6 7 8 9 10"
told 0 "pinned 1 2 3 4 5 6 7 8 9 10"
told 1 "pinned 11 12"
told 1 "settled 2 111"

begin several-nodes-find-it-at-once
node pages=1-10/ rounds=2 quit=1
node pages=/1-10
node pages=/1-10
node pages=/1-10
agents 0
for k in 1 2 3; do told $k "decision 2 1:0* 2:0* 3:0* 4:0* 5:0* 6:0* 7:0* 8:0* 9:0* 10:0*"; done

begin a-second-holder-becomes-an-owner
node pages=1-4// replicas=2 rounds=3 quit=1
node pages=/1-4/ replicas=2
node pages=//1-5 replicas=2
agents 0
told 1 "decision 2 1:0*,1 2:0*,1 3:0*,1 4:0*,1"
told 2 "decision 3 1:0*,1* 2:0*,1* 3:0*,1* 4:0*,1*"
told 2 "settled 3 111"

begin one-more-owner-is-enough
node pages=1-40/ replicas=2 rounds=2 quit=1
node pages=/1-40 replicas=2
node pages=/1-40 replicas=2
node pages=/1-40 replicas=2
agents 0
for k in 2 3; do [ "$(grep '^decision 2' "$dir/1.out")" = "$(grep '^decision 2' "$dir/$k.out")" ] || fail "they differ"; done
[ "$(grep '^decision 2' "$dir/1.out" | tr ' ' '\n' | grep -cE ':0\*,[123]$')" = 40 ] || fail "not one more for each"

begin more-than-one-message
node pages=1-9000/ rounds=2 quit=1
node pages=/1-9000
agents 0
[ "$(grep '^decision 2' "$dir/1.out" | tr ' ' '\n' | grep -c ':0\*$')" = 9000 ] || fail "not all were found"
[ "$(grep -c '^pinned' "$dir/0.out")" = 3 ] || fail "not in three pieces"

begin a-holder-that-does-not-answer
export CKPTFS_AGENT_LOOKUP_MS=600
node pages=1-10/ rounds=2 quit=1 silent=pin
node pages=/1-10
node pages=/20
agents 0
told 1 "decision 2"
told 1 "settled 2 111"
unset CKPTFS_AGENT_LOOKUP_MS

begin a-holder-that-has-lost-it
node pages=1-6/ rounds=2 quit=1 lost=2-5
node pages=/1-6
agents 0
told 0 "pinned 1 6"
told 1 "decision 2 1:0* 6:0*"

begin a-holder-that-has-not-stored-it
node pages=1-6/ rounds=2 quit=1 stored=28
node pages=/1-6
agents 0
not_told 0 pinned
told 1 "decision 2"

begin without-lookups
options=--no-lookup
node pages=1-10/ rounds=2 quit=1
node pages=/1-10
agents 0
options=
not_told 0 pinned
told 1 "decision 2"

begin a-holder-that-is-gone-from-the-world
node pages=1-4/ rounds=1 quit=1
node pages=9
agents 0
rm "$dir"/*.sock
nr=0
node id=2 pages=/1-4 rounds=2 quit=1
node id=3 pages=9
agents 0
told 0 "decision 2"

# --- fetches ---

begin from-the-first-owner
node fetch=7:2.3 quit=1
node holds=7
node holds=7
agents 0
told 0 "chunk 7 ok"
told 1 "served 7"
not_told 2 served

begin from-the-second-owner
node fetch=7:2.3 quit=1
node holds=8
node holds=7
agents 0
told 0 "chunk 7 ok"
told 1 "served"
told 2 "served 7"

begin from-the-second-owner-if-the-first-does-not-answer
export CKPTFS_AGENT_ASK_MS=500
node fetch=7:2.3 quit=1
node holds=7 silent=get
node holds=7
agents 0
told 0 "chunk 7 ok"
told 2 "served 7"
unset CKPTFS_AGENT_ASK_MS

begin from-the-node-that-has-it
node fetch=7:2,9:200,11 quit=1
node
node
node holds=1-20
agents 0
for page in 7 9 11; do told 0 "chunk $page ok"; done

begin in-many-pieces
node fetch=1-2000:2.3,2001-4000:3.2 times=5 quit=1
node holds=1-3000
node holds=1000-4000
agents 0
[ "$(grep -c '^chunk [0-9]* ok' "$dir/0.out")" = 20000 ] || fail "not all chunks came"

# 5 x 16 MB from two nodes: more than there is memory to share, so some go through the sockets; one daemon has none to share.
begin in-shared-memory
node fetch=1-2000:2.3,2001-4000:3.2 times=5 quit=1 memory=1
node holds=1-3000 memory=1
node holds=1000-4000 memory=1
node memory=0
agents 0
[ "$(grep -c '^chunk [0-9]* ok' "$dir/0.out")" = 20000 ] || fail "not all chunks came"
told 0 places
told 1 taken
told 2 taken

begin "at-a-path-that-is-long-$(printf '%0120d' 0)"
node fetch=7:2 quit=1
node holds=7
agents 0
told 0 "chunk 7 ok"

begin a-chunk-that-no-node-has
node fetch=7:2,8:3 quit=1
node holds=8
node
agents 0
told 0 "chunk 7 missing"
told 0 "chunk 8 ok"

begin alone
node fetch=7:2,8:1 quit=1
agents 0
told 0 "chunk 7 missing"
told 0 "chunk 8 missing"

begin while-a-round-waits
export CKPTFS_AGENT_OFFER_MS=3000
node pages=1 rounds=1
node fetch=7:3 quit=1
node holds=7 silent=begin
agents 0
told 1 "chunk 7 ok"
not_told 1 settled
unset CKPTFS_AGENT_OFFER_MS

# --- collecting together ---

for n in 1 2 3 5 8; do
	begin collected-$n
	node pinned=1-40 refers=100-103 collect=2 quit=1
	for ((k = 1; k < n; k++)); do node pinned=100-140 refers=$k,$((k + 20)); done
	agents 0
	same "collected 1"
	told 0 "collected 2 0 $((n == 1 ? 40 : 40 - 2 * (n - 1) + 37 * (n - 1))) "
	for ((k = 1; k < n; k++)); do told $k "unpin 1 0/1 100 101 102 103"; done
done
told 0 "unpin 1 0/1 1 2 3 4 5 6 7 21 22 23 24 25 26 27"

begin a-node-without-a-part-in-it-may-want-it
node pinned=1-5
node refers=3
node collect=1 quit=1
agents 0
told 0 "unpin 1 0/1 3"
told 2 "collected 1 0 4 "

begin in-windows-with-rounds-between
node pinned=1-9 pages=1-10 referred=20000000 rounds=2 collect=1
node refers=3,6 pages=1-10 rounds=30 quit=1
agents 0
told 0 "unpin 1 0/5"
told 0 "unpin 1 1/5 6"
told 0 "unpin 1 3/5 3"
told 1 "settled 30 11"
told 0 "collected 1 0 7 "

begin a-node-that-is-away-keeps-everything
node pinned=1-9 collect=1 quit=1
node
node missing=gone
agents 0
told 0 "collected 1 0 0 gone"
not_told 0 mark
said "node gone is not connected"

begin what-one-cannot-tell-keeps-everything
node pinned=1-9 collect=1 quit=1
node stored=5
agents 0
told 0 "collected 1 5 0 "
not_told 0 unpin

for message in prepare mark; do
	begin without-an-answer-to-$message-everything-stays
	export CKPTFS_AGENT_PREPARE_MS=500 CKPTFS_AGENT_WINDOW_MS=500
	node pinned=1-9 collect=1 pages=1
	node silent=$message pages=1
	node pages=1 rounds=3 quit=1
	agents 0
	told 0 "settled 3 111"
	not_told 0 unpin
	unset CKPTFS_AGENT_PREPARE_MS CKPTFS_AGENT_WINDOW_MS
done

begin a-silent-node-is-not-waited-for
export CKPTFS_AGENT_WINDOW_MS=500
node pinned=1-9 collect=1 quit=1
node silent=mark
agents 0
told 0 "collected 1 110 0 "
unset CKPTFS_AGENT_WINDOW_MS

# --- what daemons want of each other ---

begin wants-are-passed-on
node calls=put:2,replicate:2,drop:2,query:2,put:3,replicate:9 quit=1
node
node stored=28
agents 0
for line in "put 1" replicate drop question; do told 1 "$line"; done
for line in "kept 0" "replicated 0" "dropped 0" "answer 0" "kept 28" "replicated 113"; do told 0 "$line"; done
not_told 2 replicate

# One that is busy with what it is to keep is sent more of that than it can take for now: it still gives what others read, and what waits keeps no node
# from ending.
begin a-node-that-stores-for-others-serves-nevertheless
node calls=put:2*20 fetch=7:2 quit=1
node silent=put holds=7
agents 0
told 0 "chunk 7 ok"
[ "$(grep -c '^unanswered put' "$dir/1.out")" = 16 ] || fail "$(grep -c '^unanswered put' "$dir/1.out") messages are with the daemon"
not_told 0 kept

# However many of them MPI is about to bring, which it does piece by piece over TCP, the daemon gets no more than it has memory for.
begin what-is-to-be-kept-fits-into-memory
export OMPI_MCA_btl=self,tcp
node rounds=50 fetch=7:3 quit=1
node calls=put:3*4 puts=1-1024
node silent=put holds=7
for _ in 1 2 3 4; do node calls=put:3*4 puts=1-1024; done
agents 0
told 0 "chunk 7 ok"
[ "$(grep -c '^unanswered put' "$dir/2.out")" -le 8 ] || fail "$(grep -c '^unanswered put' "$dir/2.out") messages of 4 MiB are with the daemon"
export OMPI_MCA_btl=self,vader

# --- agents that do not belong together ---

begin another-key
node
node key=6
node
agents 1
said "node n1 on h1 (rank 1) does not have the key (cluster=) of node n0 on h0 (rank 0)"
not_told 0 nodes

begin the-same-store
node
node
node id=2
agents 1
said "node n1 on h1 (rank 1) and node n2 on h2 (rank 2) have the same store id"
not_told 0 nodes

for what in hash=2 incompat=64 replicas=3; do
	begin another-${what%=*}
	node
	node "$what"
	agents 1
	said "node n1 on h1 (rank 1) differs from node n0 on h0 (rank 0) in"
	not_told 0 nodes
done

begin no-daemon
node
node die=hello
agents 1
said "h1 (rank 1) has no daemon"
not_told 0 nodes

begin another-agent
node refused=16
node
agents 1
said "0.sock: another agent is connected"
not_told 1 nodes

# --- agents that belong here, and lie ---

begin lies-are-not-accepted
export CKPTFS_AGENT_ASK_MS=500
node fetch=7:3.2,8:2 quit=1
node holds=7-8
others=(: -n 1 "$rogue" 3 n2 5)
agents 0
told 0 "chunk 7 ok"
told 0 "chunk 8 ok"
[ "$(grep -c 'n0]: node n2 (rank 2): ignored an invalid message of ' "$dir/said")" = 8 ] || fail "not all lies were told"
[ "$(grep -cE 'n0]: node n2 \(rank 2\): ignored a malformed message \(type [123]\)' "$dir/said")" = 3 ] || fail "not all lies were told"
[ "$(grep -cE 'n0]: node n2 \(rank 2\): ignored a malformed message \(type (7|9|10)\)' "$dir/said")" = 3 ] || fail "not all lies were told"
[ "$(grep -cE 'n0]: node n2 \(rank 2\): ignored a malformed message \(type (16|18|20)\)' "$dir/said")" = 4 ] || fail "not all lies were told"
unset CKPTFS_AGENT_ASK_MS

# --- whatever dies ---

ends() { # MESSAGE: all daemons that are left see the end
	local i
	for ((i = 0; i < nr; i++)); do
		grep -qE '^(closed|gone|done)$' "$dir/$i.out" || fail "daemon $i does not see the end"
	done
}

for message in begin pin decision settled; do
	begin piner-dies-at-$message
	node pages=1-10/1-5/ rounds=3
	node pages=/1-10/ die=$message
	node pages=1-3/11-20/ die=pin
	node pages=//1-20
	agents 0
	ends
done

for message in nodes begin decision settled get chunks; do
	begin daemon-dies-at-$message
	node pages=1-10 rounds=1 fetch=7:2 die=$message
	node pages=1-10 holds=7 die=$message
	node pages=1-10
	agents 0
	ends
done

begin agent-dies-at-pin
node pages=1-10/ rounds=2 kill=pin
node pages=/1-10
node
agents 1
ends

for message in nodes begin decision settled get; do
	begin agent-dies-at-$message
	node pages=1-10 rounds=1 fetch=7:2
	node pages=1-10 holds=7 kill=$message
	node pages=1-10
	agents 1
	ends
done

for message in nodes begin decision settled get; do
	begin agent-is-told-to-end-at-$message
	node pages=1-10 rounds=1 fetch=7:2
	node pages=1-10 holds=7 term=$message
	node pages=1-10
	agents 0
	ends
done

for message in places taken get; do
	for end in die kill; do # the daemon, its agent
		begin $end-with-memory-at-$message
		node fetch=1-1000:2.3 times=5 memory=1 $end=$message
		node holds=1-1000 memory=1 $end=$message
		node holds=1-1000 memory=1
		agents $([ $end = die ] && echo 0 || echo 1)
		ends
	done
done

for message in prepare mark unpin collected; do
	begin daemon-dies-at-$message
	node pinned=1-9 collect=1
	node refers=1-9 die=$message
	node
	agents 0
	ends
	begin agent-dies-at-$message
	node pinned=1-9 collect=1
	node refers=1-9 kill=$message
	node
	agents 1
	ends
	begin agent-is-told-to-end-at-$message
	node pinned=1-9 collect=1 term=$message
	node refers=1-9
	node
	agents 0
	ends
done

# What one daemon wants of another, on the way there and back, and what it says of its own accord. All of these are alike, and run several at a time.
death() { # die|kill MESSAGE NODE: which receives it, or has just sent it
	local does=("" "" "")
	begin "$1-at-$2-of-node-$3"
	does[$3]=$1=$2
	# shellcheck disable=SC2086
	node pages=1-10 rounds=1 tells=20-30 calls=put:2,replicate:2,drop:2,query:2 ${does[0]}
	# shellcheck disable=SC2086
	node pages=1-10 tells=20-30 ${does[1]}
	node pages=1-10
	agents "$([ "$1" = die ] && echo 0 || echo 1)"
	[ "$1" = kill ] || told "$3" gone
	ends
}
at_once=()
for message in "offer 1" "stored 1" "tell 1" "shared 0" "put 0" "put 1" "kept 0" "replicate 0" "replicate 1" "replicated 0" "drop 0" "drop 1" "dropped 0" "query 0" \
	"question 1" "answer 0"; do
	for end in die kill; do
		# shellcheck disable=SC2086
		death $end $message &
		at_once+=($!)
	done
	[ ${#at_once[@]} = 4 ] || continue
	for pid in "${at_once[@]}"; do wait "$pid"; done
	at_once=()
done

begin agent-stops
export CKPTFS_AGENT_STALL_MS=2000 CKPTFS_AGENT_END_MS=1000
node pages=1-10 rounds=1
node pages=1-10 freeze=begin
node pages=1-10
agents 1
ends

export CKPTFS_AGENT_STALL_MS=4000 CKPTFS_AGENT_END_MS=3000
for message in hello nodes begin; do
	begin garbage-at-$message
	node pages=1-10 rounds=1
	node pages=1-10 garbage=$message
	agents 1
	ends
done

# --- the command itself ---

begin words
if timeout 300 mpirun ${root:-} -n 1 "$agent" --mount /proc >"$dir/said" 2>&1; then fail "accepted"; fi
said "/proc: no ckptfs is mounted there"
rc=0; "$agent" --socket "$dir/none" --status 2>"$dir/said" || rc=$?
[ $rc = 2 ] || fail "no such socket has exit status $rc"
said "none: no such socket"
"$agent" --help | grep -q -- '--mount DIR' || fail "no help"
"$agent" --version | grep -q '^ckptfs-agent [0-9]' || fail "no version"
rc=0; "$agent" 2>/dev/null || rc=$?
[ $rc = 1 ] || fail "wrong use has exit status $rc"

# The store of a mount is found, whatever it is called.
begin mounted
if [ -c /dev/fuse ]; then
	mkdir "$dir/a store" "$dir/a mount"
	"$build/fs/mount.ckptfs" "$dir/a store" "$dir/a mount"
	if timeout 300 mpirun ${root:-} -n 1 "$agent" --mount "$dir/a mount" >"$dir/said" 2>&1; then fail "accepted"; fi
	said "a store/agent.sock: no such socket"
	(cd "$dir/a store" && exec "$daemon" agent.sock id=1 key=5 rounds=1 quit=1 >"$dir/0.out") &
	daemons+=($!)
	for ((n = 0; n < 12000; n++)); do [ ! -S "$dir/a store/agent.sock" ] || break; sleep 0.01; done
	timeout 300 mpirun ${root:-} -n 1 "$agent" --mount "$dir/a mount/." >"$dir/said" 2>&1 || fail "exit status $?"
	told 0 "settled 1 1"
	"$build/tools/umount.ckptfs" "$dir/a mount"
	wait "${daemons[0]}"
fi

begin status
node pages=1-10 rounds=2
node pages=1-10
(
	for ((n = 0; n < 3000; n++)); do
		grep -q '^settled 2' "$dir/1.out" 2>/dev/null && break
		sleep 0.01
	done
	"$agent" --socket "$dir/1.sock" --status >"$dir/status" 2>&1 || true
	kill "${daemons[0]}"
) &
asking=$!
daemons_were=("${daemons[@]}")
daemons=("${daemons_were[1]}")
agents 0
wait $asking || true
daemons=()
grep -q '^Node:     n1, number 1 of 2' "$dir/status" || fail "status: $(cat "$dir/status")"
grep -q '^Rounds:   2, 0 without' "$dir/status" || fail "status: $(cat "$dir/status")"
grep -qE '^Time:     [0-9.]+ s for offers, [0-9.]+ s reducing, [0-9.]+ s storing, [0-9.]+ s waiting for peers$' "$dir/status" ||
	fail "status: $(cat "$dir/status")"
grep -q '^Popular:  10 pages, 0 in the last round' "$dir/status" || fail "status: $(cat "$dir/status")"
grep -q '^Looked up: 10 pages, 0 found; 0 pinned for peers; 0 announced, 0 known' "$dir/status" || fail "status: $(cat "$dir/status")"
grep -q '^Known:    10 pages; 10 offered here needed no round' "$dir/status" || fail "status: $(cat "$dir/status")"
told 1 closed
echo "all is as it should be"
