/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Places of chunks are in runs: files that are sorted by fingerprint, and never changed. A new run is written when
 * memory is full, and at the end of a flush. The list names the packs, and the runs that count.
 *
 * What makes a place safe to use:
 *   - Bytes. Each block of a run has a checksum, the id of its run and its number. It is checked at each access, because a
 *     wrong place would become part of a manifest. Packs are named by digests of their tables, so a place that was right
 *     once remains right: a pack of this name has this chunk, or does not exist.
 *   - Existence. A place counts only if its pack is usable. A writer that is opened regards no pack as usable until it
 *     has found the pack in a valid manifest, as in a tier without an index (flush_load.c). So the age of an index does
 *     not matter, nor do collections that have ended meanwhile. It may even belong to another tier.
 *
 * Crash order:
 *   1. runs, synced                         crash: files that the list does not name. The next opening removes them
 *   2. manifest in the tier                 crash: as above. The next writer finds packs of an own manifest that the list
 *                                           does not have, and reads their tables
 *   3. list.tmp, synced, and renamed        crash: as above, or the new list counts
 *   4. runs that were merged are removed    crash: as in 1
 * So a listed run has no places in packs of an unfinished flush. If a file is damaged, the list is removed first.
 *
 * A lookup reads one block of each run whose filter lets the fingerprint pass. The largest runs come first: they have
 * most chunks. The block is found with the first fingerprints of all blocks, which are in memory.
 */
#include "store/tier/index/tier_index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"

#define LIST_MAX ((size_t)GiB(1))
#define MERGE_FACTOR 4u
#define OTHERS_MAX 8u /* runs of chunks that only other stores have flushed */
#define UNLISTED_MAX 16u
#define WRITE_BYTES ((size_t)KiB(256))

struct run {
	struct tier_index_run r;
	int fd;
	bool is_listed;
	uint64_t *firsts; /* of each block of entries */
	uint64_t nr_blocks;
	uint8_t *filter; /* NULL: not in memory */
};

struct tier_index {
	int fd; /* of the folder */
	struct tier_index_owner owner;
	uint64_t filter_max, filter_bytes;
	struct buf list; /* as of the last commit */
	const uint8_t *packs; /* in it */
	uint32_t nr_packs;
	struct run runs[TIER_INDEX_RUNS_MAX]; /* in the order in which they were written */
	struct run *by_size[TIER_INDEX_RUNS_MAX]; /* the largest one first */
	uint32_t nr_runs;
};

static uint64_t nr_blocks(uint64_t nr_entries)
{
	return (nr_entries + TIER_INDEX_ENTRIES - 1) / TIER_INDEX_ENTRIES;
}

/* --- runs --- */

/* It is searched without a filter from now on. */
static void run_release_filter(struct tier_index *ix, struct run *run)
{
	ix->filter_bytes -= run->filter ? run->r.filter_len : 0;
	free(TAKE(run->filter));
}

static void run_release(struct tier_index *ix, struct run *run)
{
	closep(&run->fd);
	run_release_filter(ix, run);
	ix->filter_bytes -= run->firsts ? run->nr_blocks * sizeof(*run->firsts) : 0;
	free(run->firsts);
	*run = (struct run){ .fd = -1 };
}

static void run_remove(struct tier_index *ix, struct run *run)
{
	struct tier_index_name name = tier_index_run_name(run->r.id);

	run_release(ix, run);
	(void)io_unlink(ix->fd, name.s); /* the next opening tries again */
}

static int read_block(const struct run *run, uint64_t number, bool is_tail, struct tier_index_block_disk *ret)
{
	ssize_t n = io_pread(run->fd, ret, sizeof(*ret), number * sizeof(*ret));

	if (n < 0)
		return (int)n;
	return (size_t)n == sizeof(*ret) && tier_index_block_is_intact(ret, run->r.id, number, is_tail) ? 0 : -EBADMSG;
}

