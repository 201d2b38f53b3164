/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Crashes. Every change of a journal's life is recorded; then the directory is made as a crash after each of them may
 * leave it, and opened: all acknowledged groups are there, at most the one being appended besides, all with the bytes
 * that were appended.
 *
 * The disk assumed: a file's bytes are durable once its sync worked, names once the directory's did. What was not
 * synced may be there, missing, or there in part: sector by sector, name by name. After a sync that failed, bytes
 * written before it are never made durable by a later sync: the kernel holds them for clean.
 */
#include "tests/unit/store/journal/rig.h"

#include <sys/stat.h>
#include <unistd.h>

#define FILES 256
#define CHANGES 1024

struct change {
	enum io_op op; /* OPEN (creates), WRITE, SYNC, SYNC_DIR, RENAME, UNLINK */
	unsigned file; /* OPEN, WRITE, SYNC, RENAME */
	char name[32], new_name[32];
	uint64_t off, len;
	uint8_t *bytes;
	bool failed;	/* SYNC, SYNC_DIR */
	uint64_t acked; /* groups before it */
};

struct entry {
	char name[32];
	unsigned file;
	bool there;
};

struct recorder {
	struct rig *rig;
	struct entry dir[FILES]; /* as it is now */
	struct change changes[CHANGES];
	size_t nr;
	ino_t inode_of[FILES];
	unsigned nr_files;
	unsigned nr_syncs;	   /* so far */
	unsigned fail_at, fail_nr; /* from which on syncs fail, from 0, and how many */
};

static unsigned file_of(struct recorder *rec, int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	for (unsigned i = rec->nr_files; i-- > 0;)
		if (rec->inode_of[i] == st.st_ino)
			return i;
	fail_msg("a file that was not created");
	return 0;
}

static struct change *add_change(struct recorder *rec, enum io_op op)
{
	struct change *c = &rec->changes[rec->nr++];

	assert_true(rec->nr < CHANGES);
	*c = (struct change){ .op = op, .acked = rec->rig->acked };
	return c;
}

static struct entry *find_entry(struct entry *dir, const char *name)
{
	for (struct entry *e = dir; e < dir + FILES; e++)
		if (e->there && strcmp(e->name, name) == 0)
			return e;
	return NULL;
}

static void remove_name(struct entry *dir, const char *name)
{
	struct entry *e = find_entry(dir, name);

	if (e)
		e->there = false;
}

static void set_name(struct entry *dir, const char *name, unsigned file)
{
	struct entry *e = dir;

	remove_name(dir, name);
	while (e->there)
		e++;
	*e = (struct entry){ .file = file, .there = true };
	snprintf(e->name, sizeof(e->name), "%s", name);
}

/* A change of names made on its own: others before it may be missing. */
static void change_name(struct entry *dir, const struct change *c)
{
	struct entry *old = find_entry(dir, c->name);

	if (c->op == IO_OPEN)
		set_name(dir, c->name, c->file);
	else if (c->op == IO_UNLINK)
		remove_name(dir, c->name);
	else if (c->op == IO_RENAME) {
		if (old && old->file == c->file)
			old->there = false;
		set_name(dir, c->new_name, c->file);
	}
}

static void record_write(struct recorder *rec, const struct io_event *ev)
{
	struct change *c = add_change(rec, IO_WRITE);
	uint8_t *p;

	c->file = file_of(rec, ev->fd);
	c->off = ev->off;
	c->len = ev->len;
	c->bytes = p = malloc(ev->len);
	assert_non_null(p);
	for (int i = 0; i < ev->iovcnt; i++) {
		if (ev->iov[i].iov_len > 0)
			memcpy(p, ev->iov[i].iov_base, ev->iov[i].iov_len);
		p += ev->iov[i].iov_len;
	}
}

