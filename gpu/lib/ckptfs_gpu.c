/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's handle. A checkpoint is taken by the calling thread and completed by a thread of the handle:
 *
 *   caller   arrange, take ──▶ job                            (buffers may be overwritten)
 *   thread                      finish, write, commit ──▶ done  (LINEAGE/NNNNNN exists)
 *
 * There is one job at a time. While there is one, the producer and the lineage belong to the thread, else to the holder
 * of `call`. A crash at any time leaves the version complete or absent: the mount's commit is atomic.
 *
 * `call` is held for the duration of a call of the application, and inside it `lock`, briefly, to hand a checkpoint to
 * the thread or to see whether it has one. The thread takes only `lock`, and holds nothing while it works or calls the
 * application back.
 */
#include "gpu/lib/ckptfs_gpu.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "gpu/format/layout.h"
#include "gpu/lib/lineage.h"
#include "gpu/format/manifest_format.h"
#include "gpu/lib/producer.h"
#include "gpu/lib/version.h"

#define CHUNK_SIZE 128u
#define FLAGS_KNOWN (CKPTFS_GPU_DURABLE | CKPTFS_GPU_VERIFY | CKPTFS_GPU_COMPARE | CKPTFS_GPU_REQUIRE)

struct job {
	uint32_t number; /* 0: none */
	ckptfs_gpu_done done;
	void *arg;
	uint64_t take_ns;
};

struct ckptfs_gpu {
	char *dir; /* constant, as the next ones */
	struct ckptfs_gpu_options options;
	uint8_t key[LEAF_KEY_LEN], id[DELTA_LINEAGE_LEN]; /* random: a record lives as long as its handle */
	int event_fd;
	pthread_t thread;
	bool has_thread;

	struct mutex call; /* held for the duration of a call; taken before `lock` */
	struct lineage *lineage; /* this and the next: guarded by `call`, or owned by the job */
	struct producer *producer; /* NULL: there is no record of any version */
	uint32_t last_number; /* that became a file */
	struct layout layout GUARDED_BY(call);

	struct mutex lock;
	struct cond changed;
	struct job job GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
	int error GUARDED_BY(lock); /* the first one not yet reported */
	struct ckptfs_gpu_stats stats GUARDED_BY(lock);
};

static const enum delta_method methods[] = {
	[CKPTFS_GPU_TREE] = DELTA_METHOD_TREE,
	[CKPTFS_GPU_LIST] = DELTA_METHOD_LIST,
	[CKPTFS_GPU_BASIC] = DELTA_METHOD_BASIC,
	[CKPTFS_GPU_FULL] = DELTA_METHOD_FULL,
};

static void producer_drop(struct ckptfs_gpu *g)
{
	if (g->producer)
		g->producer->ops->free(TAKE(g->producer));
}

/* --- the thread --- */

/* Turns a taken version into a file. */
static int complete_job(struct ckptfs_gpu *g, const struct job *job, struct ckptfs_gpu_stats *ret)
{
	const struct producer_ops *ops = g->producer->ops;
	struct lineage_commit commit = {
		.flags = (g->options.flags & CKPTFS_GPU_DURABLE ? CKPTFS_DELTA_SYNC : 0) |
			 (g->options.flags & CKPTFS_GPU_VERIFY ? CKPTFS_DELTA_VERIFY : 0),
	};
	uint64_t start = monotonic_ns(), finished;
	struct delta_object object;
	int r;

	r = ops->finish(g->producer, &object);
	finished = monotonic_ns();
	if (r == 0) {
		commit.header = &object.header;
		commit.parts = object.parts;
		commit.nr_parts = object.nr_parts;
		memcpy(commit.key, g->key, sizeof(commit.key));
		r = lineage_commit(g->lineage, &commit);
	}
	if (r < 0) {
		ops->abandon(g->producer);
		/* The record does not match the versions on the mount, or these cannot be read. */
		if (r == -ENOENT || r == -ESTALE || r == -EBADMSG || r == -EIO)
			producer_drop(g);
		return r;
	}
	g->last_number = job->number;
	*ret = (struct ckptfs_gpu_stats){
		.size = sizeof(*ret),
		.number = job->number,
		.on_gpu = g->producer->device != PRODUCER_CPU,
		.content_bytes = object.header.content_len,
		.delta_bytes = delta_object_len(&object.header),
		.payload_bytes = object.header.payload_len,
		.take_ns = job->take_ns,
		.finish_ns = finished - start,
		.write_ns = commit.write_ns,
		.commit_ns = commit.commit_ns,
	};
	/* The version exists now, even if the record cannot be updated. */
	if (ops->commit(g->producer) < 0)
		log_warning("lineage %s: record lost, the next checkpoint will copy everything", g->dir);
	ops->memory(g->producer, &ret->gpu_bytes, &ret->gpu_bytes_max);
	return 0;
}

