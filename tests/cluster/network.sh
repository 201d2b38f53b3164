#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Three nodes in network namespaces, hosts of their own to MPI, whose agents talk over TCP. The network of one of them stalls: for a while, and for good. A write then comes to an end, what was
# synced is there, byte for byte, and agents that are started anew go on.
. "$(dirname "$0")/nodes.sh"
[ "$(id -u)" = 0 ] || skip "only root has network namespaces"
command -v ip >/dev/null || skip "no ip(8)"

nr=3
net=ck$RANDOM # names of interfaces have 15 characters at most
net_down() {
	local i
	for ((i = 0; i < nr; i++)); do
		ip netns del "$net.$i"
		ip link del "$net.$i"
	done
	ip link del "$net"
} 2>/dev/null
net_cleanup() {
	local code=$?
	set +e
	net_down
	(exit $code)
	nodes_cleanup
}
trap net_cleanup EXIT
ip link add "$net" type bridge 2>/dev/null || skip "no bridges"
ip link set "$net" up
for ((i = 0; i < nr; i++)); do
	ip netns add "$net.$i" || skip "no network namespaces"
	ip link add "$net.$i" type veth peer name eth0 netns "$net.$i"
	ip link set "$net.$i" master "$net" up
	ip -n "$net.$i" addr add "10.213.77.$((i + 1))/24" dev eth0
	ip -n "$net.$i" link set eth0 up
	ip -n "$net.$i" link set lo up
done
stall() { ip link set "$net.$1" nomaster; } # NODE: nothing arrives, and no node is told
unstall() { ip link set "$net.$1" master "$net"; }

# What mpirun starts another host's processes with: HOST COMMAND...
cat >"$TOP/on-host" <<'SH'
#!/bin/sh
node=$((${1##*.} - 1))
shift
exec nsenter --net="/run/netns/$NET.$node" unshare -u sh -c 'hostname "$1"; eval "exec $0"' "$*" "node$node"
SH
chmod +x "$TOP/on-host"
export NET=$net
export OMPI_MCA_orte_leave_session_attached=1 # so that processes on other hosts die with mpirun
export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_plm_rsh_agent=$TOP/on-host
unset OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_rmaps_base_oversubscribe
agents_start() { # all nodes
	local i hosts=
	for ((i = 0; i < nr; i++)); do hosts=$hosts,10.213.77.$((i + 1)):1; done
	# shellcheck disable=SC2016
	"$TOP/on-host" 10.213.77.1 mpirun -x BUILD -x TOP -x CKPTFS_AGENT_ASK_MS -x CKPTFS_AGENT_STALL_MS -x CKPTFS_AGENT_END_MS -H "${hosts#,}" -n $nr \
		sh -c "'exec \"\$BUILD/tests/cluster/ckptfs-agent\" --mount \"\$TOP/mnt/\$OMPI_COMM_WORLD_RANK\"'" >>"$TOP/log/agents" 2>&1 &
	AGENTS=$!
	for ((i = 0; i < nr; i++)); do eventually 60 "node $i has no agent" has_agent "$i" $nr; done
}

write_all() { # NAME: the same on all nodes, at once
	local i pids=()
	head -c 8M /dev/urandom >"$TOP/$1"
	for ((i = 0; i < nr; i++)); do
		timeout 120 dd if="$TOP/$1" of="$TOP/mnt/$i/$1" bs=1M conv=fsync status=none &
		pids+=($!)
	done
	for i in "${pids[@]}"; do wait "$i" || fail "$1 cannot be written: exit status $?"; done
}
compare() { # NODE NAME...
	local node=$1 name
	shift
	for name; do timeout 120 cmp "$TOP/$name" "$TOP/mnt/$node/$name" || fail "node $node: $name is not as it was written"; done
}
world_end() {
	agents_end
	eventually 60 "the agents do not end" world_ended
}
world_ended() { has_agent 0 0 && has_agent 1 0 && has_agent 2 0; }
restart() { # with nothing cached
	local i
	for ((i = 0; i < nr; i++)); do
		umount "$TOP/mnt/$i"
		wait "${DAEMONS[$i]}" || fail "the daemon of node $i: exit status $?"
		node_start "$i" replicas=2
	done
	agents_start
}

export CKPTFS_AGENT_ASK_MS=500 CKPTFS_AGENT_STALL_MS=60000 CKPTFS_AGENT_END_MS=1000
for ((i = 0; i < nr; i++)); do node_start $i replicas=2; done
agents_start
write_all a
sum=$(($(node_figure 0 stored_bytes) + $(node_figure 1 stored_bytes) + $(node_figure 2 stored_bytes)))
echo "$sum bytes are stored of 3 x 8 MiB"
[ $sum -ge $((16 << 20)) ] || fail "the nodes are not on hosts of their own"
[ $sum -lt $((20 << 20)) ] || fail "the nodes share nothing"

echo "a network that stalls for a while: what others have is had from those that answer, and who writes waits or stores it"
world_end
restart
stall 1
compare 0 a # node 1 has two thirds of it, as has each of the others
compare 2 a
write_all b &
writer=$!
sleep 2
unstall 1
wait "$writer"
for ((i = 0; i < nr; i++)); do compare $i a b; done
world_end

echo "one that stalls for good: agents end, and each node is alone"
export CKPTFS_AGENT_STALL_MS=5000
agents_start
stall 1
write_all c
eventually 60 "the agents do not end" world_ended
kill_mpirun "$AGENTS" # which waits for those that it cannot reach
AGENTS=
unstall 1
restart
write_all d
for ((i = 0; i < nr; i++)); do compare $i a b c d; done
all_end
for ((i = 0; i < nr; i++)); do "$BUILD/tools/fsck.ckptfs" -n "$TOP/store/$i" >"$TOP/log/fsck" 2>&1 || fail "store $i is not sound"; done
echo "all is as it should be"
