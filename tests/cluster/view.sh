#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Three mounts and their agents over real MPI: what nodes 0 and 1 seal is read on node 2, byte by byte and with all attributes, by one node, by another, and after its node is lost;
# what is not sealed is not there, nothing can be changed, and nothing is wrong when it is unsealed, deleted and collected, or its node dies, meanwhile.
. "$(dirname "$0")/nodes.sh"
command -v setfattr >/dev/null || skip "no setfattr"

is_gone() { [ ! -e "/proc/$1" ]; }
figure() { node_figure "$1" "cluster.$2"; } # NODE NAME
is_alone() { [ "$(figure "$1" agent)" = false ]; }
mount_node() { node_start "$1" replicas=2; } # NODE
end_agents() { # NODE...: which are there
	local i
	agents_end
	for i; do eventually 60 "daemon $i has an agent" is_alone "$i"; done
}
unmount() { # NODE
	umount "$TOP/mnt/$1"
	wait "${DAEMONS[$1]}" || fail "daemon $1: exit status $?"
	unset "DAEMONS[$1]"
	"$BUILD/tools/fsck.ckptfs" "$TOP/store/$1" >"$TOP/fsck.log" 2>&1 || fail "store $1: fsck.ckptfs exit status $?"
}
name_of() { # NODE: how others know it
	find "$TOP/mnt/$1/.ckptfs/nodes/" -mindepth 1 -maxdepth 1 -type l -printf '%f\n'
}
# What stat(2), readlink(2) and getfattr(1) tell of a directory, and all bytes. Times of reading the kernel remembers as they were before it was sealed.
describe() { # DIRECTORY
	(cd "$1" && find . -printf '%p %y %m %U %G %s %n %T@ %l\n' | sort &&
		find . -type f -print0 | sort -z | xargs -0 sha256sum &&
		getfattr -R -P -d -m '^user\.' . 2>/dev/null)
}
same() { # NODE PATH, READER...
	local node=$1 path=$2 i
	shift 2
	for i; do
		describe "$TOP/mnt/$i/.ckptfs/nodes/${name[$node]}/$path" >"$TOP/there" || fail "$path of node $node cannot be read on node $i"
		cmp "$TOP/was.$node.${path//\//_}" "$TOP/there" || { diff "$TOP/was.$node.${path//\//_}" "$TOP/there" | head -20; fail "$path of node $node is not the same on node $i"; }
	done
}
make_tree() { # NODE PATH: files with holes, of odd sizes and in common with other nodes, links, attributes
	local d=$TOP/mnt/$1/$2
	mkdir -p "$d/sub/deep"
	head -c 3000001 /dev/urandom >"$d/own"
	cp "$TOP/common" "$d/sub/common"
	truncate -s 20M "$d/sparse"
	dd if="$TOP/common" of="$d/sparse" bs=1000 count=700 seek=9000 conv=notrunc status=none
	: >"$d/empty"
	ln "$d/own" "$d/sub/deep/twin"
	ln -s ../own "$d/sub/link"
	mkfifo "$d/sub/fifo"
	setfattr -n user.rank -v "$1" "$d/own" "$d/sub"
	chmod 2750 "$d/sub"
	chmod 0400 "$d/sub/common"
	touch -d '2001-02-03 04:05:06.789' "$d/sub/common" "$d/empty"
	cp -p "$d/own" "$TOP/mnt/$1/not-sealed"
}
seal() { # NODE PATH
	"$BUILD/tools/ckptfs-seal" "$TOP/mnt/$1/$2" >/dev/null || fail "$2 of node $1 cannot be sealed"
	describe "$TOP/mnt/$1/$2" >"$TOP/was.$1.${2//\//_}"
}
refused() { # WHAT COMMAND...: because nothing changes here
	local what=$1
	shift
	! "$@" 2>"$TOP/said" || fail "$what: can be done"
	grep -q "Read-only file system" "$TOP/said" || fail "$what: $(cat "$TOP/said")"
}

head -c 4M /dev/urandom >"$TOP/common"
for i in 0 1 2; do mount_node $i; done
agents_start 0 1 2
declare -A name=()
for i in 0 1 2; do name[$i]=$(name_of $i); done
nodes2=$TOP/mnt/2/.ckptfs/nodes

