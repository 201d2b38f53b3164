/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Creating segments, and removing them when a snapshot covers them.
 *
 * A segment is created zero-filled: a temporary is filled with zeros and synced, so that a later append changes no
 * metadata and lack of space can only fail this step. One such file is kept in advance under the name "spare": on a
 * full disk there is still room for a whole segment of deletions. On btrfs copy-on-write is disabled for it, which
 * would otherwise allocate new blocks for every append; groups have checksums of their own. After a snapshot of the
 * subvolume btrfs still copies each block once: the reserve is for this (store/space.c).
 *
 * Starting segment N. Only the order makes it safe:
 *   1. header block into the zero-filled file, sync  crash: a spare with a header, which the next start overwrites
 *   2. rename to N.log                                crash: an empty last segment, or the rename did not happen
 *   3. close the old segment
 *   4. sync the directory                             only now may a group in it be acknowledged
 * Step 3 comes before 4 because 4 can fail. N.log may or may not exist after a crash, and if it does, it hides whatever
 * the older segment holds from N on, so nothing may be acknowledged there any more. The next attempt renames a fresh
 * file over N.log.
 *
 * A removed segment becomes the spare if there is none: rename to spare.tmp, zero, sync, rename to spare. Crash: a
 * stray temporary, removed on open; if the first rename is lost, a file that the snapshot covers, removed unread.
 *
 * On close, most of the preallocated zeros of the current segment and of the spare are cut off, so that unused stores
 * are small. Crash: the zeros are there or not, and are never read. Later a longer spare replaces the short one by a
 * rename, in the background. Crash: one of them exists.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "store/journal/journal.h"
#include "store/journal/journal_internal.h"

#define FIRST_SEGMENT_BYTES MiB(1) /* of a new journal; each next one is twice as large, so a small store stays small */
#define CLOSED_AHEAD_BYTES KiB(32) /* zeros left at the end and in the spare when the journal is closed */
#define LEAST_SEGMENT_BYTES KiB(256) /* on a full disk */
#define ZERO_BYTES (1u << 20)
#define SPARE_RETRY_BYTES MiB(1) /* appended between two attempts to make a spare on a full disk */

static const uint8_t zeros[ZERO_BYTES];

struct journal_name journal_log_name(uint64_t first)
{
	struct journal_name n;

	snprintf(n.s, sizeof(n.s), "%016" PRIx64 ".log", first);
	return n;
}

struct journal_name journal_snap_name(uint64_t number)
{
	struct journal_name n;

	snprintf(n.s, sizeof(n.s), "%016" PRIx64 ".snap", number);
	return n;
}

int journal_zero(int fd, uint64_t from, uint64_t to)
{
	for (uint64_t off = from; off < to; off += ZERO_BYTES) {
		int r = io_pwrite(fd, zeros, (size_t)MIN(to - off, (uint64_t)ZERO_BYTES), off);

		if (r < 0)
			return r;
	}
	return 0;
}

int journal_group_write(int fd, uint64_t off, struct journal_group *g, const void *payload, size_t len)
{
	struct journal_group_disk header;
	struct iovec iov[3] = {
		{ &header, sizeof(header) },
		{ (void *)payload, len },
		{ (void *)zeros, (size_t)journal_group_bytes(len) - sizeof(header) - len },
	};

	journal_group_encode(g, payload, len, &header);
	return io_pwritev(fd, iov, ARRAY_SIZE(iov), off);
}

int journal_segments_reserve(struct journal *j)
{
	struct journal_segment *segments;
	size_t room;
	int r = 0;

	mutex_lock(&j->lock);
	if (j->nr_segments == j->room) {
		room = j->room ? 2 * j->room : 16;
		segments = reallocarray(j->segments, room, sizeof(*segments));
		if (segments) {
			j->segments = segments;
			j->room = room;
		} else
			r = -ENOMEM;
	}
	mutex_unlock(&j->lock);
	return r;
}

/* Size of the segment after the current one. */
static uint64_t next_bytes(struct journal *j) REQUIRES(j->lock)
{
	uint64_t bytes = FIRST_SEGMENT_BYTES;

	assert(mutex_held(&j->lock));
	if (j->nr_segments > 0 && !j->shrink)
		bytes = MAX(bytes, 2 * j->segments[j->nr_segments - 1].size);
	return MIN(bytes, j->segment_bytes);
}

