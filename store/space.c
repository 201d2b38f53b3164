/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Behaviour on a full disk: writes fail with ENOSPC, or EDQUOT at an exceeded quota, and deleting still works.
 *
 * Data is refused when the disk, counting all data on its way to it, has less than the reserve left, so that journal
 * and index can still grow. In addition two files hold blocks:
 *   reserve        removed when even a commit finds no room because other programs filled the disk
 *   reserve.open   kept for the next mount, which would otherwise fail on a completely full disk. Only opening the
 *                  store removes it, and recreates it at once: by then RocksDB has removed as much of its own files.
 *   reserve.00 ...  empty: each holds an inode, also for opening, where the disk or a quota has no other left
 *
 * A closed store has no unfinished frame, so its `reserve` is truncated to what deleting everything would need. Opening
 * makes it whole again; on a full disk it stays short, and no frame is begun. On copy-on-write filesystems it always
 * stays whole, and is removed to release space, as btrfs refuses truncation at its quota. Others truncate it first: a
 * removed file keeps its blocks while anything in the kernel refers to its inode, as dropping caches does. A crash
 * leaves the files, parts of them, or none; they are recreated when there is room.
 *
 * Space reserved by fallocate is allocated in a third file, `promised`, so that other files of the store, its journal
 * and index, and other programs cannot take it, and so that the amount of free space need not be known: statvfs() of
 * btrfs is a transaction late. A write into a reserved range passes without a check, and the range is no longer
 * reserved: overwriting it takes space as any other write (store/file/reservation.c). `promised` shrinks by its share
 * when the job that stores the bytes starts. A closed store has no such file; a crash leaves one, and the next mount
 * removes it.
 */
#include "store/space.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "store/dedup/write_jobs.h"
#include "store/engine_state.h"
#include "store/space_state.h"

#define OPENING_BYTES KiB(256) /* MANIFEST, options and info log of RocksDB */
#define COPYING_OPENING_BYTES MiB(1) /* the same, plus what btrfs charges to a quota for each new file */
#define RESTING_BYTES KiB(256) /* a commit and a collection, with no frame begun */
#define KEY_BYTES 64 /* journal and index bytes to delete a key of the view; a file has two keys and its recipe */
#define COMMIT_BYTES (MiB(1) + KiB(128)) /* an unfinished frame, its table, and the unallocated part of the journal */
#define RESERVE_BYTES (COPYING_OPENING_BYTES + COMMIT_BYTES)
#define RESERVE_STEP KiB(64) /* all of the above are multiples of it */
#define OPENING_NAME "reserve.open"
#define COMMIT_NAME "reserve"
#define OPENING_FILES 16u /* RocksDB creates four, and one more for each table that recovery writes */
#define FILE_NAME_MAX sizeof("reserve.00")
#define PROMISED_NAME "promised"
#define COPYING_STEP MiB(1) /* length of each allocation in `promised`: btrfs frees only whole ones */
#define SEEN_NS (1000 * 1000 * 1000ull) /* age of figures for people */
#define CHECK_NS (50 * 1000 * 1000ull) /* call statvfs() at most every 50 ms while there is plenty */

struct space *space_new(void)
{
	struct space *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	mutex_init(&s->promised.lock);
	s->promised.fd = -1;
	return s;
}

void space_free(struct space *s)
{
	if (!s)
		return;
	mutex_release(&s->promised.lock);
	free(s);
}

static uint64_t reserve_bytes(uint64_t total)
{
	return MIN(total / 32, MiB(64));
}

/* On other filesystems, creating a file or changing a block takes more space than its bytes, as known of btrfs. */
static bool disk_writes_in_place(const struct engine *e)
{
	static const uint32_t in_place[] = { EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, TMPFS_MAGIC };
	struct statfs st;

	for (size_t i = 0; fstatfs(e->dirs.root, &st) == 0 && i < ARRAY_SIZE(in_place); i++)
		if ((uint32_t)st.f_type == in_place[i])
			return true;
	return false;
}

static int look_at_disk(struct engine *e, struct engine_space *ret)
{
	uint64_t promised = atomic_load(&e->space->promised.bytes), held = atomic_load(&e->space->promised.held), kept;
	struct statvfs st;

	if (fstatvfs(e->dirs.root, &st) < 0)
		return -errno;
	ret->total = (uint64_t)st.f_blocks * st.f_frsize;
	ret->free = (uint64_t)st.f_bfree * st.f_frsize;
	ret->avail = (uint64_t)st.f_bavail * st.f_frsize;
	kept = reserve_bytes(ret->total) + (promised - MIN(promised, held));
	ret->avail -= MIN(ret->avail, kept);
	if (atomic_load(&e->space->quota_is_used_up))
		ret->avail = 0;
	return 0;
}

