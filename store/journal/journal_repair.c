/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/journal/journal_repair.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "store/journal/journal_internal.h"

#define SEGMENT_MIN MiB(1)

struct journal_remake {
	struct journal *journal; /* with no files: only what writing a snapshot needs */
	struct journal_snapshot *snapshot; /* NULL: committed or aborted */
	uint64_t number;
	int fd; /* NEW_TMP_NAME */
	uint64_t off; /* of the next group */
};

static void remake_free(struct journal_remake *m)
{
	if (!m)
		return;
	journal_snapshot_abort(m->snapshot);
	closep(&m->fd);
	journal_close(m->journal);
	free(m);
}

static void remake_freep(struct journal_remake **m)
{
	remake_free(*m);
}

/* --- existing files --- */

struct segments {
	uint64_t *first;
	size_t nr, size;
};

static void segments_release(struct segments *s)
{
	free(s->first);
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool parse_name(const char *name, const char *suffix, uint64_t *ret)
{
	return strlen(name) == 16 + strlen(suffix) && strspn(name, "0123456789abcdef") == 16 &&
	       strcmp(name + 16, suffix) == 0 && sscanf(name, "%16" SCNx64, ret) == 1;
}

static DIR *open_dir(int dirfd)
{
	int fd = io_open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d && fd >= 0)
		io_close(fd);
	return d;
}

static int segments_list(int dirfd, struct segments *ret)
{
	DIR *d = open_dir(dirfd);
	struct dirent *e;
	uint64_t n;
	int r = 0;

	if (!d)
		return log_errno(-errno, "journal: cannot list the directory");
	while (r == 0 && (e = readdir(d))) {
		if (!parse_name(e->d_name, ".log", &n))
			continue;
		if (ret->nr == ret->size) {
			size_t size = MAX(2 * ret->size, (size_t)16);
			uint64_t *more = reallocarray(ret->first, size, sizeof(*more));

			if (!more) {
				r = -ENOMEM;
				break;
			}
			ret->first = more;
			ret->size = size;
		}
		ret->first[ret->nr++] = n;
	}
	closedir(d);
	if (ret->nr > 0)
		qsort(ret->first, ret->nr, sizeof(*ret->first), compare_numbers);
	return r;
}

/* --- the groups to keep --- */

/* Open a segment without checking its header block, which may be damaged. */
static int window_open(struct journal_window *w, int dirfd, uint64_t first)
{
	struct stat st;

	w->name = journal_log_name(first);
	w->fd = io_open(dirfd, w->name.s, O_RDONLY, 0);
	if (w->fd < 0)
		return log_errno(w->fd, "journal %s: cannot open", w->name.s);
	if (fstat(w->fd, &st) < 0)
		return log_errno(-errno, "journal %s: cannot stat", w->name.s);
	w->size = (uint64_t)st.st_size;
	return 0;
}

static int keep_group(struct journal_remake *m, const struct journal_group *g, const void *payload)
{
	struct journal_group copy = *g;
	int r = journal_group_write(m->fd, m->off, &copy, payload, g->payload_len);

	if (r < 0)
		return log_errno(r, "journal %s: cannot write", NEW_TMP_NAME);
	m->off += journal_group_bytes(g->payload_len);
	return 0;
}

/*
 * Copy the consecutive groups from *next on of one segment, up to but not including `end`, where the next segment
 * begins. Damaged bytes are skipped block by block.
 */
static int keep_of_segment(struct journal_remake *m, uint64_t first, uint64_t end, uint64_t *next, uint64_t *lost)
{
	_cleanup_(journal_window_release) struct journal_window w = JOURNAL_WINDOW_NONE;
	int r;

	r = window_open(&w, m->journal->dirfd, first);
	if (r < 0)
		return r;
	for (uint64_t off = JOURNAL_BLOCK; off < w.size;) {
		struct journal_group g;
		const void *payload;

		r = journal_window_group(&w, m->journal, off, &g, &payload);
		if (r < 0 && r != -EIO)
			return r;
		if (r <= 0 || g.number >= end || (g.flags & JOURNAL_GROUP_SNAPSHOT)) {
			off += JOURNAL_BLOCK;
			continue;
		}
		off += journal_group_bytes(g.payload_len);
		if (g.number == *next && *lost == 0) {
			r = keep_group(m, &g, payload);
			if (r < 0)
				return r;
			++*next;
		} else if (g.number > *next) {
			*lost = MAX(*lost, g.number);
		}
	}
	return 0;
}