static int before(void *userdata, const struct io_event *ev)
{
	struct recorder *rec = userdata;
	struct change *c;
	unsigned n;

	if (ev->op != IO_SYNC && ev->op != IO_SYNC_DIR)
		return 0;
	n = rec->nr_syncs++;
	if (n < rec->fail_at || n >= rec->fail_at + rec->fail_nr)
		return 0;
	c = add_change(rec, ev->op);
	c->failed = true;
	if (ev->op == IO_SYNC)
		c->file = file_of(rec, ev->fd);
	return -EIO;
}

static void after(void *userdata, const struct io_event *ev, int64_t result)
{
	struct recorder *rec = userdata;
	struct change *c;
	struct stat st;

	if (ev->op == IO_READ || result < 0)
		return;
	if (ev->op == IO_WRITE) {
		record_write(rec, ev);
		return;
	}
	c = add_change(rec, ev->op);
	if (ev->op == IO_OPEN) {
		assert_int_equal(fstat(ev->new_fd, &st), 0);
		assert_true(rec->nr_files < FILES);
		c->file = rec->nr_files++;
		rec->inode_of[c->file] = st.st_ino;
	}
	if (ev->op == IO_SYNC)
		c->file = file_of(rec, ev->fd);
	if (ev->name)
		snprintf(c->name, sizeof(c->name), "%s", ev->name);
	if (ev->op == IO_RENAME) {
		c->file = find_entry(rec->dir, ev->name)->file;
		snprintf(c->new_name, sizeof(c->new_name), "%s", ev->new_name);
	}
	change_name(rec->dir, c);
}

static void recorder_release(struct recorder *rec)
{
	for (size_t i = 0; i < rec->nr; i++)
		free(rec->changes[i].bytes);
}

/* How what was not synced fares. */
enum fate { ALL, NONE, SOME };

/* Index of the sync that settles change `i` within the first `nr`, or `nr`; *ret_failed: it did not work. */
static size_t settled_by(const struct recorder *rec, size_t nr, size_t i, bool *ret_failed)
{
	const struct change *c = &rec->changes[i];
	bool bytes = c->op == IO_WRITE;

	for (size_t k = i + 1; k < nr; k++) {
		const struct change *s = &rec->changes[k];

		if (bytes && s->op == IO_SYNC && s->file == c->file) {
			*ret_failed = s->failed;
			return k;
		}
		if (!bytes && s->op == IO_SYNC_DIR && !s->failed) {
			*ret_failed = false;
			return k;
		}
	}
	*ret_failed = true;
	return nr;
}

struct content {
	uint8_t *p;
	size_t len;
};

static void write_bytes(struct content *to, const struct change *c, enum fate fate)
{
	for (uint64_t at = 0; at < c->len; at += JOURNAL_BLOCK) {
		size_t n = (size_t)MIN(c->len - at, (uint64_t)JOURNAL_BLOCK), end = (size_t)(c->off + at) + n;

		if (fate == NONE || (fate == SOME && rand() % 2))
			continue;
		if (end > to->len) {
			to->p = realloc(to->p, end);
			assert_non_null(to->p);
			memset(to->p + to->len, 0, end - to->len);
			to->len = end;
		}
		memcpy(to->p + c->off + at, c->bytes + at, n);
	}
}

/* Makes the directory that a crash after `nr` changes leaves. */
static void make_state(struct recorder *rec, size_t nr, enum fate fate)
{
	struct content contents[FILES] = { 0 };
	struct entry dir[FILES] = { 0 };

	for (size_t i = 0; i < nr; i++) {
		const struct change *c = &rec->changes[i];
		bool failed;

		if (c->op == IO_SYNC || c->op == IO_SYNC_DIR)
			continue;
		settled_by(rec, nr, i, &failed);
		if (c->op == IO_WRITE) {
			write_bytes(&contents[c->file], c, failed ? fate : ALL);
			continue;
		}
		if (!failed || fate == ALL || (fate == SOME && rand() % 2))
			change_name(dir, c);
	}
	for (struct entry *e = dir; e < dir + FILES; e++)
		if (e->there)
			rig_store(rec->rig, e->name, contents[e->file].p ? contents[e->file].p : (uint8_t *)"",
				  contents[e->file].len);
	for (unsigned i = 0; i < FILES; i++)
		free(contents[i].p);
}

