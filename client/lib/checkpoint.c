/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Taking a checkpoint: Algorithm 1 of the paper.
 *
 *   1. wait for the last one
 *   2. copy the bytes outside whole pages, and encode the table of regions
 *   3. close all pages                          from here on writes are detected
 *   4. schedule the dirty pages and pass them to the writer
 *
 * client.lock is held during 3. Opening a page requires it: a thread that writes to a closed page waits until all pages
 * are closed. So with userfaultfd, except its asynchronous variant, the checkpoint is a snapshot of the memory at the
 * end of 3, whatever other threads do.
 *
 * If a step fails, nothing has changed: pages that were closed but are recorded as open are opened by the next write.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/util.h"
#include "client/lib/ckptfs.h"
#include "client/lib/client.h"
#include "client/lib/image.h"
#include "client/lib/track.h"

static void add_extra(struct buf *extras, struct buf *bytes, uint64_t off, const void *p, size_t len)
{
	struct extra extra = { .off = off, .at = bytes ? bytes->len : 0, .len = len };

	if (len == 0)
		return;
	if (bytes)
		buf_add(bytes, p, len);
	buf_add(extras, &extra, sizeof(extra));
}

/* Adds the bytes before and behind the whole pages of a region. */
static void add_edges(struct job *job, const struct region *r)
{
	size_t tracked = (size_t)r->nr_pages * client.page_size,
	       front = r->nr_pages > 0 ? (size_t)(r->start - r->p) : r->len;

	add_extra(&job->extras, &job->extra_bytes, region_off(r), r->p, front);
	if (r->nr_pages > 0)
		add_extra(&job->extras, &job->extra_bytes, region_off(r) + front + tracked, r->start + tracked,
			  r->len - front - tracked);
}

/* Fills the job with the table of regions, their bytes outside whole pages, and the ranges that must be zeroed in the
 * clone of the last file. */
static int job_add_regions(struct job *job, uint32_t last, uint64_t last_end) REQUIRES(client.call)
{
	uint64_t end = client.page_size;

	for (uint32_t i = 0; i < client.nr_regions; i++) {
		struct region *r = client.by_slot[i];
		uint64_t begin = (uint64_t)r->slot * client.page_size,
			 until = begin + (uint64_t)r->nr_slot * client.page_size;

		image_region_encode(&job->table, &(struct image_region){
							 .off = region_off(r),
							 .len = r->len,
							 .address = (uintptr_t)r->p,
							 .flags = r->ours || r->captured ? IMAGE_REGION_OURS : 0,
							 .name_len = (uint32_t)strlen(r->name),
							 .name = r->name,
						 });
		add_edges(job, r);
		if (client.holes_since > last && begin > end && end < last_end)
			add_extra(&job->holes, NULL, end, NULL, MIN(begin, last_end) - end);
		if (r->since > last && begin < last_end)
			add_extra(&job->holes, NULL, begin, NULL, MIN(until, last_end) - begin);
		end = until;
	}
	job->kept_len = MIN(end, last_end);
	job->header = (struct image_header){
		.page_size = client.page_size,
		.table_off = end,
		.table_len = job->table.len,
		.nr_regions = client.nr_regions,
		.table_crc = crc32c(job->table.data, job->table.len),
	};
	if (buf_error(&job->table) < 0 || buf_error(&job->extras) < 0 || buf_error(&job->extra_bytes) < 0 ||
	    buf_error(&job->holes) < 0)
		return log_errno(-ENOMEM, "checkpoint: cannot encode the table of %" PRIu32 " regions",
				 client.nr_regions);
	return 0;
}

static const enum pages_order orders[] = {
	[CKPTFS_MODE_SYNC] = PAGES_BY_ADDRESS,
	[CKPTFS_MODE_ASYNC] = PAGES_BY_ADDRESS,
	[CKPTFS_MODE_ADAPTIVE] = PAGES_BY_PATTERN,
	[CKPTFS_MODE_PREDICTIVE] = PAGES_BY_PREDICTION,
};

static void count_epoch(struct ckptfs_stats *stats) REQUIRES(client.lock)
{
	stats->cow = client.pages.count[ACCESS_COW];
	stats->wait = client.pages.count[ACCESS_WAIT];
	stats->avoided = client.pages.count[ACCESS_AVOIDED];
	stats->after = client.pages.count[ACCESS_AFTER];
	stats->phases = client.pages.nr_phases;
	stats->wait_ns = client.wait_ns;
}

/* Closes all pages, so that every write is detected. */
static int close_all(void) REQUIRES(client.lock)
{
	for (uint32_t i = 0; i < client.nr_regions; i++) {
		struct region *r = client.by_slot[i];
		int error = r->nr_pages > 0 ? r->track->close(r->start, (size_t)r->nr_pages * client.page_size) : 0;

		if (error < 0)
			return error;
	}
	return 0;
}

/* For a checkpoint without a parent. */
static void make_all_dirty(void) REQUIRES(client.lock)
{
	for (uint32_t i = 0; i < client.nr_regions; i++) {
		const struct region *r = client.by_slot[i];

		for (uint32_t p = r->first; p < r->first + r->nr_pages; p++)
			pages_add_dirty(&client.pages, p, client.pages.page[p].open);
	}
}

/* Closes and schedules pages; `last`: receives the statistics of the interval that ends; `all`: schedules all pages. */
static int start_epoch(struct ckptfs_stats *last, bool all) REQUIRES(client.call)
{
	sigset_t before;
	int r;

	siglock_enter(&client.lock, &before);
	r = track_collect();
	if (r == 0)
		r = close_all();
	if (r == 0) {
		if (last)
			count_epoch(last);
		if (all)
			make_all_dirty();
		pages_begin(&client.pages, orders[client.options.mode]);
		client.wait_ns = 0;
		atomic_store(&client.epoch_ns, monotonic_ns());
	}
	siglock_leave(&client.lock, &before);
	return r < 0 ? log_errno(r, "checkpoint: cannot write-protect memory") : 0;
}