echo "two nodes seal, and all read"
make_tree 0 job/step-1
make_tree 1 job/step-1
make_tree 1 job/step-2
for s in "0 job/step-1" "1 job/step-1" "1 job/step-2"; do seal $s; done
same 0 job/step-1 2 1
same 1 job/step-1 2 0
same 1 job/step-2 2
[ "$(ls "$nodes2" | sort)" = "$(printf '%s\n' "${name[@]}" | sort)" ] || fail "nodes: $(ls "$nodes2")"
[ "$(ls "$nodes2/${name[1]}")" = job ] || fail "what is not sealed: $(ls "$nodes2/${name[1]}")"
[ "$(ls "$nodes2/${name[1]}/job")" = $'step-1\nstep-2' ] || fail "in job: $(ls "$nodes2/${name[1]}/job")"
[ "$(readlink -f "$nodes2/${name[2]}")" = "$TOP/mnt/2" ] || fail "the node itself is $(readlink -f "$nodes2/${name[2]}")"
[ ! -e "$nodes2/${name[0]}/not-sealed" ] || fail "not-sealed is there"
[ ! -e "$nodes2/nobody" ] || fail "there is a node nobody"
cmp "$nodes2/${name[0]}/job/step-1/sub/common" "$TOP/common"
/usr/bin/python3 - "$nodes2/${name[0]}/job/step-1/own" "$TOP/mnt/0/job/step-1/own" <<'END'
import mmap, sys
a, b = (open(p, "rb") for p in sys.argv[1:])
assert mmap.mmap(a.fileno(), 0, prot=mmap.PROT_READ)[:] == b.read()
END

