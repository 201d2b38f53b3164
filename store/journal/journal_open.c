/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Opening: selects the relevant files and finds the end of the journal.
 *
 * Files are selected by name: the newest snapshot S, and the segments from the one that may contain group S + 1 on.
 * Older files are covered by the snapshot and are removed unread (a crash may have left any of them), as are
 * temporaries. The directory is synced before anything is removed, so that the selected files are durable.
 *
 * A segment ends where the next one begins: its groups from that number on were abandoned (journal_append.c). So only
 * the end of the last segment has to be found. Its groups are read until one is not intact. Append syncs one group
 * before writing the next, so a crash can tear only the last one. If a later group follows, this is damage and not a
 * torn tail, and nothing is changed. A torn tail is zeroed, so that it can never be taken for part of a later group.
 *
 * The last group found is rewritten and synced: the process that appended it may have died before the sync, or after a
 * sync that failed, and then the group is in the page cache but not on disk. Nothing may depend on it before it is
 * durable.
 *
 * Older segments are not read here. Damage in them is found when they are read.
 */
#include "store/journal/journal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/journal/journal_internal.h"

#define DEFAULT_SEGMENT_BYTES MiB(16)
#define MIN_SEGMENT_BYTES KiB(4)

static const char *const temporaries[] = { SPARE_TMP_NAME, NEW_TMP_NAME, SNAP_TMP_NAME };

struct numbers {
	uint64_t *n;
	size_t nr, room;
};

/* Files of the directory. Unknown names are left alone. */
struct listing {
	struct numbers logs, snaps; /* sorted */
	bool temporary[ARRAY_SIZE(temporaries)];
	bool spare;
};

static void listing_release(struct listing *l)
{
	free(l->logs.n);
	free(l->snaps.n);
}

static int numbers_add(struct numbers *s, uint64_t n)
{
	if (s->nr == s->room) {
		size_t room = s->room ? 2 * s->room : 16;
		uint64_t *p = reallocarray(s->n, room, sizeof(*p));

		if (!p)
			return -ENOMEM;
		s->n = p;
		s->room = room;
	}
	s->n[s->nr++] = n;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void numbers_sort(struct numbers *s)
{
	if (s->nr > 0)
		qsort(s->n, s->nr, sizeof(*s->n), compare_numbers);
}

static int listing_add(struct listing *l, const char *name)
{
	static const char digits[] = "0123456789abcdef";
	uint64_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(temporaries); i++)
		if (strcmp(name, temporaries[i]) == 0)
			l->temporary[i] = true;
	if (strcmp(name, SPARE_NAME) == 0)
		l->spare = true;
	if (strspn(name, digits) != 16)
		return 0;
	for (int i = 0; i < 16; i++)
		n = n << 4 | (uint64_t)(strchr(digits, name[i]) - digits);
	if (strcmp(name + 16, ".log") == 0)
		return numbers_add(&l->logs, n);
	if (strcmp(name + 16, ".snap") == 0)
		return numbers_add(&l->snaps, n);
	return 0;
}

static void closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static int listing_read(int dirfd, struct listing *l)
{
	_cleanup_(closedirp) DIR *d = NULL;
	struct dirent *e;
	int fd, r;

	fd = io_open(dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0)
		return log_errno(fd, "journal: cannot open the directory");
	d = fdopendir(fd);
	if (!d) {
		r = log_errno(-errno, "journal: cannot list the directory");
		io_close(fd);
		return r;
	}
	while (errno = 0, (e = readdir(d))) {
		r = listing_add(l, e->d_name);
		if (r < 0)
			return r;
	}
	if (errno != 0)
		return log_errno(-errno, "journal: cannot list the directory");
	numbers_sort(&l->logs);
	numbers_sort(&l->snaps);
	return 0;
}

static void remove_stray(struct journal *j, const char *name)
{
	int r = io_unlink(j->dirfd, name);

	if (r < 0)
		log_warning("journal %s: cannot remove, left for the next mount: %s", name, strerror(-r));
}

/* The newest snapshot is used. */
static int find_snapshot(struct journal *j, const struct numbers *snaps)
{
	_cleanup_(journal_window_release) struct journal_window w = JOURNAL_WINDOW_NONE;
	uint64_t number;
	int r;

	if (snaps->nr == 0)
		return 0;
	number = snaps->n[snaps->nr - 1];
	r = journal_window_open(&w, j, JOURNAL_SNAP, number, O_RDONLY);
	if (r < 0)
		return r;
	j->snapshot_number = number;
	j->snapshot_bytes = w.size;
	return 0;
}