static void *job_thread(void *arg)
{
	struct ckptfs_gpu *g = arg;

	mutex_lock(&g->lock);
	for (;;) {
		struct ckptfs_gpu_stats stats;
		struct job job;
		int r;

		while (g->job.number == 0 && !g->stop)
			cond_wait(&g->changed, &g->lock);
		if (g->job.number == 0)
			break;
		job = g->job;
		mutex_unlock(&g->lock);
		r = complete_job(g, &job, &stats);
		if (job.done)
			job.done(job.arg, job.number, r);
		mutex_lock(&g->lock);
		if (r == 0)
			g->stats = stats;
		else if (g->error == 0)
			g->error = r;
		g->job = (struct job){ 0 };
		cond_broadcast(&g->changed);
		if (eventfd_write(g->event_fd, 1) < 0)
			log_warning("lineage %s: cannot signal the eventfd: %s", g->dir, strerror(errno));
	}
	mutex_unlock(&g->lock);
	return NULL;
}

/* A callback would wait for itself. */
static int refuse_callback(const struct ckptfs_gpu *g)
{
	if (!g->has_thread || !pthread_equal(g->thread, pthread_self()))
		return 0;
	return log_errno(-EDEADLK, "lineage %s: called from its own callback", g->dir);
}

static void wait_idle(struct ckptfs_gpu *g)
{
	mutex_lock(&g->lock);
	while (g->job.number != 0)
		cond_wait(&g->changed, &g->lock);
	mutex_unlock(&g->lock);
}

/* Starts a call: lineage and producer belong to the caller until it passes a job to the thread. false: *ret is the
 * error. */
static bool call_enter(struct ckptfs_gpu *g, int *ret) TRY_ACQUIRE(true, g->call)
{
	*ret = refuse_callback(g);
	if (*ret < 0)
		return false;
	mutex_lock(&g->call);
	wait_idle(g);
	*ret = lineage_reconnect(g->lineage);
	if (*ret == 0)
		return true;
	mutex_unlock(&g->call);
	return false;
}

/* --- open and close --- */

static int set_options(struct ckptfs_gpu *g, const struct ckptfs_gpu_options *options)
{
	struct ckptfs_gpu_options *o = &g->options;

	*o = (struct ckptfs_gpu_options){ .flags = CKPTFS_GPU_DURABLE };
	if (options) {
		if (options->size != sizeof(*options))
			return log_errno(-EINVAL, "lineage %s: size of options is %zu, must be %zu", g->dir,
					 options->size, sizeof(*options));
		*o = *options;
	}
	if (o->chunk_size == 0)
		o->chunk_size = CHUNK_SIZE;
	if (o->method >= ARRAY_SIZE(methods))
		return log_errno(-EINVAL, "lineage %s: unknown method %" PRIu32, g->dir, o->method);
	if ((o->flags & ~FLAGS_KNOWN) != 0 || o->reserved != 0)
		return log_errno(-EINVAL, "lineage %s: unknown flags %#" PRIx32, g->dir, o->flags & ~FLAGS_KNOWN);
	if (!chunk_len_valid(o->chunk_size))
		return log_errno(-EINVAL, "lineage %s: chunk size is %" PRIu32 ", must be a power of two from %u to %u",
				 g->dir, o->chunk_size, CHUNK_LEN_MIN, CHUNK_LEN_MAX);
	return 0;
}

/* The application's signals must not be delivered to the thread. */
static int start_thread(struct ckptfs_gpu *g)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = -pthread_create(&g->thread, NULL, job_thread, g);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	g->has_thread = r == 0;
	return r < 0 ? log_errno(r, "lineage %s: cannot start a thread", g->dir) : 0;
}

static int handle_init(struct ckptfs_gpu *g, const char *dir, const struct ckptfs_gpu_options *options)
{
	int r;

	g->dir = strdup(dir);
	if (!g->dir)
		return -ENOMEM;
	r = set_options(g, options);
	if (r < 0)
		return r;
	if (getrandom(g->key, sizeof(g->key), 0) != sizeof(g->key) || getrandom(g->id, sizeof(g->id), 0) != sizeof(g->id))
		return log_errno(-errno, "lineage %s: cannot get a random key", dir);
	g->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (g->event_fd < 0)
		return log_errno(-errno, "lineage %s: cannot create an eventfd", dir);
	r = lineage_open(dir, &g->lineage);
	if (r < 0)
		return r;
	return start_thread(g);
}

