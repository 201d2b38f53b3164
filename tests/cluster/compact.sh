#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# What one node has coded, steps one against the other, is read and kept by others: chunks that another node has from such a frame come over the network byte for byte, also when
# the step that they are coded against is deleted and collected where it is; and parity over such frames brings everything back when that node is lost.
. "$(dirname "$0")/nodes.sh"

options=protect=xor,replicas=1

# Five steps of a variable that changes in its last bits.
"${PYTHON:-python3}" - "$TOP/steps" <<-'END'
	import array, json, os, random, struct, sys
	random.seed(7)
	weights = [random.gauss(0, 1) for i in range(100000)]
	for step in range(1, 6):
	    os.makedirs(f"{sys.argv[1]}/step-{step}")
	    weights = [w + random.gauss(0, 1e-12) for w in weights]
	    data = array.array("d", weights).tobytes()
	    text = json.dumps({"weights": {"dtype": "F64", "shape": [len(weights)], "data_offsets": [0, len(data)]}}).encode()
	    with open(f"{sys.argv[1]}/step-{step}/rank0.safetensors", "wb") as f:
	        f.write(struct.pack("<Q", len(text)) + text + data)
END
same() { # DIRECTORY STEP...
	local dir=$1 step
	shift
	sync
	echo 3 >/proc/sys/vm/drop_caches || true
	for step; do diff -r "$TOP/steps/step-$step" "$dir/step-$step" || fail "$dir: step $step has other bytes"; done
}
name_of() { # NODE: as the others see it
	"$BUILD/mpi-agent/ckptfs-agent" --mount "$TOP/mnt/$1" --status | sed -n 's/^Node: *\([^,]*\),.*/\1/p'
}
collect() { # MOUNT; other nodes' collection may be under way there
	local code=0
	for _ in $(seq 300); do
		"$BUILD/tools/ckptfs-gc" --delete --move-below 100 --quiet "$1" >/dev/null 2>"$TOP/log/gc" && return
		code=$?
		grep -q "running already" "$TOP/log/gc" || break
		sleep 0.1
	done
	cat "$TOP/log/gc"
	fail "ckptfs-gc $1: exit status $code"
}

for i in 0 1 2; do node_start $i $options; done
agents_start
cp -r "$TOP/steps" "$TOP/mnt/0/"
sync "$TOP"/mnt/0/steps/*/*
"$BUILD/tools/ckptfs-compact" --budget 1000 --json "$TOP/mnt/0/steps" >"$TOP/log/compact" || fail "ckptfs-compact: exit status $?"
grep -q -- '-base' "$TOP/log/compact" || fail "steps are coded by themselves: $(cat "$TOP/log/compact")"

# Another node has the same files: most of their chunks are node 0's.
cp -r "$TOP/steps" "$TOP/mnt/1/"
sync "$TOP"/mnt/1/steps/*/*
elsewhere=$(node_figure 1 cluster.remote_bytes)
echo "node 1 has $elsewhere bytes elsewhere"
[ "$elsewhere" -ge 2000000 ] || fail "nodes share only $elsewhere bytes of 4000000: this would test little"
same "$TOP/mnt/0/steps" 1 2 3 4 5
same "$TOP/mnt/1/steps" 1 2 3 4 5

# The newest one, which the others are coded against, goes where it was coded, and then all but one.
rm -r "$TOP/mnt/0/steps/step-5"
collect "$TOP/mnt/0"
same "$TOP/mnt/0/steps" 1 2 3 4
same "$TOP/mnt/1/steps" 1 2 3 4 5
rm -r "$TOP/mnt/1/steps/step-4"
rm -r "$TOP"/mnt/0/steps/step-[34]
collect "$TOP/mnt/1"
collect "$TOP/mnt/0"
same "$TOP/mnt/0/steps" 1 2
same "$TOP/mnt/1/steps" 1 2 3 5
echo "what others are coded against was deleted, and all is there"

# Both are sealed, and the node that has coded them is lost.
for i in 0 1; do "$BUILD/tools/ckptfs-seal" --quiet --wait=replicated "$TOP/mnt/$i/steps"; done
lost=$(name_of 0)
[ -n "$lost" ] || fail "node 0 has no name"
agents_end
node_dies 0
rm -r "$TOP/store/0"
agents_start
for i in 1 2; do same "$TOP/mnt/$i/.ckptfs/nodes/$lost/steps" 1 2; done
same "$TOP/mnt/1/steps" 1 2 3 5
all_end
for i in 1 2; do "$BUILD/tools/fsck.ckptfs" "$TOP/store/$i" >"$TOP/log/fsck.$i" 2>&1 || fail "store $i: fsck.ckptfs: exit status $?"; done
echo "all is as it should be"