/* `acked` before the crash, and what the next change would have told. */
static void check_state(struct rig *rig, uint64_t acked)
{
	rig_open(rig);
	assert_in_range(journal_last(rig->j), acked, acked + 1);
	rig_check(rig, 0);
	rig_append(rig, 1);
	rig_open(rig);
	assert_in_range(journal_last(rig->j), acked + 1, acked + 2);
	rig_check(rig, 0);
	rig_close(rig);
	rig_wipe(rig);
}

static void record_life(struct recorder *rec, struct rig *rig, unsigned fail_at, unsigned fail_nr,
			enum rig_on_error on_error)
{
	struct io_hook hook = { before, after, rec };

	rig_init(rig, RIG_LIFE_SEGMENT);
	*rec = (struct recorder){ .rig = rig, .fail_at = fail_at, .fail_nr = fail_nr };
	io_set_hook(&hook);
	assert_true(rig_live(rig, -EIO, on_error));
	io_set_hook(NULL);
	rig_close(rig);
	rig_wipe(rig);
}

/* At every `step`th change, `rounds` times. */
static void check_states(struct recorder *rec, enum fate fate, unsigned step, unsigned rounds, size_t *nr_states)
{
	uint32_t large[RIG_GROUPS];

	memcpy(large, rec->rig->large, sizeof(large));
	for (size_t nr = 0; nr <= rec->nr; nr += step)
		for (unsigned i = 0; i < rounds; i++) {
			srand((unsigned)nr * 1000 + i);
			make_state(rec, nr, fate);
			check_state(rec->rig, nr < rec->nr ? rec->changes[nr].acked : rec->rig->acked);
			memcpy(rec->rig->large, large, sizeof(large));
			(*nr_states)++;
		}
}

static void a_crash_after_any_change_loses_nothing(void **state _unused_)
{
	_cleanup_(recorder_release) struct recorder rec;
	_cleanup_(rig_release) struct rig rig;
	size_t nr_states = 0;

	record_life(&rec, &rig, 0, 0, RIG_STOP);
	check_states(&rec, ALL, 1, 1, &nr_states);
	check_states(&rec, NONE, 1, 1, &nr_states);
	check_states(&rec, SOME, 1, 20, &nr_states);
	print_message("%zu changes, %zu states\n", rec.nr, nr_states);
}

/* Each sync in turn fails, and `nr` - 1 after it. */
static void fail_syncs(unsigned nr, enum rig_on_error on_error)
{
	size_t nr_states = 0;

	for (unsigned at = 0;; at++) {
		_cleanup_(recorder_release) struct recorder rec;
		_cleanup_(rig_release) struct rig rig;

		record_life(&rec, &rig, at, nr, on_error);
		if (rec.nr_syncs <= at)
			break;
		check_states(&rec, NONE, 1, 1, &nr_states);
		check_states(&rec, SOME, 5, 1, &nr_states);
	}
	print_message("%zu states\n", nr_states);
}

static void a_crash_after_a_failed_sync_loses_nothing(void **state _unused_)
{
	fail_syncs(1, RIG_RETRY);
}

/* The second failure hits the attempt to write the group elsewhere: the append fails, and the next opening finds the
 * group in the page cache, though it may never have reached the disk. */
static void a_crash_after_failed_syncs_and_reopening_loses_nothing(void **state _unused_)
{
	fail_syncs(2, RIG_REOPEN);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_crash_after_any_change_loses_nothing),
		cmocka_unit_test(a_crash_after_a_failed_sync_loses_nothing),
		cmocka_unit_test(a_crash_after_failed_syncs_and_reopening_loses_nothing),
	};

	log_to_file("/dev/null");
	return cmocka_run_group_tests_name("journal_crash", tests, NULL, NULL);
}
