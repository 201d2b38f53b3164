/*
 * The thread that writes checkpoints: Algorithm 3 of the paper, in batches.
 *
 *   stage (clone of the last) ─▶ holes ─▶ { next ─▶ copy to a buffer ─▶ done ─▶ write }... ─▶ extras, table, header ─▶
 *   commit
 *                                              pages are in progress
 *
 * A batch is copied first and written then: so a page is in progress for a microsecond and not for as long as the store
 * takes, and pages that come far from each other in the chosen order, but lie side by side, become one request. Within
 * a batch pages are sorted by their place. How many a batch has is what can be written in a given time: the longest
 * that a page which is waited for waits for others. By address these are pages that nobody waits for; in an order that
 * follows the program they are what it will want next, and releasing it once for many pages is better than for each.
 *
 * A program that goes through its memory in no order at all would have it written in requests of a page each. Where
 * these take long for what is in them, pages bring their neighbours with them (block_of()), as many as make the most of
 * a request: what is written early for that is avoided later.
 *
 * A failure at any moment leaves the last checkpoint as it is. What was to be written is dirty again, and whoever waits
 * goes on.
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
#include "client/client.h"
#include "client/image.h"

#define BATCH_MAX 256u /* pages: a MiB, the largest request that a mount takes at once */
#define BATCH_NS 250000u
#define BATCH_FOLLOWING_NS 1000000u
#define BLOCK_MAX 16u /* pages */
#define RUN_MIN (BLOCK_MAX / 2) /* from so many on a request shows what a page takes */

struct writer {
	int fd;
	uint8_t *buffer; /* BATCH_MAX pages */
	uint32_t batch[BATCH_MAX], nr; /* page numbers */
	uint32_t size; /* of the next batch */
	struct io_rate *rate; /* NULL: no limit */
	/* that a request of one page takes; a page of a long one. Means of this checkpoint; 0: there was none */
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

/* *took_ns (may be NULL): without what the limit makes it wait. */
static int put(struct writer *w, const void *p, size_t len, uint64_t off, uint64_t *took_ns)
{
	uint64_t start;
	int r;

	io_rate_wait_while(w->rate, len, is_limited, NULL);
	start = monotonic_ns();
	r = io_pwrite(w->fd, p, len, off);
	if (took_ns)
		*took_ns = monotonic_ns() - start;
	if (r < 0)
		return log_errno(r, "checkpoint %s/%06" PRIu32 ": %zu bytes at %" PRIu64, image_dir_path(client.dir),
				 client.job.number, len, off);
	w->stats->writes++;
	w->stats->written_bytes += len;
	return 0;
}

static void learn(uint64_t *mean_ns, uint64_t ns)
{
	*mean_ns = *mean_ns == 0 ? ns : (15 * *mean_ns + ns) / 16;
}

/* Pages that a page brings with it: as many as it takes until what a request costs by itself is a quarter of what is in
 * it, at most. */
static uint32_t block_of(const struct writer *w)
{
	uint64_t limit_ns =
		client.options.write_rate > 0 ? client.page_size * UINT64_C(1000000000) / client.options.write_rate : 0;
	uint64_t single_ns = MAX(w->single_ns, limit_ns), page_ns = MAX(w->page_ns, limit_ns);
	uint32_t block = 1;

	if (client.options.mode <= CKPTFS_MODE_ASYNC || w->single_ns == 0) /* by address neighbours come anyway */
		return 1;
	if (w->page_ns == 0)
		return BLOCK_MAX; /* then it will be known */
	while (block < BLOCK_MAX && single_ns > page_ns && 2 * block * page_ns <= 4 * (single_ns - page_ns))
		block *= 2;
	return block;
}

/* The next pages into the buffer, by their place in the file. From then on the program may change them. */
static void take_batch(struct writer *w)
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

/* Neighbours are one request. */
static int write_batch(struct writer *w)
{
	for (uint32_t i = 0, end; i < w->nr; i = end) {
		uint64_t took_ns;
		int r;

		for (end = i + 1; end < w->nr && w->batch[end] == w->batch[end - 1] + 1; end++)
			;
		r = put(w, w->buffer + (size_t)i * client.page_size, (size_t)(end - i) * client.page_size,
			(uint64_t)w->batch[i] * client.page_size, &took_ns);
		if (r < 0)
			return r;
		if (end - i == 1)
			learn(&w->single_ns, took_ns);
		else if (end - i >= RUN_MIN)
			learn(&w->page_ns, took_ns / (end - i));
	}
	return 0;
}

static void size_next_batch(struct writer *w, uint64_t took_ns)
{
	uint64_t may_take_ns = client.options.mode == CKPTFS_MODE_ASYNC ? BATCH_NS : BATCH_FOLLOWING_NS;

	if (client.options.mode == CKPTFS_MODE_SYNC)
		w->size = BATCH_MAX; /* nobody waits for a page, but for all */
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

		take_batch(w);
		if (w->nr == 0)
			return 0;
		r = write_batch(w);
		size_next_batch(w, monotonic_ns() - start);
	}
	return r;
}

