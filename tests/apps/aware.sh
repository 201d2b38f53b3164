#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# ckptfs-analyze --variables: which variables it finds in files of every format, that all bytes are accounted for, that the schemes are what they
# are said to be, and what becomes of files that lie. The figures are those of ckptfs-compact: of chunks, each counted once.
. "$(dirname "$0")/../mount/lib.sh"

analyze=$CKPTFS_BUILD/tools/ckptfs-analyze
data=$WORK/data
mkdir "$data"
cd "$data"

# check EXPRESSION [ARGUMENT...]: true of what is printed: a all that compacting did, v variables by key, new the bytes that were stored before, less those
# without compacting
check() {
	local expression=$1
	shift
	exits "${code:-0}" "$analyze" --chunking page --compress none --variables --budget 100000 --json "$@" # whatever the time: the smallest
	"$PYTHON" - "$expression" "$WORK/out" <<-'EOT' || fail "analyze --variables $*: not true: $expression"
	import json, sys
	j = json.load(open(sys.argv[2]))
	a, store = j["compacted"]["report"], j["measured"]["stores"][0]
	v = {x["key"]: x for x in a["variables"]}
	assert a["bytes"] == sum(x["bytes"] for x in v.values()) == store["new_bytes"], (a["bytes"], store)
	assert a["after_bytes"] == sum(x["after_bytes"] for x in v.values())
	near = lambda x, bytes: abs(v[x]["bytes"] - bytes) <= 2 * 4096 # a chunk at either end is the variable's, or its neighbour's
	if not eval(sys.argv[1]):
	    print(json.dumps(a, indent=1), file=sys.stderr)
	    sys.exit(1)
	EOT
	echo "ok $expression"
}

