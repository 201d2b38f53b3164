#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# A node is lost: its processes killed, its store deleted. Every sealed file of it reads back on another node, byte for byte; what the others have sealed, too; and --repair restores the
# redundancy onto a replacement, so that the next loss does no harm either.
. "$(dirname "$0")/nodes.sh"

# With one owner of each page any loss takes some that others only refer to; with two, pages that several nodes have are sent once more by those alone that own them.
replicas=${PROTECT_REPLICAS:-1}
protect=${PROTECT:-partner}
options=protect=$protect,replicas=$replicas

seal() { timeout 300 "$BUILD/tools/ckptfs-seal" "$@" || { r=$?; [ $r != 124 ] || fail "ckptfs-seal $* waits and waits"; return $r; }; }
# epoch NODE NAME [BYTES]: a sealed directory with what all nodes have, what this one alone has, and what is not a plain file; and the same outside
epoch() {
	local dir="$TOP/mnt/$1/$2" plain="$TOP/plain/$1/$2"
	mkdir -p "$plain/sub" "$dir"
	[ -e "$TOP/common.$2" ] || head -c 3M /dev/urandom >"$TOP/common.$2"
	cp "$TOP/common.$2" "$plain/common"
	head -c $((${3:-2000000} + $1)) /dev/urandom >"$plain/own"
	for but in 0 1 2 3; do # what all have but one, which may be the partner of a node that only refers to it
		[ -e "$TOP/but.$but.$2" ] || head -c 200000 /dev/urandom >"$TOP/but.$but.$2"
		[ "$but" = "$1" ] || cp "$TOP/but.$but.$2" "$plain/but.$but"
	done
	head -c 100 /dev/urandom >"$plain/sub/small"
	truncate -s 1M "$plain/hole"
	ln -s own "$plain/link"
	ln "$plain/own" "$plain/sub/again"
	cp -a "$plain/." "$dir"
}
name_of() { # NODE: as the others see it
	"$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/$1" --status | sed -n 's/^Node: *\([^,]*\),.*/\1/p'
}
# same WHERE NODE NAME: what is there is what that node has sealed
same() { diff -r --no-dereference "$TOP/plain/$2/$3" "$1" || fail "$1 is not what node $2 has sealed as $3"; }
# whole NODE: it has all of node LOST, and all of its own
whole() { same "$TOP/mnt/$1/.ckptfs/nodes/$LOST/$2" "$3" "$2"; }
epochs_of() { echo first second; [ "$1" != 3 ] || ls "$TOP/plain/3" | grep '^cut' || true; } # NODE
# Of 16 MB each there may be several: read in turn, each by another node and without another one.
some_of_lost() { # TURN
	local cuts
	mapfile -t cuts < <(epochs_of 3 | tr ' ' '\n' | grep '^cut')
	echo first second
	[ ${#cuts[@]} = 0 ] || echo "${cuts[$1 % ${#cuts[@]}]}"
}
own_is_whole() { for e in $(epochs_of "$1"); do same "$TOP/mnt/$1/$e" "$1" "$e"; done; }
lose() { # NODE: with all that it has
	agents_end
	node_dies "$1"
	rm -r "$TOP/store/$1"
}
is_unprotected() { [ "$("$BUILD/tools/ckptfs-seal" --list --json "$TOP/mnt/$1" | grep -c '"durable":"partner"')" = 0 ]; } # NODE

for i in 0 1 2 3; do
	node_start $i $options
	epoch $i first
done

# Without an agent it is sealed, and not protected; one that comes makes up for it.
seal --wait=replicated "$TOP/mnt/0/first" 2>"$TOP/log/seal" && fail "protected without an agent"
grep -q 'no ckptfs-agent runs' "$TOP/log/seal" || fail "no reason was told"
is_unprotected 0 || fail "protected without an agent, it says"
lags() { [ "$(node_figure "$1" cluster.replication_lag_ns)" -gt 0 ]; } # NODE
eventually 60 "no replica is missing without an agent" lags 0
agents_start
for i in 0 1 2 3; do seal --quiet --wait=replicated "$TOP/mnt/$i/first"; done
! is_unprotected 0 || fail "protected, and it does not say so"
for i in 0 1 2 3; do epoch $i second; done # all of it pends, and is in one round
for i in 0 1 2 3; do seal --quiet "$TOP/mnt/$i/second"; done
for i in 0 1 2 3; do # ckptfs wait returns when another node has it
	timeout 300 "$BUILD/tools/ckptfs" wait "$TOP/mnt/$i/second" >"$TOP/log/wait" 2>&1 || fail "ckptfs wait: exit status $?: $(cat "$TOP/log/wait")"
	[ "$(cat "$TOP/log/wait")" = "$TOP/mnt/$i/second: replicated on another node" ] || fail "ckptfs wait says $(cat "$TOP/log/wait")"
	"$BUILD/tools/ckptfs-seal" --list --json "$TOP/mnt/$i" | grep -o '"path":"[^"]*second"[^}]*"durable":"partner"' >/dev/null || fail "ckptfs wait returned, and the list shows no replica of second"
done
keeps_up() { [ "$(node_figure "$1" cluster.replication_lag_ns)" = 0 ]; }
for i in 0 1 2 3; do eventually 60 "node $i has replicas of all and still lags behind" keeps_up $i; done
for i in 0 1 2 3; do
	NAMES[$i]=$(name_of $i)
	[ -n "${NAMES[$i]}" ] || fail "node $i has no name"
done
# Of the second epoch most is elsewhere for most.
elsewhere=0
for i in 0 1 2 3; do elsewhere=$((elsewhere + $(node_figure $i cluster.remote_bytes))); done
[ $elsewhere -ge $((3 << 20)) ] || fail "nodes share only $elsewhere bytes: this would test little"
sent=$(node_figure 3 cluster.protect_sent_bytes)
echo "node 3 sent $sent bytes"
# Two epochs of 3 MiB in common: of the second one only owners send anything, of the first, which was written without agents, each node may.
[ $replicas = 1 ] || [ "$sent" -lt 9000000 ] || fail "node 3 sent $sent bytes: 4 MB are its own, and it owns half of what was shared"

if [ "$protect" = xor ]; then # of what only one node has, parity costs a third with four nodes, and less than half where strips differ in length
	covered=0 parity=0
	for i in 0 1 2 3; do
		covered=$((covered + $(node_figure $i cluster.stripe_covered_bytes)))
		parity=$((parity + $(node_figure $i cluster.stripe_parity_bytes)))
	done
	echo "$parity bytes of parity cover $covered"
	[ $covered -ge 16000000 ] || fail "only $covered bytes are covered: of 8 files of 2 MB each has one node"
	[ $((parity * 2)) -lt $covered ] || fail "$parity bytes of parity cover $covered"
fi

# An epoch that is not sealed any more is not with the others either.
epoch 1 third
seal --quiet --wait=replicated "$TOP/mnt/1/third"
copies_of() { cat "$TOP"/log/daemon.* | grep -c "directory .* of node $1: replica removed"; } # NAME
seal --quiet --unseal "$TOP/mnt/1/third"
eventually 60 "the copy of what was unsealed stays" copies_of "${NAMES[1]}" >/dev/null

# A process dies while node 3's directory is protected, at whatever step of that: it is once all are there again.
nr_said() { cat "$TOP"/log/daemon.* | grep -c "$1" || true; } # REGEX
packs_of() { du -sb "$TOP/store/$1/packs" | cut -f 1; } # NODE: bytes
cut_by_death_of() { # NODE BYTES MORE COMMAND...: when that prints more than before by more than so many, and bytes are what node 3 alone has
	local victim=$1 bytes=$2 more=$3 before
	shift 3
	epoch 3 cut.$victim $bytes
	before=$("$@")
	seal --quiet "$TOP/mnt/3/cut.$victim"
	until [ $(("$("$@")" - before)) -gt $more ]; do :; done
	node_dies $victim
	agents_end
	node_start $victim $options
	agents_start
	# It says when it failed, as when a node answers late; the mount tries again.
	eventually 120 "cut.$victim is not protected" seal --quiet --wait=replicated "$TOP/mnt/3/cut.$victim"
}
if [ "$protect" = xor ]; then
	victim=0
	for step in sealed 'replica with' 'covered here' 'covered here'; do
		cut_by_death_of $victim 16000000 0 nr_said "$step"
		victim=$((victim + 1))
	done
elif [ $replicas = 1 ]; then # the partner, and then the node itself, when some of its messages have come, and others are on their way
	partner=$(basename "$(grep -l "node ${NAMES[3]}, first: replica with" "$TOP"/log/daemon.*)" | cut -d . -f 2)
	for victim in $partner 3; do cut_by_death_of $victim 16000000 1000000 packs_of $partner; done
fi

lose 3
LOST=${NAMES[3]}
# Without agents it is unknown whether what is on other nodes can be read: that is no reason to begin again.
for i in 0 1 2; do
	r=0
	"$BUILD/tools/ckptfs-restart-path" "$TOP/mnt/$i/.ckptfs/nodes/$LOST" >"$TOP/log/restart" 2>&1 || r=$?
	[ $r != 3 ] || fail "node $i: $(cat "$TOP/log/restart")"
done
agents_start
# Nor is a lost node said to have a replica.
unsure=0
for i in 0 1 2; do seal --quiet --wait=replicated "$TOP/mnt/$i/first" 2>"$TOP/log/seal" || { grep -q "cannot find out whether another node has a replica" "$TOP/log/seal" && unsure=$((unsure + 1)); }; done
[ $unsure -ge 1 ] || fail "all that was protected is said to be, though a node is lost"
for i in 0 1 2; do
	own_is_whole $i
	for e in $(epochs_of 3); do whole $i "$e" 3; done
done
newest=$(epochs_of 3 | xargs -n 1 | tail -n 1)
for i in 0 1 2; do
	view=$TOP/mnt/$i/.ckptfs/nodes/$LOST
	[ "$("$BUILD/tools/ckptfs-restart-path" "$view")" = "$view/$newest" ] || fail "a job that starts again on node $i does not find $newest"
	[ "$("$BUILD/tools/ckptfs-stat" --sealed --json "$view" | grep -o '"durable":"node"' | wc -l)" = "$(epochs_of 3 | wc -w)" ] || fail "node $i does not list what node 3 had"
	"$BUILD/tools/ckptfs-stat" --verify "$view/first" || fail "node $i: what node 3 had does not prove itself"
done
"$BUILD/tools/ckptfs-stat" --sealed "$view"
echo "node 3 is lost, and all of it is there"

# A replacement, with nothing in it. Everything is re-replicated, and the next loss does no harm.
agents_end
node_start 3 $options
agents_start
for i in 0 1 2 3; do timeout 300 "$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/$i" --repair || fail "node $i --repair fails"; done
for i in 0 1 2; do seal --quiet --wait=replicated "$TOP/mnt/$i/first"; done
for i in 0 1 2 3; do
	agents_end
	node_dies $i
	mv "$TOP/store/$i" "$TOP/away"
	agents_start
	for k in "${!DAEMONS[@]}"; do
		LOST=${NAMES[3]}
		for e in $(some_of_lost $((i + k))); do whole "$k" "$e" 3; done
		[ $i = 3 ] || { LOST=${NAMES[$i]}; for e in first second; do whole "$k" $e $i; done; }
		[ "$k" = 3 ] || own_is_whole "$k"
	done
	echo "without node $i all is there"
	agents_end
	mv "$TOP/away" "$TOP/store/$i"
	node_start $i $options
	agents_start
done

# The lost one is forgotten, and no node waits for it any more.
"$BUILD/tools/ckptfs-gc" --delete "$TOP/mnt/0" >"$TOP/log/gc" 2>&1 || true
grep -q "${NAMES[3]}" "$TOP/log/gc" || fail "no node misses node ${NAMES[3]}"
refused() { # WHY DIRECTORY
	! seal --unseal "$2" >"$TOP/log/seal" 2>&1 || fail "$2 can be unsealed, though $1"
	grep -q "$1" "$TOP/log/seal" || fail "$2: no reason was told: $(cat "$TOP/log/seal")"
}
refused "may come back" "$TOP/mnt/0/.ckptfs/nodes/${NAMES[3]}/first"
for i in 0 1 2; do "$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/$i" --forget "${NAMES[3]}" || fail "node $i does not forget"; done
"$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/3" --forget "${NAMES[3]}" || true # which it may never have registered
"$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/0" --forget "${NAMES[1]}" 2>/dev/null && fail "one that takes part was forgotten"
"$BUILD/tools/ckptfs-gc" --delete "$TOP/mnt/0" >"$TOP/log/gc" 2>&1 || fail "ckptfs-gc: exit status $?"
! grep -q "${NAMES[3]}" "$TOP/log/gc" || fail "node ${NAMES[3]} is missed, though it is forgotten"
for i in 0 1 2; do
	own_is_whole $i
	LOST=${NAMES[3]}
	for e in $(epochs_of 3); do whole $i "$e" 3; done
done

# What it had can be removed: by one node, on all.
view=.ckptfs/nodes/${NAMES[3]}
refused "which is connected" "$TOP/mnt/0/.ckptfs/nodes/${NAMES[1]}/first"
refused "not one of its sealed directories" "$TOP/mnt/0/$view/first/sub"
held() { # by all nodes, of that one
	local n=0
	for i in 0 1 2 3; do n=$((n + $(ls "$TOP/mnt/$i/$view" 2>/dev/null | grep -cx "$1" || true))); done
	echo $n
}
[ "$(held first)" = 4 ] || fail "not all nodes show what node 3 had"
stored() { # by all
	local n=0
	for i in 0 1 2 3; do n=$((n + $(node_figure $i stored_bytes))); done
	echo $n
}
before=$(stored)
exec 7<"$TOP/mnt/1/$view/first/own"
seal --quiet --unseal "$TOP/mnt/0/$view/first"
not_there() { [ ! -e "$1" ]; }
eventually 60 "what was removed is shown" not_there "$TOP/mnt/0/$view/first" # the kernel is told behind the answer
is_gone() { [ "$(held "$1")" = 0 ]; }
eventually 60 "what was removed is shown by other nodes" is_gone first
cmp "$TOP/plain/3/first/own" - <&7 || fail "what was open reads otherwise"
exec 7<&- # and then nothing keeps it
wanted=$([ "$protect" = xor ] && echo 1 || echo 4000000) # of a file of 2 MB there were two copies; of stripes some is needed for others
is_freed() {
	"$BUILD/tools/ckptfs-gc" --delete "$TOP/mnt/0" >"$TOP/log/gc" 2>&1 # of all nodes; one may still be at the end of the last
	[ $((before - $(stored))) -ge "$wanted" ]
}
eventually 60 "less than $wanted bytes are freed" is_freed
for i in 0 1 2; do
	own_is_whole $i
	whole $i second 3
done
all_end
for i in 0 1 2 3; do "$BUILD/tools/fsck.ckptfs" "$TOP/store/$i" >"$TOP/log/fsck.$i" 2>&1 || fail "store $i: fsck.ckptfs: exit status $?"; done
echo "all is as it should be"