static int keep_groups(struct journal_remake *m, uint64_t *ret_last, uint64_t *ret_lost)
{
	_cleanup_(segments_release) struct segments s = { 0 };
	uint64_t next = m->number + 1, lost = 0;
	int r = segments_list(m->journal->dirfd, &s);

	for (size_t i = 0; r == 0 && i < s.nr; i++) {
		uint64_t end = i + 1 < s.nr ? s.first[i + 1] : UINT64_MAX;

		if (end > next)
			r = keep_of_segment(m, s.first[i], end, &next, &lost);
	}
	*ret_last = next - 1;
	*ret_lost = lost;
	return r;
}

/* The header block is written last, by finish_segment(). */
static int begin_segment(struct journal_remake *m)
{
	m->fd = io_open(m->journal->dirfd, NEW_TMP_NAME, O_RDWR | O_CREAT | O_TRUNC, 0600);
	m->off = JOURNAL_BLOCK;
	return m->fd < 0 ? log_errno(m->fd, "journal %s: cannot create", NEW_TMP_NAME) : 0;
}

int journal_remake_new(int dirfd, const struct journal_conf *conf, uint64_t number, struct journal_remake **ret,
		       uint64_t *ret_last, uint64_t *ret_lost)
{
	_cleanup_(remake_freep) struct journal_remake *m = calloc(1, sizeof(*m));
	int r;

	if (!m)
		return -ENOMEM;
	m->fd = -1;
	m->number = number;
	m->journal = calloc(1, sizeof(*m->journal));
	if (!m->journal)
		return -ENOMEM;
	mutex_init(&m->journal->lock);
	m->journal->fd = -1;
	m->journal->dirfd = dirfd;
	m->journal->last = number;
	memcpy(m->journal->store_id, conf->store_id, sizeof(m->journal->store_id));
	r = begin_segment(m);
	if (r == 0)
		r = keep_groups(m, ret_last, ret_lost);
	if (r == 0)
		r = journal_snapshot_new(m->journal, number, &m->snapshot);
	if (r < 0)
		return r;
	*ret = TAKE(m);
	return 0;
}

struct journal_snapshot *journal_remake_snapshot(struct journal_remake *m)
{
	return m->snapshot;
}

static int finish_segment(struct journal_remake *m)
{
	struct journal_file header = { .kind = JOURNAL_LOG, .number = m->number + 1 };
	struct journal_file_disk disk;
	int r;

	memcpy(header.store_id, m->journal->store_id, sizeof(header.store_id));
	journal_file_encode(&header, &disk);
	r = journal_zero(m->fd, m->off,
			 MAX(m->off, SEGMENT_MIN)); /* preallocated like all segments: appends change no metadata */
	if (r == 0)
		r = io_pwrite(m->fd, &disk, sizeof(disk), 0);
	if (r == 0)
		r = io_sync(m->fd);
	return r < 0 ? log_errno(r, "journal %s: cannot write", NEW_TMP_NAME) : 0;
}

static void remove_others(struct journal_remake *m)
{
	struct journal_name log = journal_log_name(m->number + 1), snap = journal_snap_name(m->number);
	DIR *d = open_dir(m->journal->dirfd);
	struct dirent *e;
	uint64_t n;
	int r;

	while (d && (e = readdir(d))) {
		if (!parse_name(e->d_name, ".log", &n) && !parse_name(e->d_name, ".snap", &n))
			continue;
		if (strcmp(e->d_name, log.s) == 0 || strcmp(e->d_name, snap.s) == 0)
			continue;
		r = io_unlink(m->journal->dirfd, e->d_name);
		if (r < 0)
			log_warning("journal %s: cannot remove, left for the next mount: %s", e->d_name, strerror(-r));
	}
	if (d)
		closedir(d);
}

int journal_remake_commit(struct journal_remake *remake)
{
	_cleanup_(remake_freep) struct journal_remake *m = remake;
	struct journal_name log = journal_log_name(m->number + 1);
	int r;

	r = finish_segment(m);
	if (r == 0)
		r = journal_snapshot_commit(TAKE(m->snapshot));
	if (r < 0)
		return r;
	r = io_rename(m->journal->dirfd, NEW_TMP_NAME, m->journal->dirfd, log.s);
	if (r == 0)
		r = io_sync_dir(m->journal->dirfd);
	if (r < 0)
		return log_errno(r, "journal %s: cannot take its place", log.s);
	remove_others(m);
	return 0;
}

void journal_remake_abort(struct journal_remake *remake)
{
	_cleanup_(remake_freep) struct journal_remake *m = remake;

	if (m)
		(void)io_unlink(m->journal->dirfd, NEW_TMP_NAME);
}