int ckptfs_gpu_open(const char *dir, const struct ckptfs_gpu_options *options, struct ckptfs_gpu **ret)
{
	struct ckptfs_gpu *g = calloc(1, sizeof(*g));
	int r;

	if (!g)
		return -ENOMEM;
	g->event_fd = -1;
	mutex_init(&g->call);
	mutex_init(&g->lock);
	cond_init(&g->changed);
	r = handle_init(g, dir, options);
	if (r < 0) {
		ckptfs_gpu_close(g);
		return r;
	}
	*ret = g;
	return 0;
}

int ckptfs_gpu_close(struct ckptfs_gpu *g)
{
	int r;

	if (!g)
		return 0;
	r = refuse_callback(g);
	if (r < 0)
		return r;
	mutex_lock(&g->lock);
	g->stop = true;
	cond_broadcast(&g->changed);
	mutex_unlock(&g->lock);
	if (g->has_thread)
		pthread_join(g->thread, NULL); /* it completes its job first */
	r = g->error;
	producer_drop(g);
	lineage_close(g->lineage);
	layout_release(&g->layout);
	closep(&g->event_fd);
	cond_release(&g->changed);
	mutex_release(&g->lock);
	mutex_release(&g->call);
	explicit_bzero(g->key, sizeof(g->key));
	free(g->dir);
	free(g);
	return r;
}

/* --- a checkpoint --- */

/* The layout of the new file: buffers by offset, and behind them the manifest. */
struct file_plan {
	struct layout_want *wants;
	struct delta_buffer *buffers;
	size_t nr_buffers;
	struct buf manifest;
	uint64_t len;
};

static void file_plan_release(struct file_plan *p)
{
	free(p->wants);
	free(p->buffers);
	buf_release(&p->manifest);
}

static int check_buffers(const struct ckptfs_gpu *g, const struct ckptfs_gpu_buffer *buffers, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		const struct ckptfs_gpu_buffer *b = &buffers[i];
		size_t name_len = b->name ? strnlen(b->name, MANIFEST_NAME_MAX + 1) : 0;

		if (name_len == 0 || name_len > MANIFEST_NAME_MAX)
			return log_errno(-EINVAL, "lineage %s: buffer %zu: the name must have 1 to %u bytes", g->dir, i,
					 MANIFEST_NAME_MAX);
		if ((!b->p && b->len > 0) || (!b->info && b->info_len > 0))
			return log_errno(-EINVAL, "lineage %s: buffer %s: pointer is NULL", g->dir, b->name);
		if (b->info_len > MANIFEST_LEN_MAX)
			return log_errno(-EINVAL, "lineage %s: buffer %s: %zu bytes of info", g->dir, b->name,
					 b->info_len);
	}
	return 0;
}

static int by_off(const void *a, const void *b)
{
	const struct delta_buffer *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

static int make_manifest(const struct ckptfs_gpu_buffer *buffers, size_t nr, struct file_plan *p)
{
	for (size_t i = 0; i < nr; i++)
		manifest_add(&p->manifest, &(struct manifest_entry){
						   .off = p->wants[i].off,
						   .len = buffers[i].len,
						   .name = buffers[i].name,
						   .name_len = (uint32_t)strlen(buffers[i].name),
						   .info = buffers[i].info,
						   .info_len = (uint32_t)buffers[i].info_len,
					   });
	if (p->manifest.len > MANIFEST_LEN_MAX)
		return -EFBIG;
	manifest_end(&p->manifest, p->len, nr);
	return buf_error(&p->manifest);
}

static int arrange(struct ckptfs_gpu *g, const struct ckptfs_gpu_buffer *buffers, size_t nr, struct file_plan *p)
	REQUIRES(g->call)
{
	int r;

	p->wants = calloc(MAX(nr, (size_t)1), sizeof(*p->wants));
	p->buffers = calloc(nr + 1, sizeof(*p->buffers));
	if (!p->wants || !p->buffers)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++)
		p->wants[i] = (struct layout_want){ .name = buffers[i].name, .len = buffers[i].len };
	r = layout_arrange(&g->layout, p->wants, nr, &p->len);
	if (r < 0)
		return log_errno(r, "lineage %s: cannot place the buffers%s", g->dir,
				 r == -EINVAL ? ": duplicate name" : "");
	r = make_manifest(buffers, nr, p);
	if (r < 0)
		return log_errno(r, "lineage %s: cannot encode the manifest", g->dir);
	for (size_t i = 0; i < nr; i++)
		if (buffers[i].len > 0)
			p->buffers[p->nr_buffers++] =
				(struct delta_buffer){ .p = buffers[i].p, .len = buffers[i].len, .off = p->wants[i].off };
	qsort(p->buffers, p->nr_buffers, sizeof(*p->buffers), by_off);
	p->buffers[p->nr_buffers++] =
		(struct delta_buffer){ .p = p->manifest.data, .len = p->manifest.len, .off = p->len };
	p->len += p->manifest.len;
	return 0;
}