/* Create a zero-filled, synced file under a temporary name. Leaves nothing behind on failure. */
static int create_zeroed(struct journal *j, const char *name, uint64_t bytes)
{
	uint64_t failures = io_sync_failures();
	_cleanup_(closep) int fd = -1;
	int r;

	fd = io_open(j->dirfd, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		return log_errno(fd, "journal %s: cannot create", name);
	io_disable_cow(fd);
	r = journal_zero(fd, 0, bytes);
	if (r == 0)
		r = io_sync_since(fd, failures);
	if (r < 0) {
		(void)io_unlink(j->dirfd, name); /* else removed on open */
		return log_errno(r, "journal %s: cannot fill with %" PRIu64 " zeros", name, bytes);
	}
	return 0;
}

/* Take ownership of the spare if it has `need` bytes. */
static bool spare_take(struct journal *j, uint64_t need, uint64_t *ret_bytes)
{
	bool taken;

	mutex_lock(&j->lock);
	taken = j->spare == SPARE_READY && j->spare_bytes >= need;
	if (taken) {
		j->spare = SPARE_BUSY;
		*ret_bytes = j->spare_bytes;
	}
	mutex_unlock(&j->lock);
	return taken;
}

static void spare_set(struct journal *j, enum journal_spare spare, uint64_t bytes)
{
	mutex_lock(&j->lock);
	assert(j->spare == SPARE_BUSY);
	j->spare = spare;
	j->spare_bytes = spare == SPARE_READY ? bytes : 0;
	mutex_unlock(&j->lock);
}

/* Take ownership of the spare's files to make a new one, if there is none, or only a short one left by a close
 * (*ret_old bytes), and the last attempt is not too recent. */
static bool spare_wanted(struct journal *j, uint64_t *ret_bytes, uint64_t *ret_old)
{
	bool wanted;

	mutex_lock(&j->lock);
	wanted = j->spare == SPARE_NONE ||
		 (j->spare == SPARE_READY && j->spare_bytes < MIN(FIRST_SEGMENT_BYTES, j->segment_bytes));
	wanted &= j->appended >= j->spare_next_try;
	if (wanted) {
		*ret_old = j->spare == SPARE_READY ? j->spare_bytes : 0;
		j->spare = SPARE_BUSY;
		j->spare_next_try = j->appended + SPARE_RETRY_BYTES;
		*ret_bytes = next_bytes(j);
	}
	mutex_unlock(&j->lock);
	return wanted;
}

void journal_shrink(struct journal *j)
{
	uint64_t bytes;

	if (j->read_only)
		return;
	mutex_lock(&j->lock);
	j->shrink = true;
	mutex_unlock(&j->lock);
	if (!spare_take(j, 0, &bytes))
		return; /* none, or in use by another thread: then one more segment is large */
	if (io_unlink(j->dirfd, SPARE_NAME) < 0)
		log_warning("journal %s: cannot be removed", SPARE_NAME);
	spare_set(j, SPARE_NONE, 0);
}

bool journal_shrink_wanted(struct journal *j)
{
	bool wanted;

	mutex_lock(&j->lock);
	wanted = j->shrink && j->segments[j->nr_segments - 1].size > FIRST_SEGMENT_BYTES;
	mutex_unlock(&j->lock);
	return wanted;
}

int journal_prepare(struct journal *j)
{
	uint64_t bytes, old;
	int r;

	if (j->read_only || !spare_wanted(j, &bytes, &old))
		return 0;
	r = create_zeroed(j, SPARE_TMP_NAME, bytes);
	if (r == 0) {
		r = io_rename(j->dirfd, SPARE_TMP_NAME, j->dirfd, SPARE_NAME);
		if (r < 0)
			log_errno(r, "journal %s: cannot rename", SPARE_TMP_NAME);
	}
	if (r < 0)
		bytes = old;
	spare_set(j, bytes > 0 ? SPARE_READY : SPARE_NONE, bytes);
	return r;
}

void journal_segment_trim(struct journal *j)
{
	_cleanup_(closep) int fd = -1;
	uint64_t bytes;
	int r = 0;

	if (j->fd >= 0 && j->stale_end <= j->off && j->size - j->off > CLOSED_AHEAD_BYTES)
		r = io_truncate(j->fd, j->off + CLOSED_AHEAD_BYTES);
	if (r == 0 && spare_take(j, CLOSED_AHEAD_BYTES + 1, &bytes)) {
		fd = io_open(j->dirfd, SPARE_NAME, O_RDWR, 0);
		r = fd < 0 ? fd : io_truncate(fd, CLOSED_AHEAD_BYTES);
		spare_set(j, SPARE_READY, r < 0 ? bytes : CLOSED_AHEAD_BYTES);
	}
	if (r < 0)
		log_warning("journal: cannot be trimmed, stays larger than it need be: %s", strerror(-r));
}

/* The new segment replaces one with the same first number, which has no groups. */
static void segments_add(struct journal *j, uint64_t number, uint64_t bytes)
{
	struct journal_segment *s;

	mutex_lock(&j->lock);
	if (j->nr_segments == 0 || j->segments[j->nr_segments - 1].first != number) {
		assert(j->nr_segments < j->room);
		j->nr_segments++;
	}
	s = &j->segments[j->nr_segments - 1];
	*s = (struct journal_segment){ .first = number, .last = number - 1, .size = bytes, .end = JOURNAL_BLOCK };
	j->spare_next_try = 0;
	j->shrink = false;
	mutex_unlock(&j->lock);
}

/* Steps 1 to 4 of the opening comment for the zero-filled file `name`. On failure *ret_usable is whether the file
 * can still be used. */
static int start_in(struct journal *j, const char *name, uint64_t number, bool *ret_usable)
{
	struct journal_file header = { .kind = JOURNAL_LOG, .number = number };
	struct journal_name log = journal_log_name(number);
	_cleanup_(closep) int fd = -1;
	struct journal_file_disk disk;
	uint64_t failures;
	int r;

	*ret_usable = false;
	fd = io_open(j->dirfd, name, O_RDWR, 0);
	if (fd < 0)
		return log_errno(fd, "journal %s: cannot open", name);
	memcpy(header.store_id, j->store_id, sizeof(header.store_id));
	journal_file_encode(&header, &disk);
	failures = io_sync_failures();
	r = io_pwrite(fd, &disk, sizeof(disk), 0);
	if (r < 0) {
		*ret_usable = true; /* only the header block was touched */
		return log_errno(r, "journal %s: cannot write", name);
	}
	r = io_sync_since(fd, failures);
	if (r < 0)
		return log_errno(r, "journal %s: cannot sync", name);
	r = io_rename(j->dirfd, name, j->dirfd, log.s);
	if (r < 0) {
		*ret_usable = true;
		return log_errno(r, "journal %s: cannot rename to %s", name, log.s);
	}
	closep(&j->fd);
	j->fd = -1;
	r = io_sync_dir(j->dirfd);
	if (r < 0)
		return log_errno(r, "journal %s: cannot sync the directory", log.s);
	j->fd = fd;
	fd = -1;
	return 0;
}

int journal_segment_start(struct journal *j, uint64_t number, uint64_t group_bytes)
{
	uint64_t need = JOURNAL_BLOCK + group_bytes, bytes;
	bool spare, usable;
	int r;

	r = journal_segments_reserve(j);
	if (r < 0)
		return r;
	spare = spare_take(j, need, &bytes);
	if (!spare) {
		mutex_lock(&j->lock);
		bytes = MAX(next_bytes(j), need);
		mutex_unlock(&j->lock);
		r = create_zeroed(j, NEW_TMP_NAME, bytes);
		if (io_is_full(r) && bytes > MAX(LEAST_SEGMENT_BYTES, need)) {
			bytes = MAX(LEAST_SEGMENT_BYTES, need);
			r = create_zeroed(j, NEW_TMP_NAME, bytes);
		}
		if (r < 0)
			return r;
	}
	r = start_in(j, spare ? SPARE_NAME : NEW_TMP_NAME, number, &usable);
	if (r < 0 && !(spare && usable))
		(void)io_unlink(j->dirfd, spare ? SPARE_NAME : NEW_TMP_NAME);
	if (spare)
		spare_set(j, r < 0 && usable ? SPARE_READY : SPARE_NONE, bytes);
	if (r < 0)
		return r;
	segments_add(j, number, bytes);
	j->off = JOURNAL_BLOCK;
	j->size = bytes;
	j->stale_end = 0;
	return 0;
}

/* Turn a removed segment into the spare, which the caller owns. */
static void recycle(struct journal *j, const char *name, uint64_t bytes)
{
	uint64_t failures = io_sync_failures();
	_cleanup_(closep) int fd = -1;
	int r;

	r = io_rename(j->dirfd, name, j->dirfd, SPARE_TMP_NAME);
	if (r == 0) {
		fd = io_open(j->dirfd, SPARE_TMP_NAME, O_RDWR, 0);
		r = fd < 0 ? fd : journal_zero(fd, 0, bytes);
		if (r == 0)
			r = io_sync_since(fd, failures);
		if (r == 0)
			r = io_rename(j->dirfd, SPARE_TMP_NAME, j->dirfd, SPARE_NAME);
		if (r < 0)
			(void)io_unlink(j->dirfd, SPARE_TMP_NAME);
	}
	if (r < 0)
		log_warning("journal %s: cannot be made the spare: %s", name, strerror(-r));
	spare_set(j, r < 0 ? SPARE_NONE : SPARE_READY, bytes);
}

/* Take the oldest segment off the list if no group of it is above `number`. The current segment always stays. */
static bool segments_shift(struct journal *j, uint64_t number, struct journal_segment *ret, bool *ret_recycle)
{
	bool covered;

	mutex_lock(&j->lock);
	covered = j->nr_segments > 1 && j->segments[1].first <= number + 1;
	if (covered) {
		*ret = j->segments[0];
		j->nr_segments--;
		memmove(j->segments, j->segments + 1, j->nr_segments * sizeof(*j->segments));
		*ret_recycle = j->spare == SPARE_NONE && j->nr_readers == 0 && ret->size == next_bytes(j);
		if (*ret_recycle)
			j->spare = SPARE_BUSY;
	}
	mutex_unlock(&j->lock);
	return covered;
}

void journal_segments_drop(struct journal *j, uint64_t number)
{
	struct journal_segment s;
	bool again;

	while (segments_shift(j, number, &s, &again)) {
		struct journal_name name = journal_log_name(s.first);
		int r;

		if (again) {
			recycle(j, name.s, s.size);
			continue;
		}
		r = io_unlink(j->dirfd, name.s);
		if (r < 0)
			log_warning("journal %s: cannot remove, left for the next mount: %s", name.s, strerror(-r));
	}
}