/* Fill j->segments with the segments from the one that may contain the first group after the snapshot on. */
static int find_segments(struct journal *j, const struct numbers *logs, size_t *ret_covered)
{
	size_t from = logs->nr;
	int r;

	for (size_t i = 0; i < logs->nr; i++)
		if (logs->n[i] <= j->snapshot_number + 1)
			from = i;
	if (from == logs->nr && (logs->nr > 0 || j->snapshot_number > 0))
		return log_cause(-EBADMSG, "journal: no file holds group %" PRIu64 "; run fsck.ckptfs",
				 j->snapshot_number + 1);
	for (size_t i = from; i < logs->nr; i++) {
		_cleanup_(journal_window_release) struct journal_window w = JOURNAL_WINDOW_NONE;

		r = journal_segments_reserve(j);
		if (r < 0)
			return r;
		r = journal_window_open(&w, j, JOURNAL_LOG, logs->n[i], O_RDONLY);
		if (r < 0)
			return r;
		j->segments[j->nr_segments++] = (struct journal_segment){
			.first = logs->n[i],
			.last = i + 1 < logs->nr ? logs->n[i + 1] - 1 : logs->n[i] - 1,
			.size = w.size,
			.end = i + 1 < logs->nr ? w.size : JOURNAL_BLOCK,
		};
		if (i + 1 < logs->nr)
			j->appended += w.size - JOURNAL_BLOCK; /* an upper bound: includes groups before the snapshot */
	}
	*ret_covered = from;
	return 0;
}

/* End of the last segment, and what follows it. */
struct tail {
	uint64_t last_off;	/* of the last intact group, 0: none */
	bool is_joint;		/* that group */
	uint64_t nonzero_end;	/* end of the non-zero bytes after it, or 0 */
};

/* Find the last intact group of the last segment. */
static int walk_groups(struct journal *j, struct journal_window *w, struct journal_segment *s, struct tail *t)
{
	for (;;) {
		struct journal_group g;
		const void *payload;
		uint64_t bytes;
		int r;

		r = journal_window_group(w, j, s->end, &g, &payload);
		if (r < 0)
			return r;
		if (r == 0 || g.number != s->last + 1 || (g.flags & JOURNAL_GROUP_SNAPSHOT))
			return 0;
		bytes = journal_group_bytes(g.payload_len);
		t->last_off = s->end;
		t->is_joint = g.flags & JOURNAL_GROUP_JOINT;
		s->last = g.number;
		s->end += bytes;
		if (g.number > j->snapshot_number)
			j->appended += bytes;
	}
}

/* Check everything after the last intact group: an intact header of a later group there means damage before it. */
static int check_tail(struct journal *j, struct journal_window *w, const struct journal_segment *s, struct tail *t)
{
	struct journal_group g;
	uint64_t own_end = 0;
	const uint8_t *p;
	int r;

	/* Bytes that a torn group with an intact header claims as its own cannot be a later group. */
	r = journal_window_header(w, j, s->end, &g);
	if (r < 0)
		return r;
	if (r > 0 && g.number == s->last + 1)
		own_end = s->end + journal_group_bytes(g.payload_len);
	for (uint64_t off = s->end; off < w->size; off += JOURNAL_BLOCK) {
		size_t len = (size_t)MIN(w->size - off, (uint64_t)JOURNAL_BLOCK);

		r = journal_window_get(w, off, len, &p);
		if (r < 0)
			return r;
		if (mem_is_zero(p, len))
			continue;
		t->nonzero_end = off + len;
		if (off < own_end)
			continue;
		r = journal_window_header(w, j, off, &g);
		if (r < 0)
			return r;
		if (r > 0 && g.number > s->last)
			return log_cause(-EBADMSG, "journal %s: group %" PRIu64 " at offset %" PRIu64
					 " is damaged: group %" PRIu64 " follows at %" PRIu64 "; run fsck.ckptfs",
					 w->name.s, s->last + 1, s->end, g.number, off);
	}
	return 0;
}

/* Make the end of the last segment durable: rewrite its last group, zero what follows. */
static int settle_tail(struct journal *j, struct journal_window *w, const struct journal_segment *s,
		       const struct tail *t)
{
	const uint8_t *p;
	int r = 0;

	if (t->last_off > 0) {
		size_t len = (size_t)(s->end - t->last_off);

		r = journal_window_get(w, t->last_off, len, &p);
		if (r < 0)
			return r;
		r = io_pwrite(w->fd, p, len, t->last_off);
	}
	if (r == 0)
		r = journal_zero(w->fd, s->end, t->nonzero_end);
	if (r == 0)
		r = io_sync(w->fd);
	if (r < 0)
		return log_errno(r, "journal %s: cannot write at %" PRIu64, w->name.s, s->end);
	j->fd = w->fd;
	w->fd = -1;
	j->off = s->end;
	j->size = s->size;
	return 0;
}

