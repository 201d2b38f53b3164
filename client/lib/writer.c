/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The thread that writes checkpoints: Algorithm 3 of the paper, in batches.
 *
 *   stage (clone of the last) ─▶ holes ─▶ { next ─▶ copy to a buffer ─▶ done ─▶ write }... ─▶ extras, table, header ─▶
 *   commit
 *                                              pages are in progress
 *
 * A batch is copied to a buffer before it is written: so a page is in progress for a microsecond only, and pages that
 * are adjacent in the file, but far apart in the chosen order, become one request. Pages of a batch are sorted by
 * their place in the file. The size of a batch is limited by the time it takes to write, which bounds how long a page
 * that the program waits for is delayed by others. By address, the others are pages that the program does not wait for.
 * In an order that follows the program they are the pages it needs next, and waking it once for many of them is
 * cheaper: such batches may take longer.
 *
 * With random access every request would be a single page. Where small requests are slow for their size, pages bring
 * their neighbours with them (block_of()), up to the size at which a request is efficient. Pages written early in this
 * way need not be copied or waited for later.
 *
 * A failure at any time leaves the last checkpoint unchanged. The pages of the failed one become dirty again, and
 * waiting threads continue.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "client/lib/client.h"
#include "client/lib/image.h"

#define BATCH_MAX 256u /* pages: a MiB, the largest request that a mount takes at once */
#define BATCH_NS 250000u
#define BATCH_FOLLOWING_NS 1000000u
#define BLOCK_MAX 16u /* pages */
#define RUN_MIN (BLOCK_MAX / 2) /* pages of a request that counts as long */

struct writer {
	int fd;
	uint8_t *buffer; /* BATCH_MAX pages */
	uint32_t batch[BATCH_MAX], nr; /* page numbers */
	uint32_t size; /* of the next batch */
	struct io_rate *rate; /* NULL: no limit */
	/* mean times in this checkpoint of a request of one page, and per page of a long one; 0: there was none */
	uint64_t single_ns, page_ns;
	struct ckptfs_stats *stats;
};

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static bool is_limited(void *userdata _unused_)
{
	return !atomic_load(&client.hurry);
}

/* *took_ns (may be NULL): the duration without the wait for the write rate. */
static int write_at(struct writer *w, const void *p, size_t len, uint64_t off, uint64_t *took_ns)
{
	uint64_t start;
	int r;

	io_rate_wait_while(w->rate, len, is_limited, NULL);
	start = monotonic_ns();
	r = io_pwrite(w->fd, p, len, off);
	if (took_ns)
		*took_ns = monotonic_ns() - start;
	if (r < 0)
		return log_errno(r, "checkpoint %s/%06" PRIu32 ": cannot write %zu bytes at %" PRIu64,
				 image_dir_path(client.dir), client.job.number, len, off);
	w->stats->writes++;
	w->stats->written_bytes += len;
	return 0;
}

static void update_mean(uint64_t *mean_ns, uint64_t ns)
{
	*mean_ns = *mean_ns == 0 ? ns : (15 * *mean_ns + ns) / 16;
}

/* The number of neighbouring pages to write together: the smallest with which the fixed cost of a request is at most a
 * quarter of the cost of its pages. */
static uint32_t block_of(const struct writer *w)
{
	uint64_t limit_ns =
		client.options.write_rate > 0 ? client.page_size * UINT64_C(1000000000) / client.options.write_rate : 0;
	uint64_t single_ns = MAX(w->single_ns, limit_ns), page_ns = MAX(w->page_ns, limit_ns);
	uint32_t block = 1;

	if (client.options.mode <= CKPTFS_MODE_ASYNC || w->single_ns == 0) /* by address, neighbours follow anyway */
		return 1;
	if (w->page_ns == 0)
		return BLOCK_MAX; /* to measure it */
	while (block < BLOCK_MAX && single_ns > page_ns && 2 * block * page_ns <= 4 * (single_ns - page_ns))
		block *= 2;
	return block;
}