static int find_device(const struct ckptfs_gpu *g, const struct ckptfs_gpu_buffer *buffers, size_t nr, int *ret)
{
	int device = PRODUCER_CPU;

	for (size_t i = 0; i < nr; i++) {
		int d = buffers[i].len > 0 ? gpu_device_of(buffers[i].p) : PRODUCER_CPU;

		if (d != PRODUCER_CPU && device != PRODUCER_CPU && d != device)
			return log_errno(-EINVAL, "lineage %s: buffers of GPU %d and of GPU %d: use a lineage for each",
					 g->dir, device, d);
		device = MAX(device, d);
	}
	*ret = device;
	return 0;
}

/* Warns that the CPU is used, or refuses it. */
static int check_cpu(const struct ckptfs_gpu *g)
{
	const char *why = gpu_missing();

	if (g->options.flags & CKPTFS_GPU_REQUIRE)
		return log_errno(-ENODEV, "lineage %s: %s", g->dir, why ? why : "no buffer is in GPU memory");
	if (why)
		log_warning("lineage %s: no GPU: %s: changes are detected on the CPU, which is slow and keeps a copy of all content",
			    g->dir, why);
	else
		log_warning("lineage %s: no buffer is in GPU memory: changes are detected on the CPU", g->dir);
	return 0;
}

/* A producer for the device of the buffers. A new one has no record of earlier versions. */
static int ensure_producer(struct ckptfs_gpu *g, int device, uint64_t content_len) REQUIRES(g->call)
{
	struct delta_record_params params = {
		.chunk_len = g->options.chunk_size,
		.table_limit = g->options.table_limit,
	};
	int r = 0;

	if (g->producer && g->producer->device == device)
		return 0;
	if (params.table_limit == 0)
		params.table_limit = chunks_of(content_len, params.chunk_len) * PRODUCER_CHUNK_BYTES;
	memcpy(params.key, g->key, sizeof(params.key));
	memcpy(params.lineage, g->id, sizeof(params.lineage));
	if (device == PRODUCER_CPU)
		r = check_cpu(g);
	if (r < 0)
		return r;
	producer_drop(g);
	return device == PRODUCER_CPU ? producer_new_cpu(&params, &g->producer) :
					producer_new_gpu(device, &params, &g->producer);
}

/* Removes deleted versions from the record: deltas must not refer to them. */
static int forget_lost(struct ckptfs_gpu *g) REQUIRES(g->call)
{
	_cleanup_(freep) uint32_t *lost = NULL;
	size_t nr;
	int r;

	r = lineage_lost(g->lineage, &lost, &nr);
	for (size_t i = 0; r == 0 && g->producer && i < nr; i++)
		r = g->producer->ops->forget(g->producer, lost[i]);
	if (r < 0)
		producer_drop(g);
	return r;
}

static int take_version(struct ckptfs_gpu *g, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
			void *stream) REQUIRES(g->call)
{
	_cleanup_(file_plan_release) struct file_plan p = { 0 };
	struct delta_take t = {
		.method = methods[g->options.method],
		.number = number,
		.compare = g->options.flags & CKPTFS_GPU_COMPARE,
	};
	int device = PRODUCER_CPU, r;

	r = check_buffers(g, buffers, nr);
	if (r < 0)
		return r;
	if (number <= g->last_number)
		return log_errno(-EINVAL, "lineage %s: version %" PRIu32 " is not above %" PRIu32, g->dir, number,
				 g->last_number);
	r = lineage_has(g->lineage, number);
	if (r != 0)
		return r < 0 ? r : log_errno(-EEXIST, "lineage %s: version %" PRIu32 " exists", g->dir, number);
	r = find_device(g, buffers, nr, &device);
	if (r == 0)
		r = forget_lost(g);
	if (r == 0)
		r = arrange(g, buffers, nr, &p);
	if (r == 0)
		r = ensure_producer(g, device, p.len);
	return r < 0 ? r : g->producer->ops->take(g->producer, p.buffers, p.nr_buffers, &t, stream);
}

