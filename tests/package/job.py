# SPDX-License-Identifier: GPL-3.0-or-later
"""A job that uses the Python modules of the packages, on the mount that ckptfs-run has made for it. Argument: the version."""
import os
import sys

import ckptfs
import ckptfs_gpu

where = os.environ["CKPTFS_MOUNT"]
with ckptfs.checkpoint(where + "/step") as d:
    (d / "state").write_bytes(b"state")
with ckptfs_gpu.Lineage(where + "/gpu") as lineage:
    lineage.save(1, {"a": b"bytes"})
assert ckptfs.newest(where).bytes == 5 and ckptfs.__version__ == sys.argv[1]