/* Copies the next pages to the buffer, sorted by their place in the file. The program may change them then. */
static void fill_batch(struct writer *w)
{
	const uint8_t *from[BATCH_MAX];
	uint32_t block = block_of(w);

	siglock_lock(&client.lock); /* this thread has all signals blocked */
	w->nr = pages_next(&client.pages, client_epoch_us(monotonic_ns()), block, w->batch, w->size);
	qsort(w->batch, w->nr, sizeof(*w->batch), by_number);
	for (uint32_t i = 0; i < w->nr; i++) {
		uint32_t slot = client.pages.page[w->batch[i]].slot;

		from[i] = slot != PAGES_NONE ? client.copies + (size_t)slot * client.page_size :
					       region_address(region_of_page(w->batch[i]), w->batch[i]);
	}
	siglock_unlock(&client.lock);
	for (uint32_t i = 0; i < w->nr; i++)
		memcpy(w->buffer + (size_t)i * client.page_size, from[i], client.page_size);
	siglock_lock(&client.lock);
	pages_done(&client.pages, w->batch, w->nr);
	fault_done(w->batch, w->nr);
	siglock_unlock(&client.lock);
}

/* Adjacent pages are one request. */
static int write_batch(struct writer *w)
{
	for (uint32_t i = 0, end; i < w->nr; i = end) {
		uint64_t took_ns;
		int r;

		for (end = i + 1; end < w->nr && w->batch[end] == w->batch[end - 1] + 1; end++)
			;
		r = write_at(w, w->buffer + (size_t)i * client.page_size, (size_t)(end - i) * client.page_size,
			     (uint64_t)w->batch[i] * client.page_size, &took_ns);
		if (r < 0)
			return r;
		if (end - i == 1)
			update_mean(&w->single_ns, took_ns);
		else if (end - i >= RUN_MIN)
			update_mean(&w->page_ns, took_ns / (end - i));
	}
	return 0;
}

static void size_next_batch(struct writer *w, uint64_t took_ns)
{
	uint64_t may_take_ns = client.options.mode == CKPTFS_MODE_ASYNC ? BATCH_NS : BATCH_FOLLOWING_NS;

	if (client.options.mode == CKPTFS_MODE_SYNC)
		w->size = BATCH_MAX; /* the program waits for all pages together */
	else if (took_ns > may_take_ns)
		w->size = (uint32_t)MAX(w->nr * may_take_ns / took_ns, UINT64_C(1));
	else if (w->nr == w->size)
		w->size = MIN(2 * w->size, BATCH_MAX);
}

static int write_pages(struct writer *w)
{
	int r = 0;

	w->size = client.options.mode == CKPTFS_MODE_SYNC ? BATCH_MAX : BATCH_MAX / 8;
	w->single_ns = w->page_ns = 0;
	while (r == 0) {
		uint64_t start = monotonic_ns();

		fill_batch(w);
		if (w->nr == 0)
			return 0;
		r = write_batch(w);
		size_next_batch(w, monotonic_ns() - start);
	}
	return r;
}

/* Zeroes the ranges where the cloned file has bytes of regions that are gone. */
static int clear_holes(struct writer *w, const struct job *job)
{
	const struct extra *hole = (const struct extra *)job->holes.data;

	for (size_t i = 0; i < job->holes.len / sizeof(*hole); i++) {
		int r = io_punch(w->fd, hole[i].off, hole[i].len);

		/* Not every filesystem can punch holes. */
		if (r == -EOPNOTSUPP) {
			memset(w->buffer, 0, client.page_size);
			r = 0;
			for (uint64_t off = 0; r == 0 && off < hole[i].len; off += client.page_size)
				r = write_at(w, w->buffer, client.page_size, hole[i].off + off, NULL);
		}
		if (r < 0)
			return log_errno(r, "checkpoint %s/%06" PRIu32 ": cannot zero bytes of a removed region",
					 image_dir_path(client.dir), job->number);
	}
	return 0;
}

static int write_metadata(struct writer *w, const struct job *job)
{
	const struct extra *extra = (const struct extra *)job->extras.data;
	struct image_header_disk disk;
	int r = 0;

	for (size_t i = 0; r == 0 && i < job->extras.len / sizeof(*extra); i++)
		r = write_at(w, job->extra_bytes.data + extra[i].at, extra[i].len, extra[i].off, NULL);
	if (r == 0 && job->table.len > 0)
		r = write_at(w, job->table.data, job->table.len, job->header.table_off, NULL);
	if (r < 0)
		return r;
	image_header_encode(&job->header, &disk);
	memset(w->buffer, 0, client.page_size);
	memcpy(w->buffer, &disk, sizeof(disk));
	return write_at(w, w->buffer, client.page_size, 0, NULL);
}

