#!/bin/bash
# ckptfs-analyze --variables: which variables it finds in files of every format, that all bytes are accounted for, that the schemes are what they
# are said to be, and what becomes of files that lie.
. "$(dirname "$0")/../mount/lib.sh"

analyze=$CKPTFS_BUILD/tools/ckptfs-analyze
data=$WORK/data
mkdir "$data"
cd "$data"

# check EXPRESSION [ARGUMENT...]: true of what is printed: a all of it, v variables by key, total the bytes of all files
check() {
	local expression=$1
	shift
	exits "${code:-0}" "$analyze" --variables --budget 100000 --json "$@" # whatever the time: the smallest
	"$PYTHON" - "$expression" "$WORK/out" <<-'EOT' || fail "analyze --variables $*: not true: $expression"
	import json, sys
	j = json.load(open(sys.argv[2]))
	a, total = j["aware"], j["total"]["size_bytes"]
	v = {x["key"]: x for x in a["variables"]}
	assert a["plain_bytes"] == sum(x["plain_bytes"] for x in v.values()) == total, (a["plain_bytes"], total)
	assert a["coded_bytes"] == sum(x["coded_bytes"] for x in v.values())
	if not eval(sys.argv[1]):
	    print(json.dumps(a, indent=1), file=sys.stderr)
	    sys.exit(1)
	EOT
	echo "ok $expression"
}

# What is in the small files is dropped as too small for blocks of their own; here are larger ones of the same makers.
"$PYTHON" - "$HERE/../apps" <<'EOT'
import math, random, struct, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import typed_files as t
field = [300 + 20 * math.sin(i / 70) for i in range(10000)]
f8, f4 = struct.pack("<10000d", *field), struct.pack("<10000f", *field)
bf16 = b"".join(struct.pack("<f", x)[2:] for x in field)
open("a.npy", "wb").write(t.npy("<f8", "(100, 100)", f8))
open("b.npz", "wb").write(t.npz([("u.npy", t.npy("<f4", "(10000,)", f4)), ("v.npy", t.npy("<f8", "(10000,)", f8)), ("x.txt", b"text")]))
open("c.nc", "wb").write(t.netcdf(2, records=100))
open("d.safetensors", "wb").write(t.safetensors([("w", "F32", (100, 100), f4), ("h", "BF16", (10000,), bf16)]))
a, b = t.Storage("FloatStorage", "0", 10000, f4), t.Storage("DoubleStorage", "1", 10000, f8)
def rounded(x):
    u = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.pack("<H", u + 0x7fff + (u >> 16 & 1) >> 16)
rnd = random.Random(1)
noise = [rnd.gauss(0, 1) for _ in field]
n4, n2 = struct.pack("<10000f", *noise), b"".join(map(rounded, noise))
open("twin.safetensors", "wb").write(t.safetensors([("m", "F32", (100, 100), f4), ("other.w", "BF16", (100, 100), n2), ("w", "F32", (100, 100), n4)]))
for rank in range(2):
    more = [x * (rank + 1) for x in noise]
    open(f"twin.rank{rank}.safetensors", "wb").write(t.safetensors([("w", "F32", (10000,), struct.pack("<10000f", *more)), ("h", "BF16", (10000,), b"".join(map(rounded, more)))]))
