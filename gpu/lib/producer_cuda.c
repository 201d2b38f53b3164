/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The GPU's producer. Host buffers are gathered in page-locked memory and copied to the device at once, on the
 * application's stream, so that all of a checkpoint is on the device then. The current device of the calling thread is
 * restored.
 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "gpu/lib/lineage.h"
#include "gpu/kernels/pinned.h"
#include "gpu/lib/producer.h"

#define HOST_ALIGN 256u /* of buffers of the host, on the device: as cudaMalloc() does */
#define READ_BYTES MiB(16) /* at a time */

const char *gpu_missing(void)
{
	int nr;
	cudaError_t e = cudaGetDeviceCount(&nr);

	if (e != cudaSuccess) {
		cudaGetLastError();
		return cudaGetErrorString(e);
	}
	return nr > 0 ? NULL : "no device found";
}

int gpu_device_of(const void *p)
{
	struct cudaPointerAttributes a;

	if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
		cudaGetLastError();
		return PRODUCER_CPU;
	}
	return a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged ? a.device : PRODUCER_CPU;
}

/* --- taking --- */

struct gpu {
	struct producer producer;
	struct delta_gpu *record;
	uint8_t *host, *device; /* copies of buffers of the host: page-locked, and on the device */
	uint64_t room;
	struct delta_buffer *buffers; /* all of them as the device has them */
	size_t buffers_room;
	uint64_t peak; /* of `room` */
};

static struct gpu *gpu_of(struct producer *p)
{
	return container_of(p, struct gpu, producer);
}

static int ensure_buffers(struct gpu *g, size_t nr)
{
	struct delta_buffer *buffers;

	if (nr <= g->buffers_room)
		return 0;
	buffers = realloc(g->buffers, nr * sizeof(*buffers));
	if (!buffers)
		return -ENOMEM;
	g->buffers = buffers;
	g->buffers_room = nr;
	return 0;
}

static int ensure_room(struct gpu *g, uint64_t len)
{
	int r;

	if (len <= g->room)
		return 0;
	cudaFreeHost(g->host); /* NULL is fine, as for the next */
	cudaFree(g->device);
	g->host = g->device = NULL;
	g->room = 0;
	r = cuda_errno(cudaHostAlloc((void **)&g->host, len, cudaHostAllocDefault), "page-locked memory");
	if (r == 0)
		r = cuda_errno(cudaMalloc((void **)&g->device, len), "memory for buffers of the host");
	if (r == 0)
		g->room = len;
	g->peak = MAX(g->peak, g->room);
	return r;
}

/* Host buffers are gathered in their order. The device of each buffer is queried once. */
static int gather_host_buffers(struct gpu *g, const struct delta_buffer *buffers, size_t nr, void *stream)
{
	uint64_t len = 0, at = 0;
	int r;

	r = ensure_buffers(g, nr);
	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++) {
		g->buffers[i] = buffers[i];
		if (gpu_device_of(buffers[i].p) != PRODUCER_CPU)
			continue;
		g->buffers[i].p = NULL;
		len += round_up(buffers[i].len, HOST_ALIGN);
	}
	r = ensure_room(g, len);
	if (r < 0)
		return r;
	for (size_t i = 0; i < nr; i++) {
		if (g->buffers[i].p)
			continue;
		memcpy(g->host + at, buffers[i].p, buffers[i].len);
		g->buffers[i].p = g->device + at;
		at += round_up(buffers[i].len, HOST_ALIGN);
	}
	return len > 0 ? cuda_errno(cudaMemcpyAsync(g->device, g->host, len, cudaMemcpyHostToDevice, stream), "copy") : 0;
}

static int gpu_take_version(struct producer *p, const struct delta_buffer *buffers, size_t nr,
			    const struct delta_take *take, void *stream)
{
	struct gpu *g = gpu_of(p);
	int current, r;

	r = cuda_errno(cudaGetDevice(&current), "device");
	if (r == 0)
		r = cuda_errno(cudaSetDevice(p->device), "device");
	if (r < 0)
		return r;
	r = gather_host_buffers(g, buffers, nr, stream);
	if (r == 0)
		r = delta_gpu_take(g->record, g->buffers, nr, take, stream);
	cudaSetDevice(current);
	return r;
}

static int gpu_finish_version(struct producer *p, struct delta_object *ret)
{
	return delta_gpu_finish(gpu_of(p)->record, ret);
}

static int gpu_commit_version(struct producer *p)
{
	return delta_gpu_commit(gpu_of(p)->record);
}