static int write_image(struct writer *w, const struct job *job, uint32_t parent)
{
	int r;

	w->fd = image_stage(client.dir, job->number, parent);
	if (w->fd < 0)
		return w->fd;
	/* The bytes of the last table must not appear in regions that now extend over it. */
	r = io_truncate(w->fd, parent != 0 ? job->kept_len : 0);
	if (r == 0)
		r = io_truncate(w->fd, job->header.table_off + job->table.len);
	if (r < 0)
		log_errno(r, "checkpoint %s/%06" PRIu32 ": cannot truncate to %" PRIu64 " bytes",
			  image_dir_path(client.dir), job->number, job->header.table_off);
	if (r == 0)
		r = clear_holes(w, job);
	if (r == 0)
		r = write_pages(w);
	if (r == 0)
		r = write_metadata(w, job);
	if (r < 0)
		image_abandon(client.dir, job->number, w->fd);
	else
		r = image_commit(client.dir, job->number, w->fd);
	return r;
}

static void end_epoch(int r)
{
	siglock_lock(&client.lock);
	if (r == 0)
		pages_end(&client.pages);
	else
		pages_fail(&client.pages);
	fault_release_all();
	siglock_unlock(&client.lock);
}

/* Writes the checkpoint of client.job. */
static void run_job(struct writer *w) REQUIRES(client.job_lock) NO_THREAD_SAFETY_ANALYSIS
{
	struct ckptfs_stats stats = client.stats[client.job.number % CKPTFS_STATS_KEPT];
	uint32_t parent = client.last;
	int r;

	mutex_unlock(&client.job_lock);
	w->stats = &stats;
	r = write_image(w, &client.job, parent);
	stats.write_ns = monotonic_ns() - client.job.asked_ns;
	end_epoch(r);
	if (r == 0 && client.options.keep > 0)
		image_dir_prune(client.dir, client.options.keep);
	mutex_lock(&client.job_lock);
	stats.error = r;
	client.stats[client.job.number % CKPTFS_STATS_KEPT] = stats;
	if (r == 0) {
		client.last = client.job.number;
		client.last_end = client.job.header.table_off;
	} else if (r == -ESTALE) { /* without a parent, the next one must write all pages */
		client.last = 0;
		client.last_end = 0;
		client.last_lost = true;
	}
	client.error = r;
	client.error_reported = r == 0;
	client_job_clear(&client.job);
	atomic_fetch_add(&client.nr_ended, 1);
	futex_wake_all(&client.nr_ended);
}

static void *writer_thread(void *arg)
{
	struct writer *w = arg;

	mutex_lock(&client.job_lock);
	for (;;) {
		while (client.job.number == 0 && !client.stop)
			cond_wait(&client.job_changed, &client.job_lock);
		if (client.job.number == 0)
			break;
		run_job(w);
	}
	mutex_unlock(&client.job_lock);
	io_rate_free(w->rate);
	munmap(w->buffer, (size_t)BATCH_MAX * client.page_size);
	free(w);
	return NULL;
}

int writer_start(void)
{
	struct writer *w = calloc(1, sizeof(*w));
	sigset_t before;
	int r = 0;

	if (!w)
		return -ENOMEM;
	w->buffer = mmap(NULL, (size_t)BATCH_MAX * client.page_size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->buffer == MAP_FAILED) {
		free(w);
		return -ENOMEM;
	}
	if (client.options.write_rate > 0)
		r = io_rate_new(client.options.write_rate, &w->rate);
	client.stop = false;
	/* The program's signals must not be delivered to the writer. */
	signals_block(&before);
	if (r == 0)
		r = -pthread_create(&client.thread, NULL, writer_thread, w);
	signals_restore(&before);
	if (r < 0) {
		io_rate_free(w->rate);
		munmap(w->buffer, (size_t)BATCH_MAX * client.page_size);
		free(w);
		return log_errno(r, "checkpoints: cannot start the writer");
	}
	client.has_thread = true;
	return 0;
}

void writer_stop(void)
{
	sigset_t before;

	if (!client.has_thread)
		return;
	client_job_lock(&before);
	client.stop = true;
	cond_broadcast(&client.job_changed);
	client_job_unlock(&before);
	pthread_join(client.thread, NULL);
	client.has_thread = false;
}

bool client_is_writing(void)
{
	sigset_t before;
	bool busy;

	client_job_lock(&before);
	busy = client.job.number != 0;
	client_job_unlock(&before);
	return busy;
}

/* Signals may be handled during the wait; no lock but `call` is held then. */
void writer_wait(void)
{
	for (;;) {
		uint32_t nr_ended = atomic_load(&client.nr_ended);

		if (!client_is_writing())
			return;
		futex_wait(&client.nr_ended, nr_ended);
	}
}