/* Up to `len` bytes of the tail, from its byte `from` on. */
static int read_tail(const struct run *run, uint64_t from, void *buf, uint64_t len)
{
	struct tier_index_block_disk b;
	int r = 0;

	for (uint64_t at = from; at < from + len && r == 0;) {
		uint64_t in = at % TIER_INDEX_TAIL, n = MIN(TIER_INDEX_TAIL - in, from + len - at);

		r = read_block(run, run->nr_blocks + at / TIER_INDEX_TAIL, true, &b);
		if (r == 0 && le32_get(b.nr) < in + n)
			r = -EBADMSG;
		if (r == 0)
			memcpy((uint8_t *)buf + (at - from), b.tail + in, n);
		at += n;
	}
	return r;
}

/* Reads the tail. -EBADMSG */
static int run_open(struct tier_index *ix, const struct tier_index_run *listed, struct run *ret)
{
	struct run run = { .r = *listed, .nr_blocks = nr_blocks(listed->nr_entries) };
	uint64_t firsts_len = run.nr_blocks * sizeof(struct le64);
	uint64_t nr_tail = (firsts_len + listed->filter_len + TIER_INDEX_TAIL - 1) / TIER_INDEX_TAIL;
	_cleanup_(freep) struct le64 *firsts = NULL;
	struct stat st;
	int r;

	run.fd = io_open(ix->fd, tier_index_run_name(listed->id).s, O_RDONLY, 0);
	if (run.fd < 0)
		return run.fd == -ENOENT ? -EBADMSG : run.fd;
	if (fstat(run.fd, &st) < 0 || (uint64_t)st.st_size != (run.nr_blocks + nr_tail) * TIER_INDEX_BLOCK) {
		closep(&run.fd);
		return -EBADMSG; /* so the sizes that are allocated below are those of a file */
	}
	firsts = malloc(firsts_len);
	run.firsts = malloc(firsts_len);
	r = firsts && run.firsts ? read_tail(&run, 0, firsts, firsts_len) : -ENOMEM;
	for (uint64_t i = 0; i < run.nr_blocks && r == 0; i++)
		run.firsts[i] = le64_get(firsts[i]);
	ix->filter_bytes += run.firsts ? firsts_len : 0;
	if (r == 0 && ix->filter_bytes + listed->filter_len <= ix->filter_max) {
		run.filter = malloc(listed->filter_len);
		ix->filter_bytes += run.filter ? listed->filter_len : 0;
		if (run.filter)
			r = read_tail(&run, firsts_len, run.filter, listed->filter_len);
	}
	if (r < 0)
		run_release(ix, &run);
	else
		*ret = run;
	return r;
}

/* Writes a run, entry by entry, in order. */
struct run_writer {
	struct tier_index *ix;
	struct run run;
	struct tier_index_block_disk block;
	uint32_t nr_in_block;
	uint64_t number; /* of the next block */
	struct buf firsts, filter, unwritten;
	uint64_t written;
	int error;
};

static void writer_release(struct run_writer *w)
{
	buf_release(&w->firsts);
	buf_release(&w->filter);
	buf_release(&w->unwritten);
}

static void write_out(struct run_writer *w)
{
	if (w->error == 0)
		w->error = buf_error(&w->unwritten);
	if (w->error == 0)
		w->error = io_pwrite(w->run.fd, w->unwritten.data, w->unwritten.len, w->written);
	w->written += w->unwritten.len;
	buf_clear(&w->unwritten);
}

static void end_block(struct run_writer *w, uint32_t nr)
{
	tier_index_block_seal(&w->block, w->run.r.id, w->number++, nr);
	buf_add(&w->unwritten, &w->block, sizeof(w->block));
	memset(&w->block, 0, sizeof(w->block));
	w->nr_in_block = 0;
	if (w->unwritten.len >= WRITE_BYTES)
		write_out(w);
}

