#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Real programs on 4 nodes with 2 ranks each, each node writing into its own mount: when a checkpoint is complete it is sealed, everything is killed, and the store of one node
# deleted. What goes on from it with the 3 nodes that are left comes to the same result as a run that was not disturbed.
. "$(dirname "$0")/nodes.sh"
nodes="0 1 2 3"
ranks=8
lost=3

all_start() {
	local i
	for i in $nodes; do node_start "$i" protect=partner; done
	agents_start
}

# shared WHICH: nodes refer to what others store, or this tests nothing
shared() {
	local i sum=0
	for i in $nodes; do sum=$((sum + $(node_figure "$i" cluster.remote_bytes))); done
	[ "$sum" -gt 0 ] || fail "nodes share nothing"
	echo "$1: $sum bytes are stored elsewhere"
}

# seal DIRECTORY: of each node; another one has it, too, when this returns. NAMES are those of the nodes
seal() {
	local i
	for i in $nodes; do
		"$BUILD/tools/ckptfs-seal" --quiet --wait=replicated "$TOP/mnt/$i/$1" || fail "node $i: $1 cannot be sealed"
		NAMES[$i]=$("$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/$i" --status | sed -n 's/^Node: *\([^,]*\),.*/\1/p')
		[ -n "${NAMES[$i]}" ] || fail "node $i has no name"
	done
}
# disaster: everything is killed, and one node does not come back
disaster() {
	all_die
	rm -r "$TOP/store/$lost"
	nodes=${nodes%" $lost"}
}

# --- the stencil ---

stencil="$BUILD/tests/cluster/stencil --width 8 --height 4 --edge 64 --levels 4 --steps 40 --every 10"
mkdir "$TOP/plain"
mpirun -n $ranks $stencil --dir "$TOP/plain" >"$TOP/log/undisturbed" 2>&1 || fail "undisturbed: exit status $?"

all_start
for i in $nodes; do mkdir "$TOP/mnt/$i/first"; done
program_start 2 "$stencil --dir '$TOP'/mnt/\$NODE/first --hold 20"
eventually 120 "no checkpoint" said '^checkpoint 20'
shared stencil
seal first
disaster
all_start
for i in $nodes; do mkdir "$TOP/mnt/$i/second"; done
# What the others have sealed is there as it was; what the lost one has, another node shows.
mnt="'$TOP'/mnt/\$NODE"
program_run 2 "$stencil --dir $mnt/second --dir $mnt/first --dir $mnt/.ckptfs/nodes/${NAMES[$lost]}/first --restart"
said '^restarted from 20 with 6 ranks' || fail "it has not gone on from step 20"
[ "$(tail -n 1 "$TOP/log/program")" = "$(tail -n 1 "$TOP/log/undisturbed")" ] ||
	fail "the results differ: $(tail -n 1 "$TOP/log/program"); undisturbed: $(tail -n 1 "$TOP/log/undisturbed")"
tail -n 1 "$TOP/log/program"
# On 3 ranks of each node, from what 2 have left.
program_run 3 "$stencil --dir $mnt/second --restart --steps 50"
said '^restarted from 40 with 9 ranks' || fail "it has not gone on from step 40"
mpirun -n $ranks $stencil --dir "$TOP/plain" --restart --steps 50 >"$TOP/log/undisturbed" 2>&1 || fail "undisturbed: exit status $?"
[ "$(tail -n 1 "$TOP/log/program")" = "$(tail -n 1 "$TOP/log/undisturbed")" ] || fail "the results differ on 9 ranks"
all_end
rm -r "$TOP/store" "$TOP/plain"
mkdir "$TOP/store"
nodes="0 1 2 3"

# --- LAMMPS ---

command -v lmp >/dev/null || fail "lmp is not installed, which .ci/install does (lammps)"

# A liquid on 8 ranks, which write files of their own in the mount of their node. Digits that a restart may change are not shown: atoms are in another order
# then, and sums of forces with them.
lammps() { # FILE COMMAND...: input that begins with these
	local file=$1
	shift
	printf '%s\n' "$@" 'pair_style lj/cut 2.5' 'pair_coeff 1 1 1.0 1.0 2.5' 'neighbor 0.3 bin' 'neigh_modify every 5 delay 0 check no' \
		'fix move all nve' 'thermo 10' 'thermo_modify flush yes norm no format float %.9g' 'dump all all atom 10 dump.*.%' 'restart 20 restart.*.%' \
		'run 60 upto' >"$file"
}
lammps "$TOP/in.first" 'units lj' 'atom_style atomic' 'lattice fcc 0.8442' 'region box block 0 20 0 20 0 20' 'create_box 1 box' 'create_atoms 1 box' \
	'mass 1 1.0' 'velocity all create 3.0 87287 loop geom'
lammps "$TOP/in.again" 'read_restart restart.20.%'
lmp() { echo "env -C '$1'/\$NODE/$4 lmp -in '$TOP/in.$2' -log '$TOP/thermo.$3' -screen none"; } # DIRECTORY INPUT NAME BELOW-THE-NODE'S
thermo() { awk '$1 == "Step" { on = 1; next } /^Loop/ { on = 0 } on && $1 >= 20' "$TOP/thermo.$1"; } # NAME: from step 20 on
step_is_past() { [ "$(awk -v step="$1" '$1 == step' "$TOP/thermo.killed" | wc -l)" -gt 0 ]; } # STEP

for i in $nodes; do mkdir -p "$TOP/plain/$i/first"; done
for i in $nodes; do DAEMONS[$i]=; done # names of nodes, without any
program_run 2 "$(lmp "$TOP/plain" first undisturbed first)"
DAEMONS=()
all_start
for i in $nodes; do mkdir "$TOP/mnt/$i/first"; done
program_start 2 "$(lmp "$TOP/mnt" first killed first)"
eventually 120 "no restart files" step_is_past 30
kill_mpirun "$PROGRAM" # else its files are open
PROGRAM=
seal first
for i in $nodes; do FILES[$i]=$(cd "$TOP/mnt/$i/first" && echo restart.20.*); done
disaster
all_start
# Any rank may read any file of it: each node has names for all, wherever they are.
for k in $nodes; do
	mkdir "$TOP/mnt/$k/second"
	for i in "${!FILES[@]}"; do
		for f in ${FILES[$i]}; do
			if [ "$i" = "$k" ]; then ln -s "../first/$f" "$TOP/mnt/$k/second"; else ln -s "../.ckptfs/nodes/${NAMES[$i]}/first/$f" "$TOP/mnt/$k/second"; fi
		done
	done
	[ "$(cat "$TOP/mnt/$k/second"/restart.20.* | cksum)" = "${all:=$(cat "$TOP/mnt/$k/second"/restart.20.* | cksum)}" ] || fail "node $k sees something else than others do"
done
program_run 2 "$(lmp "$TOP/mnt" again again second)"
[ "$(thermo undisturbed | wc -l)" = 5 ] || fail "LAMMPS: no output"
[ "$(thermo undisturbed)" = "$(thermo again)" ] || fail "LAMMPS: other results: $(thermo again); undisturbed: $(thermo undisturbed)"
echo "LAMMPS: $(thermo again | tail -n 1)"
all_end
