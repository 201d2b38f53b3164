/* Reading a version of a lineage: what is in it, and its buffers back to where they belong. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ckptfs_gpu_buffer;
struct ckptfs_gpu_version;
struct lineage;

/* Both as the functions of ckptfs_gpu.h that are called so. */
int version_read(const struct lineage *l, uint32_t number, struct ckptfs_gpu_version **ret);
int version_restore(const struct lineage *l, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
		    void *stream);