static int writer_init(struct tier_index *ix, uint64_t nr_entries_max, bool is_own, struct run_writer *ret)
{
	struct run_writer *w = ret;
	uint64_t id;
	int r;

	*w = (struct run_writer){ .ix = ix, .run = { .fd = -1, .r = { .is_own = is_own } } };
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		return -EIO;
	w->run.r.id = id;
	w->run.r.filter_len = tier_filter_len(nr_entries_max);
	r = buf_reserve(&w->filter, w->run.r.filter_len);
	if (r < 0)
		return r;
	memset(w->filter.data, 0, w->run.r.filter_len);
	w->filter.len = w->run.r.filter_len;
	w->run.fd = io_open(ix->fd, tier_index_run_name(id).s, O_RDWR | O_CREAT | O_EXCL, 0600);
	return MIN(w->run.fd, 0);
}

static void writer_add(struct run_writer *w, const struct tier_index_entry *e)
{
	if (w->nr_in_block == 0) {
		struct le64 first = le64_put(e->fp.lo);

		buf_add(&w->firsts, &first, sizeof(first));
	}
	tier_index_entry_encode(e, &w->block.entries[w->nr_in_block++]);
	tier_filter_add(w->filter.data, w->filter.len, e->fp);
	w->run.r.nr_entries++;
	if (w->nr_in_block == TIER_INDEX_ENTRIES)
		end_block(w, TIER_INDEX_ENTRIES);
}

/* Writes the tail, syncs and opens the run. 0 if it has no entries, too: then *ret has none. */
static int writer_finish(struct run_writer *w, struct run *ret)
{
	struct tier_index *ix = w->ix;
	int r;

	*ret = (struct run){ .fd = -1 };
	if (w->nr_in_block > 0)
		end_block(w, w->nr_in_block);
	buf_add(&w->firsts, w->filter.data, w->filter.len);
	for (size_t at = 0; at < w->firsts.len; at += TIER_INDEX_TAIL) {
		size_t n = MIN(w->firsts.len - at, (size_t)TIER_INDEX_TAIL);

		memcpy(w->block.tail, w->firsts.data + at, n);
		end_block(w, (uint32_t)n);
	}
	r = buf_error(&w->firsts);
	write_out(w);
	r = r < 0 ? r : w->error;
	if (r == 0 && w->run.r.nr_entries > 0)
		r = io_sync(w->run.fd);
	closep(&w->run.fd);
	if (r == 0 && w->run.r.nr_entries > 0)
		r = run_open(ix, &w->run.r, ret);
	if (r < 0 || w->run.r.nr_entries == 0)
		(void)io_unlink(ix->fd, tier_index_run_name(w->run.r.id).s);
	return r;
}

/* --- the list --- */

static int compare_sizes(const void *a, const void *b)
{
	const struct run *x = *(const struct run *const *)a, *y = *(const struct run *const *)b;

	return x->r.nr_entries != y->r.nr_entries ?
		       (x->r.nr_entries < y->r.nr_entries) - (x->r.nr_entries > y->r.nr_entries) :
		       (x > y) - (x < y);
}

/* After a change of the runs. */
static void sort_runs(struct tier_index *ix)
{
	for (uint32_t i = 0; i < ix->nr_runs; i++)
		ix->by_size[i] = &ix->runs[i];
	qsort(ix->by_size, ix->nr_runs, sizeof(ix->by_size[0]), compare_sizes);
}

static int report_failure(const char *what, int r)
{
	return log_errno(r,
			 TIER_INDEX_FOLDER
			 "/: cannot %s the index of the tier; chunks that the tier has may be sent again",
			 what);
}

/* The list first: without it no run counts. */
static void remove_all(struct tier_index *ix)
{
	(void)io_unlink(ix->fd, "list");
	while (ix->nr_runs > 0)
		run_remove(ix, &ix->runs[--ix->nr_runs]);
	buf_clear(&ix->list);
	ix->nr_packs = 0;
}

static bool is_listed(const struct tier_index *ix, const char *name)
{
	for (uint32_t i = 0; i < ix->nr_runs; i++)
		if (strcmp(tier_index_run_name(ix->runs[i].r.id).s, name) == 0)
			return true;
	return false;
}