# Variables of less than 128 KiB get no frame of their own.
"$PYTHON" - "$HERE/../apps" <<'EOT'
import math, random, struct, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import typed_files as t
N = 200000
field = [300 + 20 * math.sin(i / 70) for i in range(N)]
f8, f4 = struct.pack(f"<{N}d", *field), struct.pack(f"<{N}f", *field)
open("a.npy", "wb").write(t.npy("<f8", "(400, 500)", f8))
open("b.npz", "wb").write(t.npz([("u.npy", t.npy("<f4", f"({N},)", f4)), ("v.npy", t.npy("<f8", f"({N},)", f8)), ("x.txt", b"text")]))
open("small.npy", "wb").write(t.npy("<f8", "(1000,)", f8[:8000]))
open("c.nc", "wb").write(t.netcdf(2, records=10000))
a, b = t.Storage("FloatStorage", "0", N, f4), t.Storage("DoubleStorage", "1", N, f8)
def rounded(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.pack("<H", u + 0x7fff + (u >> 16 & 1) >> 16)
rnd = random.Random(1)
noise = [rnd.gauss(0, 1) for _ in field]
n4, n2 = struct.pack(f"<{N}f", *noise), b"".join(map(rounded, noise))
cut = b"".join(struct.pack("<f", x)[2:] for x in noise)
open("d.safetensors", "wb").write(t.safetensors([("w", "F32", (400, 500), n4), ("h", "BF16", (N,), cut)]))
open("twin.safetensors", "wb").write(t.safetensors([("m", "F32", (400, 500), f4), ("other.w", "BF16", (400, 500), n2), ("w", "F32", (400, 500), n4)]))
open("e.pt", "wb").write(t.torch_file({"model": {"w": t.Tensor(a, 0, (400, 500))}, "opt": {"state": {0: {"m": t.Tensor(b, 0, (N,))}}}}, [a, b]))
lie = bytearray(t.safetensors([("w", "F32", (400, 500), f4)]))
open("lie.safetensors", "wb").write(lie.replace(b"[400, 500]", b"[400, 501]"))
open("cut.pt", "wb").write(open("e.pt", "rb").read()[:-100])
EOT
check 'near("array_F64LE_Array2D", 1600000)' --scheme aware a.npy
check 'v["array_F64LE_Array2D"]["ratio"] > 1.3 and "delta" in v["array_F64LE_Array2D"]["coder"]' --scheme aware a.npy
check 'set(v) <= {"u_F32LE_Array1D", "v_F64LE_Array1D", "(no variable)"} and len(v) >= 2' --scheme aware b.npz
check 'set(v) == {"(no variable)"}' --scheme aware small.npy
check 'near("field_F32BE_Array3D", 800000)' --scheme aware c.nc
check 'near("w_F32LE_Array2D", 800000) and near("h_BF16LE_Array1D", 400000)' --scheme aware d.safetensors
check 'near("model/w_F32LE_Array2D", 800000) and near("opt/state/0/m_F64LE_Array1D", 1600000)' --scheme aware e.pt
# Weights are coded against those that were rounded from them; those that were cut off are not found by it.
check 'v["w_F32LE_Array2D"]["ratio"] > 1.8' --scheme aware twin.safetensors
check 'v["w_F32LE_Array2D"]["ratio"] < 1.5' --scheme aware d.safetensors

# Variables that are copies of one another, though not in the same chunks: files as a whole are smaller, which is found out.
"$PYTHON" - "$HERE/../apps" <<'EOT'
import random, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import typed_files as t
noise = random.Random(2).randbytes(40000)
open("copies.safetensors", "wb").write(t.safetensors([(name, "F64", (5000,), noise) for name in ("E", "D")]))
EOT
check 'set(v) == {"(whole files)"} and a["ratio"] > 1.2' copies.safetensors
check 'set(v) == {"(no variable)"}' --scheme aware copies.safetensors

# Names by rules: ranks in one file, which are merged then.
"$PYTHON" - "$HERE/../apps" <<'EOT'
import struct, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import typed_files as t
open("ranks.safetensors", "wb").write(t.safetensors([(f"rank_{i}/density", "F32", (10000,), struct.pack("<10000f", *[i + k / 7 for k in range(10000)])) for i in range(12)]))
EOT
check 'set(v) == {"(no variable)"}' --scheme aware ranks.safetensors
printf '# comment\nrank_(\\d+)/density\tdensity\n' >rules
check 'near("density_F32LE_Array1D", 480000)' --scheme aware --names rules ranks.safetensors
check 'near("array_F64LE_Array2D", 1600000)' --scheme aware --names rules a.npy
printf 'a b\n\n[x y\n' >rules
exits 1 "$analyze" --names rules a.npy
says '--names rules: line 3: \[ without \]'
exits 1 "$analyze" --names nowhere a.npy
says '--names nowhere: cannot be read'

# Its name does not matter.
cp a.npy ./--help
check 'near("array_F64LE_Array2D", 1600000)' --scheme aware ./--help
rm ./--help

# Lies make a file plain, and it is said why; others are not touched by it.
check 'set(v) == {"(no variable)"}' --scheme aware lie.safetensors
says 'lie.safetensors: treated as plain bytes: it is damaged, or of another format'
check '"model/w_F32LE_Array2D" in v' --scheme aware e.pt cut.pt
says 'cut.pt: treated as plain bytes'
seq 20000 >text
: >empty
check 'len(v) == 1 and a["ratio"] > 2' text empty
[ ! -s "$WORK/said" ] || fail "plain files are nothing to complain about"

# Ranks and steps: a walk of random numbers that each rank has alike, and each step has nearly so.
"$PYTHON" - "$HERE/../apps" <<'EOT'
import random, struct, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import typed_files as t
rnd = random.Random(3)
common = [rnd.getrandbits(40) for _ in range(20000)]
for step in range(7):
    for rank in range(4):
        open(f"ckpt.{step}.rank{rank}.npy", "wb").write(t.npy("<u8", "(20000,)", struct.pack("<20000Q", *[c * 4096 + 16 * step + rank for c in common])))
EOT
check 'v["array_U64LE_Array1D"]["coder"].split()[0] in ("sub-base", "xor-base") and v["array_U64LE_Array1D"]["ratio"] > 4' --scheme aware ckpt.*
check 'v["array_U64LE_Array1D"]["ratio"] < 3 and "base" not in v["array_U64LE_Array1D"]["coder"]' --scheme aware --chain 0 ckpt.*
check 'v["array_U64LE_Array1D"]["ratio"] < 5' --scheme aware --chain 1 ckpt.*
check 'v["array_U64LE_Array1D"]["scheme"] == "aware"' --scheme aware ckpt.*
check 'v["array_U64LE_Array1D"]["scheme"] == "aware-block"' --scheme aware-block --block 4K ckpt.*
check 'set(v) == {"(whole files)"} and v["(whole files)"]["scheme"] == "agnostic"' --scheme agnostic ckpt.*
check 'v["(whole files)"]["scheme"] == "agnostic-block"' --scheme agnostic-block ckpt.*
check '[r["name"] for r in j["rivals"]] == ["gzip -6", "zstd -3", "zstd -19"] and all(r["coded_bytes"] > 0 for r in j["rivals"])' --rivals ckpt.0.*
gzip_bytes=$(cat ckpt.0.* | gzip -6 | wc -c)
"$PYTHON" -c 'import json, sys
g = json.load(open(sys.argv[1]))["rivals"][0]["coded_bytes"]
assert abs(g / int(sys.argv[2]) - 1) < 0.01, g' "$WORK/out" "$gzip_bytes" || fail "gzip itself makes $gzip_bytes bytes"
exits 0 "$analyze" --chunking page --compress none --variables --rivals ckpt.0.*
tells '^array_U64LE_Array1D .* aware'
tells '^zstd -19 '

# HDF5, if there is h5py to write it and a build that reads it.
if "$PYTHON" -c 'import h5py' 2>/dev/null; then
	"$PYTHON" - <<'EOT'
import h5py, numpy as np
x = np.sin(np.arange(300000) / 50)
with h5py.File("h.h5", "w") as f:
    g = f.create_group("ToyGrp")
    g["Temperature"] = x.astype("<f4")
    g["P"] = x.astype(">f8").reshape(100, 30, 100)
    g.create_dataset("chunked", data=(1000 * x).astype("i4").reshape(3000, 100), chunks=(64, 50))
    g.create_dataset("squeezed", data=x, chunks=(1000,), compression="gzip")
    g["complex"] = x.astype("c16")
    g["half"] = x.astype("f2")
    f["again"] = g["P"]  # a second name of the same
    f["name"] = "text"
with h5py.File("user.h5", "w", userblock_size=1024) as f:
    f["x"] = x
data = bytearray(open("h.h5", "rb").read())
open("cut.h5", "wb").write(data[:len(data) // 2])
at = data.find(b"TREE")
data[at + 8:at + 24] = b"\xee" * 16
open("damaged.h5", "wb").write(data)
EOT
	exits 0 "$analyze" --chunking page --compress none --variables h.h5
	if grep -q 'without HDF5' "$WORK/said"; then
		echo "this build reads no HDF5"
	else
		check '({"ToyGrp/Temperature_F32LE_Array1D", "ToyGrp/chunked_I32LE_Array2D", "ToyGrp/complex_CF64LE_Array1D", "ToyGrp/half_F16LE_Array1D", "(no variable)"} < set(v)
			and len(set(v) & {"ToyGrp/P_F64BE_Array3D", "again_F64BE_Array3D"}) == 1 and len(v) == 6)' --scheme aware h.h5
		# chunks are whole: 47 x 2 of 64 x 50 elements
		check 'near("ToyGrp/chunked_I32LE_Array2D", 47 * 2 * 64 * 50 * 4)' --scheme aware h.h5
		check 'near("ToyGrp/complex_CF64LE_Array1D", 4800000)' --scheme aware h.h5
		check 'near("x_F64LE_Array1D", 2400000) and v["x_F64LE_Array1D"]["ratio"] > 1.2' --scheme aware user.h5
		check 'set(v) == {"(no variable)"}' --scheme aware cut.h5
		says 'cut.h5: treated as plain bytes'
		check 'True' damaged.h5 # found, or not asked for: in any case all bytes are there
	fi
fi

# The helper answers others than us, too, and is an error where it is not.
exits 1 "$CKPTFS_BUILD/tools/ckptfs-classify" </dev/null
exits 0 "$CKPTFS_BUILD/tools/ckptfs-classify" --help
cp "$analyze" "$WORK/alone"
if [ ! -e /usr/libexec/ckptfs-classify ]; then
	exits 2 "$WORK/alone" --no-compact --images a.npy
	says 'ckptfs-classify: cannot be started'
fi