int ckptfs_gpu_checkpoint(struct ckptfs_gpu *g, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
			  void *stream, ckptfs_gpu_done done, void *arg)
{
	uint64_t start = monotonic_ns();
	int r;

	if (!call_enter(g, &r))
		return r;
	r = take_version(g, number, buffers, nr, stream);
	if (r == 0) {
		mutex_lock(&g->lock);
		g->job = (struct job){ .number = number, .done = done, .arg = arg, .take_ns = monotonic_ns() - start };
		cond_broadcast(&g->changed);
		mutex_unlock(&g->lock);
	}
	mutex_unlock(&g->call);
	return r;
}

int ckptfs_gpu_wait(struct ckptfs_gpu *g)
{
	int r;

	r = refuse_callback(g);
	if (r < 0)
		return r;
	mutex_lock(&g->lock);
	while (g->job.number != 0)
		cond_wait(&g->changed, &g->lock);
	r = g->error;
	g->error = 0;
	mutex_unlock(&g->lock);
	return r;
}

int ckptfs_gpu_event_fd(struct ckptfs_gpu *g)
{
	return g->event_fd;
}

int ckptfs_gpu_stats(struct ckptfs_gpu *g, struct ckptfs_gpu_stats *ret)
{
	if (ret->size != sizeof(*ret))
		return -EINVAL;
	mutex_lock(&g->lock);
	*ret = g->stats;
	mutex_unlock(&g->lock);
	ret->size = sizeof(*ret);
	return 0;
}

/* --- versions --- */

int ckptfs_gpu_restore(struct ckptfs_gpu *g, uint32_t number, const struct ckptfs_gpu_buffer *buffers, size_t nr,
		       void *stream)
{
	int r;

	if (!call_enter(g, &r))
		return r;
	r = check_buffers(g, buffers, nr);
	if (r == 0)
		r = version_restore(g->lineage, number, buffers, nr, stream);
	mutex_unlock(&g->call);
	return r;
}

int ckptfs_gpu_version_read(struct ckptfs_gpu *g, uint32_t number, struct ckptfs_gpu_version **ret)
{
	int r;

	if (!call_enter(g, &r))
		return r;
	r = version_read(g->lineage, number, ret);
	mutex_unlock(&g->call);
	return r;
}

int ckptfs_gpu_versions(struct ckptfs_gpu *g, uint32_t **ret, size_t *ret_nr)
{
	int r;

	if (!call_enter(g, &r))
		return r;
	r = lineage_versions(g->lineage, ret, ret_nr);
	mutex_unlock(&g->call);
	return r;
}

int ckptfs_gpu_delete(struct ckptfs_gpu *g, uint32_t number)
{
	int r;

	if (!call_enter(g, &r))
		return r;
	r = lineage_delete(g->lineage, number);
	mutex_unlock(&g->call);
	return r;
}

const char *ckptfs_gpu_strerror(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ ENOTTY, "not a directory of a ckptfs mount: mount one with mount.ckptfs, or use a path below one" },
		{ ENODEV, "no usable GPU" },
		{ EEXIST, "a version with this number exists: choose a higher number, or delete it" },
		{ ENOENT, "no such version, no such buffer in it, or no parent directory for the lineage: see stderr" },
		{ ERANGE, "the buffer has another length in that version" },
		{ ESTALE, "a version was deleted while a checkpoint referred to it: the next one will copy everything" },
		{ EBADMSG, "the file is damaged, not a version, or differs from the GPU's content" },
		{ ENOSPC, "no space left: delete old versions and run ckptfs gc --delete" },
		{ EDQUOT, "quota of the store's filesystem exceeded: delete old versions and run ckptfs gc --delete" },
		{ EROFS, "the mount is read-only" },
		{ ENOTCONN, "the mount's daemon is not running: mount again, and this handle continues" },
		{ ECONNABORTED, "the mount's daemon has ended meanwhile: mount again, and this handle continues" },
		{ EDEADLK, "called from a callback, which would wait for itself" },
		{ ENOMEM, "not enough host or GPU memory: lower table_limit, or use larger chunks" },
		{ EIO, "the GPU or the disk has failed: see stderr, and the mount's log" },
		{ EINVAL, "invalid argument: see stderr" },
	};

	error = error < 0 ? -error : error;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return strerror(error);
}