/* Runs that the list does not name, and a list that was being written. */
static void remove_strays(struct tier_index *ix)
{
	int fd = openat(ix->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		closep(&fd);
		return;
	}
	while ((e = readdir(dir))) {
		size_t len = strlen(e->d_name);

		if (strcmp(e->d_name, "list.tmp") == 0 ||
		    (len == 20 && strcmp(e->d_name + 16, ".run") == 0 && !is_listed(ix, e->d_name)))
			(void)io_unlink(ix->fd, e->d_name);
	}
	closedir(dir);
}

static int load_list(struct tier_index *ix)
{
	_cleanup_(closep) int fd = io_open(ix->fd, "list", O_RDONLY, 0);
	struct tier_index_list l;
	struct stat st;
	ssize_t n;
	int r;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (fstat(fd, &st) < 0 || st.st_size <= 0 || (uint64_t)st.st_size > LIST_MAX)
		return -EBADMSG;
	r = buf_reserve(&ix->list, (size_t)st.st_size);
	if (r < 0)
		return r;
	n = io_pread(fd, ix->list.data, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	ix->list.len = (size_t)n;
	r = tier_index_list_decode(ix->list.data, ix->list.len, &l);
	if (r == 0 && memcmp(&l.owner, &ix->owner, sizeof(l.owner)) != 0)
		return -EXDEV;
	for (uint32_t i = 0; i < l.nr_runs && r == 0; i++) {
		r = run_open(ix, &l.runs[i], &ix->runs[ix->nr_runs]);
		if (r == 0)
			ix->runs[ix->nr_runs++].is_listed = true;
	}
	ix->packs = l.packs;
	ix->nr_packs = r == 0 ? l.nr_packs : 0;
	return r;
}

int tier_index_open(int dirfd, const struct tier_index_owner *owner, uint64_t filter_max, struct tier_index **ret)
{
	struct tier_index *ix = calloc(1, sizeof(*ix));
	int r;

	if (!ix)
		return -ENOMEM;
	ix->owner = *owner;
	ix->filter_max = filter_max;
	r = io_mkdir(dirfd, TIER_INDEX_FOLDER, 0700);
	ix->fd = openat(dirfd, TIER_INDEX_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ix->fd < 0) {
		r = r < 0 && r != -EEXIST ? r : -errno;
		free(ix);
		return report_failure("open", r);
	}
	r = load_list(ix);
	if (r == -ENOMEM) {
		tier_index_close(ix);
		return r;
	}
	if (r < 0) {
		log_notice(TIER_INDEX_FOLDER "/: the index of the tier %s: it is made again",
			   r == -EXDEV			     ? "belongs to another store or tier" :
			   r == -EBADMSG || r == -EOPNOTSUPP ? "is damaged, or of a newer version" :
							       strerror(-r));
		remove_all(ix);
	}
	remove_strays(ix);
	sort_runs(ix);
	*ret = ix;
	return 0;
}

void tier_index_close(struct tier_index *ix)
{
	if (!ix)
		return;
	for (uint32_t i = 0; i < ix->nr_runs; i++)
		if (ix->runs[i].is_listed)
			run_release(ix, &ix->runs[i]);
		else
			run_remove(ix, &ix->runs[i]);
	closep(&ix->fd);
	buf_release(&ix->list);
	free(ix);
}

uint32_t tier_index_nr_packs(const struct tier_index *ix)
{
	return ix->nr_packs;
}

int tier_index_pack(const struct tier_index *ix, uint32_t i, struct tier_footer *ret)
{
	struct tier_manifest m = { .packs = ix->packs, .nr_packs = ix->nr_packs };

	memcpy(m.key_id, ix->owner.key_id, sizeof(m.key_id));
	return tier_manifest_pack(&m, i, ret);
}

uint64_t tier_index_nr_entries(const struct tier_index *ix, bool is_own)
{
	uint64_t nr = 0;

	for (uint32_t i = 0; i < ix->nr_runs; i++)
		nr += ix->runs[i].r.is_own == is_own ? ix->runs[i].r.nr_entries : 0;
	return nr;
}

/* --- lookups --- */

/* 1/0/-EBADMSG and errors of the disk */
static int find_in_run(const struct run *run, struct fp fp, uint32_t len, struct tier_place *ret)
{
	uint64_t low = 0, high = run->nr_blocks;
	struct tier_index_block_disk b;

	if (run->filter && !tier_filter_passes(run->filter, run->r.filter_len, fp))
		return 0;
	while (low < high) { /* the first block that begins behind it */
		uint64_t middle = low + (high - low) / 2;

		if (run->firsts[middle] <= fp.lo)
			low = middle + 1;
		else
			high = middle;
	}
	while (low-- > 0) {
		const struct tier_index_entry_disk *e;
		int r = read_block(run, low, false, &b);

		if (r < 0)
			return r;
		e = tier_index_block_find(&b, fp, len);
		if (e) {
			*ret = tier_index_entry_decode(e).place;
			return 1;
		}
		if (run->firsts[low] != fp.lo)
			break; /* else entries with the same lower half may be in the block before */
	}
	return 0;
}

static int remove_damaged(struct tier_index *ix, uint64_t run, int r)
{
	log_warning(TIER_INDEX_FOLDER "/%s: %s: the index of the tier is made again", tier_index_run_name(run).s,
		    r == -EBADMSG ? "is damaged" : strerror(-r));
	remove_all(ix);
	return -EIO;
}

int tier_index_find(struct tier_index *ix, struct fp fp, uint32_t len, const bool *is_gone, uint32_t nr_packs,
		    struct tier_place *ret, bool *ret_is_own)
{
	for (uint32_t i = 0; i < ix->nr_runs; i++) {
		const struct run *run = ix->by_size[i];
		struct tier_place place;
		int r = find_in_run(run, fp, len, &place);

		if (r < 0)
			return remove_damaged(ix, run->r.id, r);
		if (r > 0 && place.pack < nr_packs && !is_gone[place.pack]) {
			*ret = place;
			*ret_is_own = run->r.is_own;
			return 1;
		}
	}
	return 0;
}

/* --- new runs --- */

/* Reads the entries of a run in order. */
struct run_reader {
	const struct run *run;
	struct tier_index_block_disk block;
	uint64_t number; /* of the next block */
	uint32_t at, nr;
	struct tier_index_entry e;
};

/* 1: d->e is the next entry; 0: the end */
static int reader_next(struct run_reader *d)
{
	if (d->at == d->nr) {
		int r;

		if (d->number == d->run->nr_blocks)
			return 0;
		r = read_block(d->run, d->number++, false, &d->block);
		if (r < 0)
			return r;
		d->at = 0;
		d->nr = le32_get(d->block.nr);
	}
	d->e = tier_index_entry_decode(&d->block.entries[d->at++]);
	return 1;
}

struct merge {
	struct run_reader *v;
	uint32_t nr; /* with entries left */
	uint64_t failed_run;
};

static int merge_advance(struct merge *m, uint32_t i)
{
	int r = reader_next(&m->v[i]);

	if (r < 0)
		m->failed_run = m->v[i].run->r.id;
	else if (r == 0)
		m->v[i] = m->v[--m->nr];
	return r;
}

/* The runs in one, without the entries of packs that are gone (NULL: none is). */
static int merge_runs(struct tier_index *ix, struct run *const *runs, uint32_t nr, const bool *is_gone,
		      uint32_t nr_packs, struct run *ret)
{
	_cleanup_(freep) struct run_reader *readers = calloc(nr, sizeof(*readers));
	_cleanup_(writer_release) struct run_writer w = { .run = { .fd = -1 } };
	struct merge m = { .v = readers, .nr = nr };
	struct tier_index_entry last = { 0 };
	uint64_t nr_entries = 0;
	int r;

	if (!readers)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		readers[i].run = runs[i];
		nr_entries += runs[i]->r.nr_entries;
	}
	r = writer_init(ix, nr_entries, runs[0]->r.is_own, &w);
	if (r < 0)
		return r;
	for (uint32_t i = nr; i-- > 0 && r >= 0;) /* those behind it have been read, or took the place of an empty one */
		r = merge_advance(&m, i);
	while (m.nr > 0 && r >= 0 && w.error == 0) {
		uint32_t first = 0;
		const struct tier_index_entry *e;

		for (uint32_t i = 1; i < m.nr; i++)
			if (tier_index_entry_compare(&readers[i].e, &readers[first].e) < 0)
				first = i;
		e = &readers[first].e;
		if (!is_gone || (e->place.pack < nr_packs && !is_gone[e->place.pack])) {
			if (w.run.r.nr_entries == 0 || tier_index_entry_compare(&last, e) != 0)
				writer_add(&w, e);
			last = *e;
		}
		r = merge_advance(&m, first);
	}
	if (r < 0) {
		closep(&w.run.fd);
		(void)io_unlink(ix->fd, tier_index_run_name(w.run.r.id).s);
		return m.failed_run ? remove_damaged(ix, m.failed_run, r) : r;
	}
	for (uint32_t i = 0; i < nr; i++)
		run_release_filter(ix, runs[i]); /* they are removed soon: the memory is for the filter of the new run */
	return writer_finish(&w, ret);
}