static int disk_space(struct engine *e, struct engine_space *ret)
{
	int r = look_at_disk(e, ret);

	return r < 0 ? log_errno(r, "store %s: cannot ask for free space", e->path) : 0;
}

static void shrink_file(struct engine *e, const char *name, uint64_t bytes)
{
	int fd = io_open(e->dirs.root, name, O_WRONLY, 0);
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > bytes)
		(void)io_truncate(fd, bytes); /* on failure it stays larger than needed, which is harmless */
	io_close(fd);
}

static int discard(struct engine *e, const char *name)
{
	if (disk_writes_in_place(e))
		shrink_file(e, name, 0);
	return io_unlink(e->dirs.root, name);
}

static int promised_grow(struct engine *e) REQUIRES(e->space->promised.lock)
{
	uint64_t held = atomic_load(&e->space->promised.held), bytes = atomic_load(&e->space->promised.bytes), end = held;
	uint64_t step = disk_writes_in_place(e) ? bytes - MIN(bytes, held) : COPYING_STEP;
	int r = 0;

	if (e->space->promised.fd < 0)
		e->space->promised.fd = io_open(e->dirs.root, PROMISED_NAME, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (e->space->promised.fd < 0)
		return e->space->promised.fd;
	for (; end < bytes && r == 0; end += step)
		r = io_allocate(e->space->promised.fd, end, step);
	if (r < 0)
		(void)io_truncate(e->space->promised.fd, held); /* part of it may have been allocated */
	else
		atomic_store(&e->space->promised.held, end);
	return r;
}

static void promised_remove(struct engine *e) REQUIRES(e->space->promised.lock)
{
	io_close(e->space->promised.fd);
	e->space->promised.fd = -1;
	atomic_store(&e->space->promised.held, 0);
	(void)discard(e, PROMISED_NAME);
}

/* May release up to a step too much, which disk_space() counts. */
static void promised_shrink(struct engine *e) REQUIRES(e->space->promised.lock)
{
	uint64_t bytes = atomic_load(&e->space->promised.bytes);
	uint64_t size = round_down(bytes, disk_writes_in_place(e) ? PACK_BLOCK : COPYING_STEP);
	int r;

	if (atomic_load(&e->space->promised.held) <= bytes)
		return;
	r = io_truncate(e->space->promised.fd, size);
	if (r == 0) {
		atomic_store(&e->space->promised.held, size);
		return;
	}
	/* At its quota, btrfs refuses to truncate a file but not to remove it. */
	promised_remove(e);
	(void)io_sync_fs(e->dirs.root);
	r = promised_grow(e);
	if (r < 0)
		log_errno(r, "store %s: cannot allocate the space reserved by fallocate again", e->path);
}

static void promised_settle(struct engine *e)
{
	if (atomic_load(&e->space->promised.held) <= atomic_load(&e->space->promised.bytes))
		return;
	mutex_lock(&e->space->promised.lock);
	promised_shrink(e);
	mutex_unlock(&e->space->promised.lock);
}

void space_close(struct engine *e)
{
	if (!e->space)
		return;
	mutex_lock(&e->space->promised.lock);
	if (e->space->promised.fd >= 0)
		promised_remove(e);
	mutex_unlock(&e->space->promised.lock);
}

int engine_space(struct engine *e, struct engine_space *ret)
{
	promised_settle(e);
	return disk_space(e, ret);
}

void space_look(struct engine *e)
{
	struct engine_space sp;
	uint64_t now = monotonic_ns(), ns = atomic_load(&e->space->seen.ns);

	if ((ns != 0 && now - ns < SEEN_NS) || look_at_disk(e, &sp) < 0)
		return; /* a failure shows as the age of what was seen last; writers log it */
	atomic_store(&e->space->seen.total, sp.total);
	atomic_store(&e->space->seen.free, sp.free);
	atomic_store(&e->space->seen.avail, sp.avail);
	atomic_store(&e->space->seen.ns, now);
}

uint64_t engine_space_seen(struct engine *e, struct engine_space *ret)
{
	uint64_t now = monotonic_ns(), ns = atomic_load(&e->space->seen.ns);

	*ret = (struct engine_space){
		.total = atomic_load(&e->space->seen.total),
		.free = atomic_load(&e->space->seen.free),
		.avail = atomic_load(&e->space->seen.avail),
	};
	return now - MIN(now, ns);
}

uint64_t space_with_overhead(uint64_t len)
{
	return len + len / 16;
}

void space_take_back(struct engine *e, uint64_t bytes)
{
	atomic_fetch_sub(&e->space->promised.bytes, bytes);
}

void space_spend(struct engine *e, uint64_t bytes)
{
	space_take_back(e, bytes);
	promised_settle(e);
}

static int promise(struct engine *e, uint64_t bytes, uint64_t on_its_way) REQUIRES(e->space->promised.lock)
{
	struct engine_space sp;
	int r;

	promised_shrink(e);
	r = disk_space(e, &sp);
	if (r < 0)
		return r;
	if (sp.avail < bytes + on_its_way)
		return atomic_load(&e->space->quota_is_used_up) ? -EDQUOT : -ENOSPC;
	atomic_fetch_add(&e->space->promised.bytes, bytes);
	r = promised_grow(e);
	if (r < 0)
		space_take_back(e, bytes);
	else
		atomic_store(&e->space->checked_ns, 0); /* the cached value is now too high */
	return r;
}

int space_promise(struct engine *e, uint64_t bytes)
{
	for (;;) {
		uint64_t on_its_way = jobs_bytes(e);
		int r;

		mutex_lock(&e->space->promised.lock);
		r = promise(e, bytes, on_its_way);
		mutex_unlock(&e->space->promised.lock);
		if (!io_is_full(r) || on_its_way == 0)
			return r;
		jobs_wait_fewer(e, on_its_way);
	}
}

int space_wait(struct engine *e, uint64_t need)
{
	for (;;) {
		uint64_t on_its_way = jobs_bytes(e);
		int r = space_check(e, need + on_its_way);

		if (!io_is_full(r) || on_its_way == 0)
			return r;
		jobs_wait_fewer(e, on_its_way); /* once deduplicated, they may need no space */
	}
}

int space_check(struct engine *e, uint64_t need)
{
	uint64_t now = monotonic_ns(), avail = atomic_load(&e->space->avail);
	struct engine_space sp;
	int r;

	if (atomic_load(&e->space->quota_is_used_up))
		return -EDQUOT;
	/* The cached value is valid for a while, minus all data that may be on its way. */
	if (now - atomic_load(&e->space->checked_ns) < CHECK_NS && avail > need + e->conf.dirty + GiB(1))
		return 0;
	r = engine_space(e, &sp);
	if (r < 0)
		return r;
	atomic_store(&e->space->avail, sp.avail);
	atomic_store(&e->space->checked_ns, now);
	return sp.avail < need ? -ENOSPC : 0;
}

static uint64_t opening_bytes(const struct engine *e)
{
	return disk_writes_in_place(e) ? OPENING_BYTES : COPYING_OPENING_BYTES;
}

/* Allocates as much as possible. Returns the number of bytes allocated from the start of the file. */
static uint64_t allocate(struct engine *e, const char *name, uint64_t bytes)
{
	int fd = io_open(e->dirs.root, name, O_WRONLY | O_CREAT, 0600);
	uint64_t at = 0;

	if (fd < 0)
		return 0;
	while (at < bytes && io_allocate(fd, at, RESERVE_STEP) == 0)
		at += RESERVE_STEP;
	io_close(fd);
	return at;
}

static const char *file_name(unsigned i, char name[FILE_NAME_MAX])
{
	snprintf(name, FILE_NAME_MAX, "reserve.%02u", i % 100);
	return name;
}

/* btrfs has no inodes to run out of and reports none; a quota is not reported. */
static bool inodes_are_few(const struct engine *e, uint64_t nr)
{
	struct statvfs st;

	return fstatvfs(e->dirs.root, &st) == 0 && st.f_files > 0 && st.f_favail < nr;
}

static void make_files(struct engine *e)
{
	char name[FILE_NAME_MAX];

	if (!e->space->files_released && inodes_are_few(e, 2 * OPENING_FILES))
		return; /* the store needs them now */
	for (unsigned i = 0; i < OPENING_FILES; i++) {
		int fd;

		if (faccessat(e->dirs.root, file_name(i, name), F_OK, 0) == 0)
			continue;
		fd = io_open(e->dirs.root, name, O_WRONLY | O_CREAT, 0600);
		if (fd < 0)
			return;
		io_close(fd);
	}
}

static bool release_files(struct engine *e)
{
	char name[FILE_NAME_MAX];
	bool released = false;

	for (unsigned i = 0; i < OPENING_FILES; i++)
		if (faccessat(e->dirs.root, file_name(i, name), F_OK, 0) == 0)
			released |= io_unlink(e->dirs.root, name) == 0;
	e->space->files_released |= released;
	return released;
}

void reserve_restore(struct engine *e)
{
	make_files(e);
	if (reserve_is_whole(e))
		return;
	(void)allocate(e, OPENING_NAME, opening_bytes(e));
	atomic_store(&e->space->reserve_held, allocate(e, COMMIT_NAME, COMMIT_BYTES));
}

uint64_t reserve_at_rest(struct engine *e)
{
	struct db_stats st;

	if (!e->db)
		return 0;
	if (e->dirs.frozen || !disk_writes_in_place(e))
		return COMMIT_BYTES;
	db_stats(e->db, &st);
	st.view_nr = MIN(st.view_nr, COMMIT_BYTES / KEY_BYTES);
	return MIN(RESTING_BYTES + round_up(st.view_nr * KEY_BYTES, RESERVE_STEP), COMMIT_BYTES);
}

void reserve_rest(struct engine *e, uint64_t commit_bytes)
{
	make_files(e);
	(void)allocate(e, OPENING_NAME, opening_bytes(e));
	(void)allocate(e, COMMIT_NAME, MAX(commit_bytes, RESTING_BYTES));
	if (commit_bytes == 0)
		return; /* not opened: leave the reserve as it is */
	shrink_file(e, OPENING_NAME, opening_bytes(e));
	shrink_file(e, COMMIT_NAME, commit_bytes);
}

bool reserve_is_whole(struct engine *e)
{
	return atomic_load(&e->space->reserve_held) >= COMMIT_BYTES;
}

bool reserve_is_there(struct engine *e)
{
	return atomic_load(&e->space->reserve_held) >= RESTING_BYTES;
}

void reserve_make(struct engine *e)
{
	struct engine_space sp;

	if (!reserve_is_whole(e) && engine_space(e, &sp) == 0 && sp.avail >= 4 * RESERVE_BYTES)
		reserve_restore(e);
}

static int probe_room(struct engine *e, uint64_t bytes)
{
	int fd = io_open(e->dirs.root, "room.tmp", O_WRONLY | O_CREAT | O_TRUNC, 0600), r;

	if (fd < 0)
		return fd;
	r = io_allocate(fd, 0, bytes);
	io_close(fd);
	io_unlink(e->dirs.root, "room.tmp");
	return r;
}

/*
 * RocksDB aborts if it cannot write while opening, so make room first or fail. Only a trial allocation shows whether
 * there is room: of the blocks that statvfs() reports as free, ext4 withholds up to 16 MiB even from root, the blocks
 * reserved for root depend on our capabilities, and quotas are not counted.
 */
int reserve_for_opening(struct engine *e)
{
	static const char *const names[] = { OPENING_NAME, COMMIT_NAME };
	int r;

	(void)discard(e, PROMISED_NAME);
	if (inodes_are_few(e, OPENING_FILES) && release_files(e))
		log_warning("store %s: its disk has no inodes left: released those reserved for opening; remove other files there",
			    e->path);
	r = probe_room(e, OPENING_BYTES);
	if (reserve_helps_opening(e, r))
		r = probe_room(e, OPENING_BYTES);
	for (size_t i = 0; r < 0 && i < ARRAY_SIZE(names); i++) {
		(void)discard(e, names[i]);
		r = probe_room(e, OPENING_BYTES);
	}
	return r < 0 ? log_errno(r, "store %s: no room to open it, %" PRIu64 " KiB are needed", e->path,
				 OPENING_BYTES >> 10) :
		       0;
}

bool reserve_helps_opening(struct engine *e, int r)
{
	return io_is_full(r) && release_files(e);
}

bool reserve_helps(struct engine *e, int r)
{
	if (!io_is_full(r))
		return false;
	if (r == -EDQUOT && !atomic_exchange(&e->space->quota_is_used_up, true))
		log_warning("store %s: quota exceeded", e->path);
	atomic_store(&e->space->reserve_held, 0);
	if (discard(e, COMMIT_NAME) < 0)
		return false;
	(void)io_sync_fs(e->dirs.root); /* btrfs reuses freed blocks only after its transaction has ended */
	log_warning("store %s: the disk is full: released the reserve to complete operations in progress", e->path);
	return true;
}

void space_look_again(struct engine *e)
{
	promised_settle(e);
	if (atomic_load(&e->space->quota_is_used_up) && probe_room(e, 4 * RESERVE_BYTES) == 0)
		atomic_store(&e->space->quota_is_used_up, false);
}
