/*
 * A full disk is an ENOSPC at write, and deleting goes on. Data is refused while the disk, with all that is on its way
 * to it, has less than the reserve left, so that journal and index can still grow; and the file `reserve` holds some
 * blocks that are given up when even a commit finds none, because somebody else filled the disk. Its first part is left
 * for the next mount, which could otherwise not be had on a disk that is full to the last byte; only opening the store
 * gives that up. A crash leaves the file, a part of it or none: it is made anew when there is room.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine/engine_internal.h"

#define OPENING_BYTES KiB(256) /* MANIFEST, options and info log of RocksDB */
#define COMMIT_BYTES (MiB(1) + KiB(128)) /* a frame that was begun, its table, and what of the journal is not there yet */
#define RESERVE_FILE_BYTES (OPENING_BYTES + COMMIT_BYTES)
#define CHECK_NS (50 * 1000 * 1000ull) /* ask the disk at most every 50 ms while there is plenty */

static uint64_t reserve_bytes(uint64_t total)
{
	return MIN(total / 32, MiB(64));
}

int engine_space(struct engine *e, struct engine_space *ret)
{
	struct statvfs st;
	uint64_t reserve;

	if (fstatvfs(e->dirs.root, &st) < 0)
		return log_errno(-errno, "store %s: cannot ask for free space", e->path);
	ret->total = (uint64_t)st.f_blocks * st.f_frsize;
	ret->free = (uint64_t)st.f_bfree * st.f_frsize;
	ret->avail = (uint64_t)st.f_bavail * st.f_frsize;
	reserve = reserve_bytes(ret->total);
	ret->avail -= MIN(ret->avail, reserve);
	return 0;
}

int space_check(struct engine *e, uint64_t need)
{
	uint64_t now = monotonic_ns(), avail = atomic_load(&e->space_avail);
	struct engine_space sp;
	int r;

	/* What is known is good for a while, less all that may be on its way. */
	if (now - atomic_load(&e->space_checked_ns) < CHECK_NS && avail > need + e->conf.dirty + GiB(1))
		return 0;
	r = engine_space(e, &sp);
	if (r < 0)
		return r;
	atomic_store(&e->space_avail, sp.avail);
	atomic_store(&e->space_checked_ns, now);
	return sp.avail < need ? -ENOSPC : 0;
}

int space_wait(struct engine *e, uint64_t need)
{
	for (;;) {
		uint64_t on_its_way = jobs_bytes(e);
		int r = space_check(e, need + on_its_way);

		if (r != -ENOSPC || on_its_way == 0)
			return r;
		jobs_wait_fewer(e, on_its_way); /* perhaps they are there already, and take nothing */
	}
}

void reserve_make(struct engine *e)
{
	struct engine_space sp;
	int fd;

	if (e->has_reserve || engine_space(e, &sp) < 0 || sp.avail < 4 * RESERVE_FILE_BYTES)
		return;
	fd = io_open(e->dirs.root, "reserve", O_WRONLY | O_CREAT, 0600);
	if (fd < 0)
		return;
	e->has_reserve = io_allocate(fd, 0, RESERVE_FILE_BYTES) == 0;
	io_close(fd);
}

static int probe_room(struct engine *e)
{
	int fd = io_open(e->dirs.root, "room.tmp", O_WRONLY | O_CREAT | O_TRUNC, 0600), r;

	if (fd < 0)
		return fd;
	r = io_allocate(fd, 0, OPENING_BYTES);
	io_close(fd);
	io_unlink(e->dirs.root, "room.tmp");
	return r;
}

/* RocksDB aborts when it cannot write while opening: make room first, or say that there is none. */
int reserve_for_opening(struct engine *e)
{
	struct engine_space sp;
	int r;

	r = engine_space(e, &sp);
	if (r < 0 || sp.free >= OPENING_BYTES)
		return r;
	(void)io_unlink(e->dirs.root, "reserve");
	r = probe_room(e);
	return r < 0 ? log_errno(r, "store %s: no room to open it, %" PRIu64 " KiB are needed", e->path,
				 OPENING_BYTES >> 10) :
		       0;
}

bool reserve_release(struct engine *e)
{
	int fd = io_open(e->dirs.root, "reserve", O_WRONLY, 0);
	bool released = false;
	struct stat st;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > OPENING_BYTES)
		released = io_truncate(fd, OPENING_BYTES) == 0;
	io_close(fd);
	if (!released)
		return false;
	e->has_reserve = false;
	log_warning("store %s: the disk is full, the reserve has been given up to finish what was begun", e->path);
	return true;
}