/*
 * The last runs of own chunks, or of others, that are to be merged: each one before them is MERGE_FACTOR times as large
 * as all of them. Returns how many there are.
 */
static uint32_t choose_runs(struct tier_index *ix, bool is_own, bool unlisted_only, struct run *ret[TIER_INDEX_RUNS_MAX])
{
	uint64_t sum = 0;
	uint32_t nr = 0;

	for (uint32_t i = ix->nr_runs; i-- > 0;) {
		struct run *run = &ix->runs[i];

		if (run->r.is_own != is_own || (unlisted_only && run->is_listed))
			continue;
		if (nr > 0 && run->r.nr_entries >= MERGE_FACTOR * sum)
			break;
		sum += run->r.nr_entries;
		ret[nr++] = run;
	}
	return nr;
}

/* Takes runs that have been marked out of the list in memory. */
static void drop_marked(struct tier_index *ix, const bool *is_marked)
{
	uint32_t nr = 0;

	for (uint32_t i = 0; i < ix->nr_runs; i++)
		if (is_marked[i])
			run_remove(ix, &ix->runs[i]);
		else
			ix->runs[nr++] = ix->runs[i];
	ix->nr_runs = nr;
	sort_runs(ix);
}

static void mark_runs(const struct tier_index *ix, struct run *const *runs, uint32_t nr, bool *is_marked)
{
	for (uint32_t i = 0; i < nr; i++)
		is_marked[runs[i] - ix->runs] = true;
}

