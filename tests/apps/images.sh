#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# Core files of programs that run, taken by gdb's gcore into a mount: they are what gdb has written, their memory is known by kind, and of each further one
# what has changed is stored.
. "$(dirname "$0")/../mount/lib.sh"
need_mount
need gcore gdb

mib=8
fs_mount
"$(program worker)" "$WORK/count" $mib 2 0 </dev/null >/dev/null 2>&1 &
pid=$!
await grep -q ' [1-9]' "$WORK/count.0"

core() { # STEP: take one
	gcore -o "$MNT/core" "$pid" >"$WORK/said" 2>&1 || { cat "$WORK/said" >&2; fail "gcore"; }
	mv "$MNT/core.$pid" "$MNT/core.$1"
}

before=$(new)
core 1
first=$(($(new) - before)) begun=$(counted count 0)
for step in 2 3 4; do core $step; done
changed=$((($(counted count 0) - begun) * 4096)) grown=$(($(new) - before - first))
[ "$grown" -le $((changed + 3 * 1024 * 1024)) ] || fail "3 more cores stored $grown bytes, of which $changed had changed"
kill "$pid"
wait "$pid" || true

# gdb reads what it has written: the program was counting
drop_caches 2>/dev/null || true
gdb -batch -ex 'p thread_count[0] > 0 && thread_count[1] > 0' "$(program worker)" "$MNT/core.4" >"$WORK/out" 2>&1
tells '^\$1 = 1'

check() { # EXPRESSION FILE...: true of what is printed: i images by name, each kinds by name; t kinds of all together
	local expression=$1
	shift
	exits 0 "$CKPTFS_BUILD/tools/ckptfs-analyze" --no-compact --chunking page --compress none --images --json "$@"
	"$PYTHON" - "$expression" "$WORK/out" <<-'EOT' || fail "analyze --images $*: not true: $expression"
	import json, os, sys
	j = json.load(open(sys.argv[2]))
	kinds = lambda l: {k["kind"]: k for k in l}
	i = {os.path.basename(x["path"]): kinds(x["kinds"]) for x in j["images"]["images"]}
	t, others = kinds(j["images"]["together"]), j["images"]["other_files"]
	for k in list(i.values()) + [t] * (t != {}):
	    assert k["all"]["original_bytes"] == sum(x["original_bytes"] for n, x in k.items() if n != "all"), k
	    assert all(x["new_bytes"] + x["zero_bytes"] <= x["original_bytes"] + 4096 * 100 for x in k.values()), k
	    assert all(x["new_zstd_bytes"] <= x["new_bytes"] for x in k.values()), k
	if not eval(sys.argv[1]):
	    print(json.dumps(j["images"], indent=1), file=sys.stderr)
	    sys.exit(1)
	EOT
	echo "ok $expression"
}
cd "$MNT"
size=$(stat -c %s core.1)
check "len(i) == 1 and i['core.1']['all']['original_bytes'] == $size" core.1
check "{'heap', 'stack', 'code', 'library', 'anonymous', 'other'} <= set(t)" core.1
check "$mib << 20 <= t['anonymous']['new_bytes'] < ($mib << 20) + 200000" core.1 # the rest of it is zeros
check "t['stack']['original_bytes'] > 2 * 8000000 and t['stack']['redundancy'] > .98" core.1 # of two threads as well, 8 MiB each
# The kernel changes a page of [vvar], which counts as code, and gcore leaves out the program's own on x86-64.
check "t['library']['redundancy'] > .7 and t['code']['redundancy'] > .4 and t['heap']['redundancy'] > .7" core.1 core.2 core.3 core.4
check "t['all']['new_bytes'] < i['core.1']['all']['new_bytes'] + $changed + 1000000" core.1 core.2 core.3 core.4

# Which memory differs.
exits 1 "$CKPTFS_BUILD/tools/ckptfs-diff" --parts --json core.1 core.4
"$PYTHON" - "$WORK/out" <<'EOT' || fail "ckptfs-diff --parts: not as it must be"
import json, sys
d = json.load(open(sys.argv[1]))["differences"][0]
parts = {p["key"]: p for p in d["parts"]}
assert sum(p["bytes"] for p in parts.values()) == d["bytes"] > 0, d["bytes"]
assert all(p["bytes"] <= p["size_bytes"] for p in parts.values()), parts
assert {"stack", "anonymous"} <= set(parts) <= {"", "heap", "stack", "code", "library", "anonymous", "other"}, parts
assert parts["anonymous"]["bytes"] > d["bytes"] / 3, parts # pages that were counted
EOT
exits 1 "$CKPTFS_BUILD/tools/ckptfs-diff" --parts --summary core.1 core.4
tells '^core.1, stack: .* of 16.1 MiB$'
exits 1 "$CKPTFS_BUILD/tools/ckptfs-diff" --summary core.1 core.4
says_not 'stack'

# What is none, or lies.
head -c $((size - 5000)) core.1 >short
head -c 100000 /dev/urandom >noise
check "i == {} and others == 2" short noise
says 'short: treated as plain bytes: it is damaged, or of another format'
exits 0 "$CKPTFS_BUILD/tools/ckptfs-analyze" --no-compact --chunking page --compress none --images core.1 core.2
tells 'Process images: 2'
tells '^  heap .* %'
cd /
fs_umount
echo "ok"
