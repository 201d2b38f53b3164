# SPDX-License-Identifier: GPL-3.0-or-later
# Spack recipe: copy it to packages/ckptfs in a repository of your own (spack repo create). There is no release to fetch: run
# `spack dev-build ckptfs@0.1.0` in the source tree.
from spack.package import *


class Ckptfs(MesonPackage):
    """A filesystem for checkpoints: programs write ordinary files, and every distinct page is stored once."""

    license("GPL-3.0-or-later")

    version("0.1.0")

    variant("mpi", default=True, description="agents, which deduplicate across nodes")
    variant("cuda", default=False, description="compute deltas of GPU memory on the GPU")
    variant("hdf5", default=True, description="recode variables of HDF5 files")
    variant("metrics", default=True, description="metrics over HTTP for Prometheus")
    variant("s3", default=True, description="tiers in S3 object stores")
    variant("python", default=True, description="Python modules")

    depends_on("c", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")

    depends_on("libfuse@3.14:")
    depends_on("rocksdb@7:")
    depends_on("xxhash@0.8.1:")
    depends_on("openssl@3:")
    depends_on("lz4@1.9:")
    depends_on("zstd@1.5:")
    depends_on("zlib-api")
    depends_on("hdf5+hl", when="+hdf5")
    depends_on("curl@7.68:", when="+s3")
    depends_on("libmicrohttpd", when="+metrics")
    depends_on("mpi", when="+mpi")
    depends_on("cuda@11.8:", when="+cuda")
    depends_on("python@3.9:", type=("build", "run"), when="+python")

    conflicts("platform=darwin", msg="ckptfs requires Linux")

    def meson_args(self):
        def feature(option, variant):
            return f"-D{option}={'enabled' if self.spec.satisfies('+' + variant) else 'disabled'}"

        return [feature("mpi", "mpi"), feature("gpu", "cuda"), feature("hdf5", "hdf5"), feature("metrics", "metrics"), feature("s3", "s3"), "-Dtests=false"]