/* Many runs were written since the last commit, with little memory. */
static int merge_unlisted(struct tier_index *ix, bool is_own)
{
	struct run *runs[TIER_INDEX_RUNS_MAX], merged;
	bool is_marked[TIER_INDEX_RUNS_MAX] = { false };
	uint32_t nr = choose_runs(ix, is_own, true, runs);
	int r = nr > 1 ? merge_runs(ix, runs, nr, NULL, 0, &merged) : 0;

	if (r < 0 || nr <= 1)
		return r;
	mark_runs(ix, runs, nr, is_marked);
	drop_marked(ix, is_marked);
	ix->runs[ix->nr_runs++] = merged;
	sort_runs(ix);
	return 0;
}

int tier_index_add(struct tier_index *ix, struct tier_index_entry *v, size_t nr, bool is_own)
{
	_cleanup_(writer_release) struct run_writer w = { .run = { .fd = -1 } };
	uint32_t nr_unlisted = 0;
	int r;

	if (nr == 0)
		return 0;
	if (ix->nr_runs == TIER_INDEX_RUNS_MAX)
		return report_failure("extend", -EFBIG);
	qsort(v, nr, sizeof(*v), tier_index_entry_compare);
	r = writer_init(ix, nr, is_own, &w);
	for (size_t i = 0; i < nr && r == 0; i++)
		if (i == 0 || tier_index_entry_compare(&v[i - 1], &v[i]) != 0)
			writer_add(&w, &v[i]);
	if (r == 0)
		r = writer_finish(&w, &ix->runs[ix->nr_runs]);
	if (r < 0)
		return report_failure("extend", r);
	ix->nr_runs++;
	sort_runs(ix);
	for (uint32_t i = 0; i < ix->nr_runs; i++)
		nr_unlisted += ix->runs[i].r.is_own == is_own && !ix->runs[i].is_listed;
	return nr_unlisted >= UNLISTED_MAX ? merge_unlisted(ix, is_own) : 0;
}

