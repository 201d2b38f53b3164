#!/bin/bash
# SPDX-License-Identifier: GPL-3.0-or-later
# HDF5 through h5py: a checkpoint series, chunked and compressed datasets, growing and rewriting in place.
. "$(dirname "$0")/../mount/lib.sh"
[ -x "$PYTHON" ] || skip "$PYTHON is not installed"
"$PYTHON" -c 'import h5py' 2>/dev/null || skip "h5py is not installed for $PYTHON"

cat >"$WORK/t.py" <<'EOT'
import sys, os, h5py, numpy as np

root, phase = sys.argv[1:]

def state(step):
    rng = np.random.default_rng(7)
    a = rng.standard_normal((256, 1024))
    for s in range(1, step + 1):
        a[(s * 13) % 256] += s
    return a

if phase == "write":
    for step in range(5):
        with h5py.File(f"{root}/ckpt.{step:04}.h5", "w") as f:
            f["plain"] = state(step)
            f.create_dataset("chunked", data=state(step), chunks=(16, 128), compression="gzip", shuffle=True)
            f.attrs["step"] = step
            f.flush()
            os.fsync(f.id.get_vfd_handle())
    with h5py.File(f"{root}/grow.h5", "w", libver="latest") as f:
        d = f.create_dataset("d", shape=(0, 1000), maxshape=(None, 1000), chunks=(8, 1000), dtype="i8")
        for i in range(40):
            d.resize(i + 1, axis=0)
            d[i] = np.arange(1000) * i
            f.flush()
    with h5py.File(f"{root}/ckpt.0004.h5", "r+") as f:
        f["plain"][10:20] = 0
        f["plain"][10:20] = state(4)[10:20]
for step in range(5):
    with h5py.File(f"{root}/ckpt.{step:04}.h5", "r") as f:
        assert f.attrs["step"] == step
        assert np.array_equal(f["plain"][...], state(step)), step
        assert np.array_equal(f["chunked"][...], state(step)), step
with h5py.File(f"{root}/grow.h5", "r") as f:
    assert f["d"].shape == (40, 1000)
    assert np.array_equal(f["d"][...], np.arange(1000)[None, :] * np.arange(40)[:, None])
EOT
fs_mount
mkdir "$MNT/h5"
"$PYTHON" "$WORK/t.py" "$MNT/h5" write || fail "writing and reading back"
fs_remount
"$PYTHON" "$WORK/t.py" "$MNT/h5" read || fail "reading after a remount"
fs_umount