static void gpu_abandon_version(struct producer *p)
{
	delta_gpu_abandon(gpu_of(p)->record);
}

static int gpu_forget_version(struct producer *p, uint32_t number)
{
	int current, r;

	r = cuda_errno(cudaGetDevice(&current), "device");
	if (r < 0)
		return r;
	r = delta_gpu_forget(gpu_of(p)->record, number);
	cudaSetDevice(current);
	return r;
}

static void gpu_memory(const struct producer *p, uint64_t *ret_now, uint64_t *ret_max)
{
	const struct gpu *g = container_of(p, const struct gpu, producer);

	delta_gpu_memory(g->record, ret_now, ret_max);
	*ret_now += g->room;
	*ret_max += g->peak;
}

static void gpu_free(struct producer *p)
{
	struct gpu *g = gpu_of(p);
	int current;

	if (cudaGetDevice(&current) != cudaSuccess)
		current = p->device;
	cudaSetDevice(p->device);
	delta_gpu_free(g->record);
	cudaFreeHost(g->host);
	cudaFree(g->device);
	cudaSetDevice(current);
	free(g->buffers);
	free(g);
}

static const struct producer_ops gpu_ops = {
	.take = gpu_take_version,
	.finish = gpu_finish_version,
	.commit = gpu_commit_version,
	.abandon = gpu_abandon_version,
	.forget = gpu_forget_version,
	.memory = gpu_memory,
	.free = gpu_free,
};

int producer_new_gpu(int device, const struct delta_record_params *params, struct producer **ret)
{
	struct gpu *g;
	int current, r;

	r = cuda_errno(cudaGetDevice(&current), "device");
	if (r == 0)
		r = cuda_errno(cudaSetDevice(device), "device");
	if (r < 0)
		return r;
	g = calloc(1, sizeof(*g));
	r = g ? delta_gpu_new(params, &g->record) : -ENOMEM;
	cudaSetDevice(current);
	if (r < 0) {
		free(g);
		return r;
	}
	g->producer = (struct producer){ .ops = &gpu_ops, .device = device };
	*ret = &g->producer;
	return 0;
}

/* --- reading --- */

struct gpu_reader {
	cudaStream_t stream;
	int current; /* device of the calling thread, before */
	struct {
		uint8_t *p; /* page-locked */
		cudaEvent_t free; /* what was read here has been copied */
	} halves[2];
	unsigned turn;
};

int gpu_reader_new(int device, void *stream, struct gpu_reader **ret)
{
	struct gpu_reader *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->stream = stream;
	r = cuda_errno(cudaGetDevice(&g->current), "device");
	if (r == 0)
		r = cuda_errno(cudaSetDevice(device), "device");
	for (int i = 0; r == 0 && i < 2; i++) {
		r = cuda_errno(cudaHostAlloc((void **)&g->halves[i].p, READ_BYTES, cudaHostAllocDefault),
			       "page-locked memory");
		if (r == 0)
			r = cuda_errno(cudaEventCreateWithFlags(&g->halves[i].free, cudaEventDisableTiming), "events");
	}
	if (r < 0) {
		gpu_reader_free(g);
		return r;
	}
	*ret = g;
	return 0;
}

int gpu_reader_read(struct gpu_reader *g, int fd, uint64_t off, void *p, uint64_t len)
{
	int r = 0;

	for (uint64_t at = 0; r == 0 && at < len; at += READ_BYTES) {
		size_t n = MIN(len - at, READ_BYTES);
		unsigned i = g->turn++ % 2;

		r = cuda_errno(cudaEventSynchronize(g->halves[i].free), "copy");
		if (r == 0)
			r = lineage_read(fd, g->halves[i].p, n, off + at);
		if (r == 0)
			r = cuda_errno(cudaMemcpyAsync((uint8_t *)p + at, g->halves[i].p, n, cudaMemcpyHostToDevice,
						       g->stream),
				       "copy");
		if (r == 0)
			r = cuda_errno(cudaEventRecord(g->halves[i].free, g->stream), "copy");
	}
	return r;
}

int gpu_reader_free(struct gpu_reader *g)
{
	int r;

	if (!g)
		return 0;
	r = cuda_errno(cudaStreamSynchronize(g->stream), "copy");
	for (int i = 0; i < 2; i++) {
		cudaFreeHost(g->halves[i].p);
		if (g->halves[i].free)
			cudaEventDestroy(g->halves[i].free);
	}
	cudaSetDevice(g->current);
	free(g);
	return r;
}