/* --- commits --- */

static int write_list(struct tier_index *ix, const struct buf *b)
{
	_cleanup_(closep) int fd = io_open(ix->fd, "list.tmp", O_WRONLY | O_CREAT | O_TRUNC, 0600);
	int r = fd < 0 ? fd : io_pwrite(fd, b->data, b->len, 0);

	if (r == 0)
		r = io_sync(fd);
	if (r == 0)
		r = io_rename(ix->fd, "list.tmp", ix->fd, "list");
	return r < 0 ? r : io_sync_dir(ix->fd);
}

/* The oldest of those that only other stores have flushed; not the last one. */
static void mark_others(const struct tier_index *ix, uint64_t others_max, bool *is_marked)
{
	uint64_t sum = 0;
	uint32_t nr = 0;

	for (uint32_t i = ix->nr_runs; i-- > 0;) {
		if (ix->runs[i].r.is_own)
			continue;
		sum += ix->runs[i].r.nr_entries;
		is_marked[i] = nr++ > 0 && (nr > OTHERS_MAX || sum > others_max);
	}
}

int tier_index_commit(struct tier_index *ix, const void *packs, uint32_t nr_packs, const bool *is_gone,
		      uint64_t others_max)
{
	struct run *runs[TIER_INDEX_RUNS_MAX], merged = { .fd = -1 };
	bool is_marked[TIER_INDEX_RUNS_MAX + 1] = { false };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_index_list l = { .owner = ix->owner, .packs = packs, .nr_packs = nr_packs };
	int r = merge_unlisted(ix, false);
	uint32_t nr = choose_runs(ix, true, false, runs);

	if (r == 0 && nr > 1)
		r = merge_runs(ix, runs, nr, is_gone, nr_packs, &merged);
	if (r < 0)
		return r == -EIO ? r : report_failure("merge", r);
	if (nr > 1)
		mark_runs(ix, runs, nr, is_marked);
	mark_others(ix, others_max, is_marked);
	for (uint32_t i = 0; i < ix->nr_runs; i++)
		if (!is_marked[i])
			l.runs[l.nr_runs++] = ix->runs[i].r;
	if (merged.fd >= 0)
		l.runs[l.nr_runs++] = merged.r;
	tier_index_list_encode(&l, &b);
	r = buf_error(&b);
	if (r == 0)
		r = write_list(ix, &b);
	if (r < 0) {
		if (merged.fd >= 0)
			run_remove(ix, &merged);
		return report_failure("write", r);
	}
	buf_release(&ix->list);
	buf_move(&ix->list, &b);
	ix->packs = ix->list.data + sizeof(struct tier_index_disk);
	ix->nr_packs = nr_packs;
	drop_marked(ix, is_marked);
	if (merged.fd >= 0)
		ix->runs[ix->nr_runs++] = merged;
	for (uint32_t i = 0; i < ix->nr_runs; i++)
		ix->runs[i].is_listed = true;
	sort_runs(ix);
	return 0;
}
