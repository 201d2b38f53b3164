/* SPDX-License-Identifier: BSD-3-Clause */
/* Built without CUDA: there is no GPU, and all memory is host memory. */
#include <errno.h>

#include "base/util.h"
#include "gpu/lib/producer.h"

const char *gpu_missing(void)
{
	return "ckptfs was built without CUDA";
}

int gpu_device_of(_unused_ const void *p)
{
	return PRODUCER_CPU;
}

int producer_new_gpu(_unused_ int device, _unused_ const struct delta_record_params *params,
		     _unused_ struct producer **ret)
{
	return -ENODEV;
}

int gpu_reader_new(_unused_ int device, _unused_ void *stream, _unused_ struct gpu_reader **ret)
{
	return -ENODEV;
}

int gpu_reader_read(_unused_ struct gpu_reader *g, _unused_ int fd, _unused_ uint64_t off, _unused_ void *p,
		    _unused_ uint64_t len)
{
	return -ENODEV;
}

int gpu_reader_free(_unused_ struct gpu_reader *g)
{
	return 0;
}