open("e.pt", "wb").write(t.torch_file({"model": {"w": t.Tensor(a, 0, (100, 100))}, "opt": {"state": {0: {"m": t.Tensor(b, 0, (10000,))}}}}, [a, b]))
lie = bytearray(t.safetensors([("w", "F32", (100, 100), f4)]))
open("lie.safetensors", "wb").write(lie.replace(b"[100, 100]", b"[100, 101]"))
open("cut.pt", "wb").write(open("e.pt", "rb").read()[:-100])
EOT
check 'set(v) == {"array_F64LE_Array2D", "(no variable)"} and v["array_F64LE_Array2D"]["plain_bytes"] == 80000' a.npy
check 'v["array_F64LE_Array2D"]["coded_bytes"] < 60000 and "delta" in v["array_F64LE_Array2D"]["coder"]' a.npy
check 'set(v) == {"u_F32LE_Array1D", "v_F64LE_Array1D", "(no variable)"}' b.npz
check 'v["field_F32BE_Array3D"]["plain_bytes"] == 8000 and v["t_F64BE_Array1D"]["plain_bytes"] == 800' --scheme aware c.nc
check 'v["w_F32LE_Array2D"]["plain_bytes"] == 40000 and v["h_BF16LE_Array1D"]["plain_bytes"] == 20000' d.safetensors
check 'v["model/w_F32LE_Array2D"]["plain_bytes"] == 40000 and v["opt/state/0/m_F64LE_Array1D"]["plain_bytes"] == 80000' e.pt
# Weights beside the wider ones they were rounded from take no room; those that were cut off (d.safetensors) are not found by it.
check 'v["other.w_BF16LE_Array2D"]["coded_bytes"] < 100 and v["other.w_BF16LE_Array2D"]["rounded_blocks"] == 1 and v["w_F32LE_Array2D"]["rounded_blocks"] == 0' twin.safetensors
check 'v["other.w_BF16LE_Array2D"]["coded_bytes"] > 10000 and v["other.w_BF16LE_Array2D"]["based_blocks"] == 0' --no-twins twin.safetensors
check 'v["h_BF16LE_Array1D"]["based_blocks"] == 0' d.safetensors
# Merged in turns, too: the wider ones' turns are twice as long.
check 'v["h_BF16LE_Array1D"]["parts"] == 2 and v["h_BF16LE_Array1D"]["coded_bytes"] < 100' --scheme aware-block --block 1K twin.rank*

# Variables that are copies of one another: files as a whole are smaller, which is found out.
"$PYTHON" - "$HERE/../apps" <<'EOT'
import random, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import typed_files as t
noise = random.Random(2).randbytes(40000)
open("copies.safetensors", "wb").write(t.safetensors([(name, "F64", (5000,), noise) for name in ("E", "D")]))
EOT
check 'set(v) == {"(whole files)"} and a["ratio"] > 1.9' copies.safetensors
check 'len(v) == 3 and a["ratio"] < 1.1' --scheme aware copies.safetensors

# Names by rules: ranks in one file, which are merged then.
"$PYTHON" - "$HERE/../apps" <<'EOT'
import struct, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import typed_files as t
open("ranks.safetensors", "wb").write(t.safetensors([(f"rank_{i}/density", "F32", (1000,), struct.pack("<1000f", *[i + k / 7 for k in range(1000)])) for i in range(12)]))
EOT
check 'len(v) == 13 and v["rank_11/density_F32LE_Array1D"]["plain_bytes"] == 4000' --scheme aware ranks.safetensors
printf '# comment\nrank_(\\d+)/density\tdensity\n' >rules
check 'set(v) == {"density_F32LE_Array1D", "(no variable)"} and v["density_F32LE_Array1D"]["plain_bytes"] == 48000 and v["density_F32LE_Array1D"]["parts"] == 12' --scheme aware --names rules ranks.safetensors
check 'v["array_F64LE_Array2D"]["plain_bytes"] == 80000' --names rules a.npy
printf 'a b\n\n[x y\n' >rules
exits 1 "$analyze" --names rules a.npy
says '--names rules: line 3: \[ without \]'
exits 1 "$analyze" --names nowhere a.npy
says '--names nowhere: cannot be read'

# Its name does not matter.
cp a.npy ./--help
check 'v["array_F64LE_Array2D"]["plain_bytes"] == 80000' ./--help
rm ./--help