/* Signals must be blocked: a handler that waits for a scheduled page depends on the writer having the job. */
static int start_job(struct job *job) REQUIRES(client.call)
{
	struct ckptfs_stats *stats = &client.stats[client.number % CKPTFS_STATS_KEPT];
	bool all = client.last == 0 && client.last_lost;
	int r = start_epoch(stats->number == client.number ? stats : NULL, all);

	if (r < 0)
		return r;
	client.last_lost = false;
	job->number = ++client.number;
	job->header.number = job->number;
	stats = &client.stats[job->number % CKPTFS_STATS_KEPT];
	*stats = (struct ckptfs_stats){ .size = sizeof(*stats), .number = job->number, .pages = client.pages.nr_queue };
	mutex_lock(&client.job_lock);
	stats->begin_ns = monotonic_ns() - job->asked_ns;
	client.job = *job;
	client.error = 0;
	cond_broadcast(&client.job_changed);
	mutex_unlock(&client.job_lock);
	return 0;
}

/* Takes a checkpoint while none is in progress. The caller clears the job on error. */
static int prepare_and_start_job(struct job *job) REQUIRES(client.call)
{
	sigset_t before;
	int r;

	if (client.number == UINT32_MAX)
		return log_errno(-EOVERFLOW, "checkpoint: number %" PRIu32 " is the highest possible", client.number);
	r = client_capture ? client_capture->gather() : 0;
	if (r == 0)
		r = region_size_copies();
	if (r == 0)
		r = job_add_regions(job, client.last, client.last_end);
	if (r != 0)
		return r;
	signals_block(&before);
	r = start_job(job);
	signals_restore(&before);
	return r;
}

/* Returns the error of the last checkpoint, once. */
static int report_error(void)
{
	sigset_t before;
	int r;

	client_job_lock(&before);
	r = client.error_reported ? 0 : client.error;
	client.error_reported = true;
	client_job_unlock(&before);
	return r;
}

/* Where memory is captured: waits for the last checkpoint without holding a lock, so that threads and signal handlers
 * that map or unmap memory do not wait for it, too. 0: none was in progress. */
static int wait_unlocked(void)
{
	uint32_t nr_ended = atomic_load(&client.nr_ended);
	bool busy;
	int r;

	if (!client_enter(&r))
		return r;
	busy = client_is_writing();
	client_leave();
	if (busy)
		futex_wait(&client.nr_ended, nr_ended);
	return busy;
}

/* 1: try again. */
static int try_checkpoint(void)
{
	const struct capture_hooks *hooks = client_capture;
	int r;

	while (hooks && (r = wait_unlocked()) != 0)
		if (r < 0)
			return r;
	if (hooks)
		hooks->enter();
	if (!client_enter(&r)) {
		if (hooks)
			hooks->leave();
		return r;
	}
	writer_wait();
	client_free_gone_regions();
	r = report_error();
	if (r == 0) {
		struct job job = { .asked_ns = monotonic_ns() };

		r = prepare_and_start_job(&job);
		if (r != 0)
			client_job_clear(&job);
	}
	if (r == 0 && client.options.mode == CKPTFS_MODE_SYNC) {
		writer_wait();
		r = report_error();
	}
	client_leave();
	if (hooks)
		hooks->leave();
	return r;
}

int ckptfs_checkpoint(void)
{
	int r;

	do
		r = try_checkpoint();
	while (r > 0);
	return r;
}

int ckptfs_wait(void)
{
	int r = client_capture ? wait_unlocked() : 0;

	if (r < 0 || !client_enter(&r))
		return r;
	writer_wait();
	r = report_error();
	client_leave();
	return r;
}

/* *ret may be in protected memory: it is written with no lock held but `call`. */
int ckptfs_status(struct ckptfs_status *ret)
{
	struct ckptfs_status status = { .size = sizeof(status) };
	sigset_t before;
	int r = 0;

	if (ret->size != sizeof(*ret))
		return -EINVAL;
	if (!client_enter(&r))
		return r;
	status.mode = client.options.mode;
	status.tracking = track_kind();
	status.clone = image_dir_clone_kind(client.dir);
	status.regions = client.nr_regions;
	status.bytes = region_bytes();
	status.cow_bytes = region_copies_bytes();
	for (uint32_t i = 0; i < client.nr_regions; i++)
		if (client.by_slot[i]->gone)
			status.regions--;
		else
			status.regions_userfaultfd += client.by_slot[i]->track != &track_mprotect;
	client_job_lock(&before);
	status.last = client.last;
	status.under_way = client.job.number;
	status.error = client.error;
	client_job_unlock(&before);
	client_leave();
	*ret = status;
	return 0;
}

int ckptfs_stats(uint32_t number, struct ckptfs_stats *ret)
{
	struct ckptfs_stats stats;
	sigset_t before;
	int r;

	if (ret->size != sizeof(*ret))
		return -EINVAL;
	if (!client_enter(&r))
		return r;
	number = number == 0 ? client.number : number;
	client_job_lock(&before);
	stats = client.stats[number % CKPTFS_STATS_KEPT];
	client_job_unlock(&before);
	r = number != 0 && stats.number == number ? 0 : -ENOENT;
	if (r == 0 && number == client.number) {
		siglock_enter(&client.lock, &before);
		count_epoch(&stats);
		siglock_leave(&client.lock, &before);
	}
	client_leave();
	if (r == 0)
		*ret = stats;
	return r;
}