echo "nothing changes, and nothing shows where no reader looks for it"
step=$nodes2/${name[0]}/job/step-1
refused "a new file" touch "$step/new"
refused "removing" rm -f "$step/own"
refused "writing" sh -c ": >'$step/own'"
refused "chmod" chmod 700 "$step"
refused "rename" mv "$step/own" "$step/other"
refused "setfattr" setfattr -n user.a -v b "$step/own"
refused "mkdir among nodes" mkdir "$nodes2/mine"
refused "mkdir among paths" mkdir "$nodes2/${name[0]}/job/mine"
refused "removing the view" rmdir "$TOP/mnt/2/.ckptfs"
refused "moving onto the view" /usr/bin/python3 -c "import os, sys; os.mkdir(sys.argv[1] + '/d'); os.rename(sys.argv[1] + '/d', sys.argv[1] + '/.ckptfs')" "$TOP/mnt/2"
rmdir "$TOP/mnt/2/d"
[ -z "$(ls -A "$TOP/mnt/2")" ] || fail "the root has $(ls -A "$TOP/mnt/2")"
[ "$(find "$TOP/mnt/2" | wc -l)" = 1 ] || fail "find comes to $(find "$TOP/mnt/2")"
echo mine >"$TOP/mnt/2/file"
rm -rf "$TOP/mnt/2"/*
same 0 job/step-1 2

echo "a copy of another node's file has its bytes, also when they go there"
copied() { # FILE COMMAND...: node 2 stores its 3000001 bytes, but for pages that it happens to have
	local before file=$1
	shift
	before=$(node_figure 2 written_by_cause.new_bytes)
	"$@" "$file" "$TOP/mnt/2/mine"
	sync "$TOP/mnt/2/mine"
	cmp "$file" "$TOP/mnt/2/mine" || fail "$*: not the same"
	[ $(($(node_figure 2 written_by_cause.new_bytes) - before)) -ge 2900000 ] || fail "$*: only refers to what another node has"
}
copied "$step/own" cp # copy_file_range(2)
copied "$nodes2/${name[1]}/job/step-2/own" sh -c 'cat "$0" >"$1"'
rm "$TOP/mnt/2/mine"

echo "what lies above it is closed, and opened again: so is the copy that was made before"
if [ "$(id -u)" = 0 ]; then
	chmod 755 "$TOP" "$TOP/mnt"
	reads() { setpriv --reuid 65534 --regid 65534 --clear-groups cat "$step/empty" 2>/dev/null; } # as nobody
	is_refused() { ! reads; }
	eventually 60 "nobody cannot read what all may" reads
	chmod 700 "$TOP/mnt/0/job"
	eventually 60 "nobody reads what is unreachable on its node" is_refused
	chmod 755 "$TOP/mnt/0/job"
	eventually 60 "nobody cannot read what all may again" reads
fi
same 0 job/step-1 2

echo "it is unsealed, changed and sealed again"
f=$step/own
exec 7<"$f"
cp "$f" "$TOP/before"
"$BUILD/tools/ckptfs-seal" --unseal "$TOP/mnt/0/job/step-1" >/dev/null
echo more >>"$TOP/mnt/0/job/step-1/own"
is_not_there() { [ ! -e "$1" ]; }
eventually 60 "what is not sealed any more" is_not_there "$step"
cmp "$TOP/before" - <&7 || fail "what was open reads otherwise"
exec 7<&-
seal 0 job/step-1
cp "$TOP/mnt/0/job/step-1/own" "$TOP/m0.own"
is_there() { [ -e "$1" ]; }
eventually 60 "what is sealed again" is_there "$step"
same 0 job/step-1 2

echo "it is deleted and collected while it is read: what was open reads on, and then it is gone"
f=$nodes2/${name[1]}/job/step-2/own
cp "$f" "$TOP/before"
echo 3 2>/dev/null >/proc/sys/vm/drop_caches || true # else the kernel may have it all
exec 7<"$f"
"$BUILD/tools/ckptfs-seal" --unseal "$TOP/mnt/1/job/step-2" >/dev/null
rm -rf "$TOP/mnt/1/job/step-2" "$TOP/mnt/1/not-sealed" # which had the same bytes
"$BUILD/tools/ckptfs-gc" --delete "$TOP/mnt/1" >"$TOP/gc.log"
cmp "$TOP/before" - <&7 || fail "what was open and is deleted there cannot be read: $(cat "$TOP/gc.log")"
eventually 60 "what was deleted" is_not_there "$f"
exec 7<&-

same 0 job/step-1 2 1
same 1 job/step-1 2
echo "fewer nodes, and in another order: what they have is right, and what only the lost one has is an error"
end_agents 0 1 2
for i in 0 1 2; do unmount $i; done
for i in 2 1; do mount_node $i; done
agents_start 2 1
same 1 job/step-1 2
lost() { # READER: names and attributes are as they were, and so is what others have
	local d=$TOP/mnt/$1/.ckptfs/nodes/${name[0]}/job/step-1
	diff <(head -n "$names" "$TOP/was.0.job_step-1") <(cd "$d" && find . -printf '%p %y %m %U %G %s %n %T@ %l\n' | sort) ||
		fail "names of a lost node on node $1"
	cmp "$d/sub/common" "$TOP/common" || fail "what others have of a lost node on node $1"
	! timeout 60 cat "$d/own" >"$TOP/after" 2>"$TOP/said" || fail "node $1: bytes out of nowhere"
	grep -q "Input/output error" "$TOP/said" || fail "node $1: $(cat "$TOP/said")"
}
names=$(grep -c '^\.[^ ]* [a-z] ' "$TOP/was.0.job_step-1")
lost 2
lost 1

echo "a new node gets the catalog of a lost one from another"
end_agents 1 2
unmount 2
mount_node 3
agents_start 1 3
[ "$(ls "$TOP/mnt/3/.ckptfs/nodes" | wc -l)" = 3 ] || fail "nodes: $(ls "$TOP/mnt/3/.ckptfs/nodes")"
lost 3
same 1 job/step-1 3

echo "more nodes, and the lost one is there again"
end_agents 1 3
mount_node 0
mount_node 2
agents_start 3 0 2 1
same 0 job/step-1 3 2 1
same 1 job/step-1 0
[ "$(figure 3 replicas_cached)" = 2 ] || fail "node 3 has $(figure 3 replicas_cached) copies"

echo "a collection drops replicas that no reader looks at any more"
end_agents 0 1 2 3
unmount 3
mount_node 3
agents_start 0 1 2 3
"$BUILD/tools/ckptfs-gc" --delete "$TOP/mnt/3" >/dev/null
[ "$(figure 3 replicas_cached)" = 0 ] || fail "node 3 has $(figure 3 replicas_cached) copies"
same 0 job/step-1 3

echo "what its node has deleted goes though a reader has looked at it"
mkdir "$TOP/mnt/0/brief"
head -c 8M /dev/urandom >"$TOP/mnt/0/brief/own"
seal 0 brief
same 0 brief 3
exec 9<"$TOP/mnt/3/.ckptfs/nodes/${name[0]}/brief"
"$BUILD/tools/ckptfs-seal" --quiet --unseal "$TOP/mnt/0/brief"
rm -r "$TOP/mnt/0/brief"
before=$(node_figure 0 stored_bytes)
is_freed() {
	for i in 3 0; do "$BUILD/tools/ckptfs-gc" --quiet --delete "$TOP/mnt/$i" >/dev/null; done
	[ "$(node_figure 0 stored_bytes)" -le $((before - (8 << 20))) ]
}
eventually 1 "what no node has any more is kept, as node 3 has looked at it" is_freed
exec 9<&-
same 0 job/step-1 3

echo "its node dies while it is read"
end_agents 0 1 2 3
for i in 1 2 3; do unmount $i; mount_node $i; done
agents_start 0 1 2 3
d=$TOP/mnt/2/.ckptfs/nodes/${name[0]}/job/step-1
(
	while dd if="$d/own" of="$TOP/after" bs=64k iflag=direct status=none 2>/dev/null; do # around the kernel's cache
		cmp "$TOP/m0.own" "$TOP/after" || echo "wrong bytes" >"$TOP/wrong"
	done
) &
reader=$!
has_read() { cmp -s "$TOP/m0.own" "$TOP/after"; }
: >"$TOP/after"
eventually 60 "the reader" has_read
node_dies 0
eventually 90 "a reader of a node that has died" is_gone $reader
agents_end
[ ! -e "$TOP/wrong" ] || fail "wrong bytes while its node died"
cmp -n "$(stat -c %s "$TOP/after")" "$TOP/m0.own" "$TOP/after" || fail "wrong bytes of a node that has died"

for i in 1 2 3; do unmount $i; done
mount_node 0
unmount 0
echo "all is as it should be"
