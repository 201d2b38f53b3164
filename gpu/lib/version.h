/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading a version of a lineage: its manifest, and restoring its buffers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckptfs_gpu_buffer;
struct ckptfs_gpu_version;
struct lineage;

/* Implement the functions of the same names in ckptfs_gpu.h. */
int version_read(const struct lineage *l, uint32_t number, struct ckptfs_gpu_version **ret);
int version_restore(const struct lineage *l, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
		    void *stream);