static int find_end(struct journal *j)
{
	_cleanup_(journal_window_release) struct journal_window w = JOURNAL_WINDOW_NONE;
	struct journal_segment *s = &j->segments[j->nr_segments - 1];
	struct tail t = { 0 };
	int r;

	r = journal_window_open(&w, j, JOURNAL_LOG, s->first, j->read_only ? O_RDONLY : O_RDWR);
	if (r < 0)
		return r;
	r = walk_groups(j, &w, s, &t);
	if (r < 0)
		return r;
	r = check_tail(j, &w, s, &t);
	if (r < 0)
		return r;
	if (t.nonzero_end > 0)
		log_warning("journal %s: last group %" PRIu64 " at offset %" PRIu64 " is incomplete: %" PRIu64
			    " bytes %s", w.name.s, s->last + 1, s->end, t.nonzero_end - s->end,
			    j->read_only ? "ignored" : "dropped");
	j->last = s->last;
	j->last_bytes = t.is_joint ? s->end - t.last_off : 0;
	if (!j->read_only) {
		r = settle_tail(j, &w, s, &t);
		if (r < 0)
			return r;
	}
	if (j->last < j->snapshot_number) {
		/* Damage to groups that the snapshot covers: harmless, but their numbers are in use. */
		log_warning("journal %s: ends with group %" PRIu64 " before snapshot %" PRIu64 ": going on from there",
			    w.name.s, s->last, journal_snapshot_number(j));
		j->last = j->snapshot_number;
		j->last_bytes = 0;
		closep(&j->fd);
		j->fd = -1;
	}
	return 0;
}

/* Remove the files that are no longer relevant. */
static void remove_strays(struct journal *j, const struct listing *l, size_t nr_covered)
{
	for (size_t i = 0; i < ARRAY_SIZE(temporaries); i++)
		if (l->temporary[i])
			remove_stray(j, temporaries[i]);
	for (size_t i = 0; i < nr_covered; i++)
		remove_stray(j, journal_log_name(l->logs.n[i]).s);
	for (size_t i = 0; i + 1 < l->snaps.nr; i++)
		remove_stray(j, journal_snap_name(l->snaps.n[i]).s);
}

static int find_spare(struct journal *j)
{
	struct stat st;

	if (fstatat(j->dirfd, SPARE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return log_errno(-errno, "journal %s: cannot stat", SPARE_NAME);
	if ((uint64_t)st.st_size >= MIN_SEGMENT_BYTES) { /* else not made by us; replaced by a new one */
		j->spare = SPARE_READY;
		j->spare_bytes = (uint64_t)st.st_size;
	}
	return 0;
}

static int load(struct journal *j)
{
	_cleanup_(listing_release) struct listing l = { 0 };
	size_t nr_covered = 0;
	int r;

	r = listing_read(j->dirfd, &l);
	if (r < 0)
		return r;
	r = find_snapshot(j, &l.snaps);
	if (r < 0)
		return r;
	r = find_segments(j, &l.logs, &nr_covered);
	if (r < 0)
		return r;
	if (!j->read_only) {
		r = io_sync_dir(j->dirfd);
		if (r < 0)
			return log_errno(r, "journal: cannot sync the directory");
	}
	if (j->nr_segments > 0) {
		r = find_end(j);
		if (r < 0)
			return r;
	}
	if (l.spare) {
		r = find_spare(j);
		if (r < 0)
			return r;
	}
	if (!j->read_only)
		remove_strays(j, &l, nr_covered);
	return 0;
}

int journal_open(int dirfd, const struct journal_conf *conf, struct journal **ret)
{
	_cleanup_(journal_closep) struct journal *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return -ENOMEM;
	mutex_init(&j->lock);
	j->fd = -1;
	j->dirfd = dirfd;
	memcpy(j->store_id, conf->store_id, sizeof(j->store_id));
	j->segment_bytes = conf->segment_bytes ? conf->segment_bytes : DEFAULT_SEGMENT_BYTES;
	j->segment_bytes = round_up(MAX(j->segment_bytes, MIN_SEGMENT_BYTES), JOURNAL_BLOCK);
	j->read_only = conf->read_only;
	j->spare_by_caller = conf->spare_by_caller;
	r = load(j);
	if (r < 0)
		return r;
	if (!j->read_only) {
		if (j->nr_segments == 0) {
			r = journal_segment_start(j, 1, 0);
			if (r < 0)
				return r;
		}
		if (j->spare == SPARE_NONE && !j->spare_by_caller)
			(void)journal_prepare(j); /* without a spare, only deletions on a full disk are affected */
	}
	*ret = TAKE(j);
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	if (!j->read_only)
		journal_segment_trim(j);
	closep(&j->fd);
	free(j->segments);
	journal_coder_release(&j->coder);
	mutex_release(&j->lock);
	free(j);
}

uint64_t journal_last(const struct journal *j)
{
	return j->last;
}

uint64_t journal_snapshot_number(const struct journal *j)
{
	return j->snapshot_number;
}

uint64_t journal_bytes_since_snapshot(const struct journal *j)
{
	return j->appended - j->snapshot_mark;
}

void journal_stats(struct journal *j, struct journal_stats *ret)
{
	struct journal_stats s = { .snapshot_bytes = j->snapshot_bytes };

	mutex_lock(&j->lock);
	s.nr_files = j->nr_segments + (j->spare == SPARE_READY) + (j->snapshot_number > 0);
	s.disk_bytes = s.snapshot_bytes + j->spare_bytes;
	for (size_t i = 0; i < j->nr_segments; i++)
		s.disk_bytes += j->segments[i].size;
	if (j->nr_segments > 0)
		s.nr_groups = j->segments[j->nr_segments - 1].last + 1 - j->segments[0].first;
	mutex_unlock(&j->lock);
	*ret = s;
}