/* Where the last file has what is somebody else's now, or nobody's. */
static int clear_holes(struct writer *w, const struct job *job)
{
	const struct extra *hole = (const struct extra *)job->holes.data;

	for (size_t i = 0; i < job->holes.len / sizeof(*hole); i++) {
		int r = io_punch(w->fd, hole[i].off, hole[i].len);

		/* not on every filesystem; the rest of the buffer's first page is enough for it */
		if (r == -EOPNOTSUPP) {
			memset(w->buffer, 0, client.page_size);
			r = 0;
			for (uint64_t off = 0; r == 0 && off < hole[i].len; off += client.page_size)
				r = put(w, w->buffer, client.page_size, hole[i].off + off, NULL);
		}
		if (r < 0)
			return log_errno(r, "checkpoint %s/%06" PRIu32 ": bytes of a region that is gone",
					 image_dir_path(client.dir), job->number);
	}
	return 0;
}

static int write_rest(struct writer *w, const struct job *job)
{
	const struct extra *extra = (const struct extra *)job->extras.data;
	struct image_header_disk disk;
	int r = 0;

	for (size_t i = 0; r == 0 && i < job->extras.len / sizeof(*extra); i++)
		r = put(w, job->extra_bytes.data + extra[i].at, extra[i].len, extra[i].off, NULL);
	if (r == 0 && job->table.len > 0)
		r = put(w, job->table.data, job->table.len, job->header.table_off, NULL);
	if (r < 0)
		return r;
	image_header_encode(&job->header, &disk);
	memset(w->buffer, 0, client.page_size);
	memcpy(w->buffer, &disk, sizeof(disk));
	return put(w, w->buffer, client.page_size, 0, NULL);
}

static int write_image(struct writer *w, const struct job *job, uint32_t parent)
{
	int r;

	w->fd = image_stage(client.dir, job->number, parent);
	if (w->fd < 0)
		return w->fd;
	/* What was behind the regions, the last table, is not to be seen where they have grown. */
	r = io_truncate(w->fd, parent != 0 ? job->kept_len : 0);
	if (r == 0)
		r = io_truncate(w->fd, job->header.table_off + job->table.len);
	if (r < 0)
		log_errno(r, "checkpoint %s/%06" PRIu32 ": %" PRIu64 " bytes", image_dir_path(client.dir), job->number,
			  job->header.table_off);
	if (r == 0)
		r = clear_holes(w, job);
	if (r == 0)
		r = write_pages(w);
	if (r == 0)
		r = write_rest(w, job);
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

/* Of the job that there is. */
static void do_job(struct writer *w) REQUIRES(client.job_lock) NO_THREAD_SAFETY_ANALYSIS
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
	} else if (r == -ESTALE) { /* the next one has to be complete */
		client.last = 0;
		client.last_end = 0;
		client.last_lost = true;
	}
	client.error = r;
	client.told = r == 0;
	client_job_clear(&client.job);
	atomic_fetch_add(&client.nr_ended, 1);
	futex_wake_all(&client.nr_ended);
}

static void *run(void *arg)
{
	struct writer *w = arg;

	mutex_lock(&client.job_lock);
	for (;;) {
		while (client.job.number == 0 && !client.stop)
			cond_wait(&client.job_changed, &client.job_lock);
		if (client.job.number == 0)
			break;
		do_job(w);
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
	/* The program's signals are not for it. */
	signals_block(&before);
	if (r == 0)
		r = -pthread_create(&client.thread, NULL, run, w);
	signals_restore(&before);
	if (r < 0) {
		io_rate_free(w->rate);
		munmap(w->buffer, (size_t)BATCH_MAX * client.page_size);
		free(w);
		return log_errno(r, "checkpoints: thread");
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

/* Signals come while it waits, and find no lock held but `call`. */
void writer_wait(void)
{
	for (;;) {
		uint32_t nr_ended = atomic_load(&client.nr_ended);

		if (!client_is_writing())
			return;
		futex_wait(&client.nr_ended, nr_ended);
	}
}