# Lies make a file plain, and it is said why; others are not touched by it.
check 'set(v) == {"(no variable)"}' lie.safetensors
says 'lie.safetensors: plain bytes: it is damaged, or not what it says it is'
check 'v["model/w_F32LE_Array2D"]["plain_bytes"] == 40000 and v["(no variable)"]["plain_bytes"] > 40000' e.pt cut.pt
says 'cut.pt: plain bytes'
seq 20000 >text
: >empty
check 'set(v) == {"(no variable)"} and a["ratio"] > 2' text empty
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
check 'v["array_U64LE_Array1D"]["parts"] == 28 and v["array_U64LE_Array1D"]["coder"].split()[0] in ("sub-base", "xor-base")' ckpt.*
# 640000 bytes of a step are 3 blocks; steps 0 and 5 have no base
check 'v["array_U64LE_Array1D"]["blocks"] == 21 and v["array_U64LE_Array1D"]["based_blocks"] == 15' ckpt.*
check 'v["array_U64LE_Array1D"]["based_blocks"] == 0 and a["chain"] == 0' --chain 0 ckpt.*
check 'v["array_U64LE_Array1D"]["based_blocks"] == 9' --chain 1 ckpt.*
check 'v["array_U64LE_Array1D"]["blocks"] == 28' --group 1 ckpt.*
check 'v["array_U64LE_Array1D"]["scheme"] == "aware"' --scheme aware ckpt.*
check 'v["array_U64LE_Array1D"]["scheme"] == "aware-block" and a["block_bytes"] == 1024' --scheme aware-block --block 1K ckpt.*
check 'set(v) == {"(whole files)"} and v["(whole files)"]["scheme"] == "agnostic"' --scheme agnostic ckpt.*
check 'v["(whole files)"]["scheme"] == "agnostic-block"' --scheme agnostic-block ckpt.*
# In turns of 8 bytes the four ranks' elements are side by side, and differ by one.
check 'v["array_U64LE_Array1D"]["coded_bytes"] * 3 < v["array_U64LE_Array1D"]["plain_bytes"]' --chain 0 --scheme aware-block --block 8 ckpt.*
check 'v["array_U64LE_Array1D"]["coded_bytes"] * 3 > v["array_U64LE_Array1D"]["plain_bytes"]' --chain 0 --scheme aware ckpt.*
check 'v["array_U64LE_Array1D"]["scheme"] == "aware-block"' --chain 0 --block 8 ckpt.*
check '[r["name"] for r in a["rivals"]] == ["gzip -6", "zstd -3", "zstd -19"] and all(r["coded_bytes"] > 0 for r in a["rivals"])' --rivals ckpt.0.*
gzip_bytes=$(cat ckpt.0.* | gzip -6 | wc -c)
"$PYTHON" -c 'import json, sys
g = json.load(open(sys.argv[1]))["aware"]["rivals"][0]["coded_bytes"]
assert abs(g / int(sys.argv[2]) - 1) < 0.01, g' "$WORK/out" "$gzip_bytes" || fail "gzip itself makes $gzip_bytes bytes"
exits 0 "$analyze" --rivals ckpt.0.*
tells '^array_U64LE_Array1D .* aware'
tells '^zstd -19 '

# HDF5, if there is h5py to write it and a build that reads it.
if "$PYTHON" -c 'import h5py' 2>/dev/null; then
	"$PYTHON" - <<'EOT'
import h5py, numpy as np
x = np.sin(np.arange(30000) / 50)
with h5py.File("h.h5", "w") as f:
    g = f.create_group("ToyGrp")
    g["Temperature"] = x.astype("<f4")
    g["P"] = x.astype(">f8").reshape(10, 30, 100)
    g.create_dataset("chunked", data=(1000 * x).astype("i4").reshape(300, 100), chunks=(64, 50))
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
	exits 0 "$analyze" --variables h.h5
	if grep -q 'without HDF5' "$WORK/said"; then
		echo "this build reads no HDF5"
	else
		check 'set(v) == {"ToyGrp/Temperature_F32LE_Array1D", "ToyGrp/chunked_I32LE_Array2D", "ToyGrp/complex_CF64LE_Array1D",
			"ToyGrp/half_F16LE_Array1D", "(no variable)"} | ({"ToyGrp/P_F64BE_Array3D", "again_F64BE_Array3D"} & set(v)) and len(v) == 6' h.h5
		# chunks are whole: 5 x 2 of 64 x 50 elements
		check 'v["ToyGrp/chunked_I32LE_Array2D"]["plain_bytes"] == 10 * 64 * 50 * 4' h.h5
		check 'v["ToyGrp/complex_CF64LE_Array1D"]["plain_bytes"] == 480000' h.h5
		check 'v["x_F64LE_Array1D"]["plain_bytes"] == 240000 and v["x_F64LE_Array1D"]["ratio"] > 1.2' user.h5
		check 'set(v) == {"(no variable)"}' cut.h5
		says 'cut.h5: plain bytes'
		check 'True' damaged.h5 # found, or not asked for: in any case all bytes are there
	fi
fi

# The helper answers others than us, too, and is an error where it is not.
exits 1 "$CKPTFS_BUILD/tools/ckptfs-classify" </dev/null
exits 0 "$CKPTFS_BUILD/tools/ckptfs-classify" --help
cp "$analyze" "$WORK/alone"
if [ ! -e /usr/libexec/ckptfs-classify ]; then
	exits 2 "$WORK/alone" --variables a.npy
	says 'ckptfs-classify: cannot be started'
fi

for bad in '--scheme best' '--group 0' '--group x' '--chain 65' '--block 7' '--block x' '--budget 0' '--budget soon'; do
	exits 1 "$analyze" $bad a.npy
	says "${bad%% *} "
done
