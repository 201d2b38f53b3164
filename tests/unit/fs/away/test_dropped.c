/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A drop, step by step: what a crash leaves between any two of its steps is read, whole, from the store or the tier. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/away/dropped.h"
#include "fs/background/flusher.h"
#include "fs/fs.h"
#include "fs/mount_options.h"
#include "fs/posix/attr.h"
#include "fs/posix/file.h"
#include "fs/posix/namespace.h"
#include "fs/seal/reaper.h"
#include "fs/seal/seal.h"
#include "store/engine.h"
#include "store/tier/recall/tier_recall.h"
#include "store/tier/seals/tier_root.h"
#include "tests/unit/place.h"

#define NR_FILES 70u /* two transactions of records */
#define LEN 5000u
#define OUTSIDE (NR_FILES - 1) /* the file with a name outside of the checkpoint */

struct world {
	char path[64], tier[80], url[90];
	struct options o;
	struct fs *fs;
	uint64_t old, new, files[NR_FILES]; /* of the old checkpoint */
	unsigned nr_steps, nr_crashes, stop_at;
	unsigned seen; /* state at the last crash */
	struct cancel cancel;
};

static const struct cred owner = { .uid = 1000, .gid = 100 }, other = { .uid = 1001, .gid = 100 };

static void ignore(void *userdata _unused_, enum log_level level _unused_, const char *line _unused_)
{
}

static uint64_t make(struct world *w, uint64_t dir, const char *name, uint32_t mode)
{
	struct names_new n = { .mode = mode };
	struct stat st;

	assert_int_equal(names_make(w->fs, dir, name, &n, &owner, &st), 0);
	return st.st_ino;
}

static void fill(uint8_t p[LEN], unsigned file)
{
	for (unsigned i = 0; i < LEN; i++)
		p[i] = (uint8_t)(file + i * 7 + i / 251 * file);
}

static uint64_t make_file(struct world *w, uint64_t dir, unsigned number)
{
	uint8_t bytes[LEN];
	struct content *c;
	char name[16];
	uint64_t ino;

	snprintf(name, sizeof(name), "f%u", number);
	ino = make(w, dir, name, S_IFREG | 0644);
	fill(bytes, number);
	assert_int_equal(content_open(w->fs->engine, ino, &c), 0);
	assert_int_equal(content_write(c, bytes, LEN, 0), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
	return ino;
}

static void open_store(const char *path, struct options *o, struct fs **ret)
{
	struct engine *e;

	assert_int_equal(engine_open(path, &o->engine, &e), 0);
	assert_int_equal(fs_open(e, o, NULL, ret), 0);
}

static void seal(struct world *w, uint64_t dir)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct ns_seal s;

	assert_int_equal(seal_directory(w->fs, dir, &owner, &s, &culprit), 0);
}

static void flush(struct world *w, uint64_t dir)
{
	struct flusher_checkpoint c = { 0 };

	assert_int_equal(flusher_start(w->fs->flusher), 0);
	while (!c.is_in_tier) {
		usleep(2000);
		assert_int_equal(flusher_find(w->fs->flusher, dir, &c), 0);
	}
	assert_true(flusher_stop(w->fs->flusher));
}

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct stat st;
	uint64_t sub;

	log_to_function(ignore, NULL); /* failures are asked for here */
	snprintf(w->path, sizeof(w->path), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(w->path));
	snprintf(w->tier, sizeof(w->tier), "%s.tier", w->path);
	assert_int_equal(mkdir(w->tier, 0700), 0);
	snprintf(w->url, sizeof(w->url), "dir:%s", w->tier);
	assert_int_equal(options_init(&w->o), 0);
	w->o.store = w->o.mountpoint = w->path;
	w->o.tier = strdup(w->url);
	open_store(w->path, &w->o, &w->fs);
	w->old = make(w, NS_ROOT_INO, "old", S_IFDIR | 0755);
	sub = make(w, w->old, "sub", S_IFDIR | 0755);
	for (unsigned i = 0; i < NR_FILES; i++)
		w->files[i] = make_file(w, i % 2 ? sub : w->old, i);
	assert_int_equal(names_link(w->fs, w->files[0], sub, "twin", NULL, &st), 0);
	assert_int_equal(names_link(w->fs, w->files[OUTSIDE], NS_ROOT_INO, "outside", NULL, &st), 0);
	seal(w, w->old);
	w->new = make(w, NS_ROOT_INO, "new", S_IFDIR | 0755);
	make_file(w, w->new, 0);
	seal(w, w->new);
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;
	char command[300];

	assert_int_equal(fs_close(w->fs), 0);
	options_release(&w->o);
	snprintf(command, sizeof(command), "rm -rf %s %s.copy %s", w->path, w->path, w->tier);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static ssize_t read_file(struct fs *fs, uint64_t ino, uint8_t *p, bool may_wait)
{
	struct file *f;
	ssize_t n;

	assert_int_equal(file_open(fs, ino, O_RDONLY, &f), 0);
	n = file_read(fs, f, O_RDONLY, p, 2 * LEN, 0, may_wait);
	file_close(fs, f);
	return n;
}

static void expect_all(struct fs *fs, const struct world *w)
{
	uint8_t got[2 * LEN], want[LEN];

	for (unsigned i = 0; i < NR_FILES; i++) {
		fill(want, i);
		assert_int_equal(read_file(fs, w->files[i], got, true), LEN);
		assert_memory_equal(got, want, LEN);
	}
}

struct counts {
	unsigned recorded, here; /* files that have a record; that have bytes in the store */
};

static struct counts count(struct fs *fs, const struct world *w)
{
	struct counts n = { 0 };
	struct ns_content c;
	struct ns_away at;

	for (unsigned i = 0; i < NR_FILES; i++) {
		n.recorded += ns_get_away(fs->db, w->files[i], &at) > 0;
		assert_int_equal(content_peek(fs->engine, w->files[i], &c), 0);
		assert_int_equal(c.size, LEN);
		n.here += c.mapped > 0;
	}
	return n;
}

static void expect_counts(struct fs *fs, const struct world *w, unsigned recorded, unsigned here)
{
	struct counts n = count(fs, w);

	assert_int_equal(n.recorded, recorded);
	assert_int_equal(n.here, here);
}

/* What a kill leaves of what is durable at this moment; the drop is repeated there. */
static void crash(struct world *w)
{
	_cleanup_(buf_release) struct buf culprit = BUF_EMPTY;
	struct options o = w->o;
	char command[256], path[80];
	struct counts before = count(w->fs, w), after;
	struct fs *fs;
	int r;

	assert_int_equal(engine_sync(w->fs->engine), 0);
	snprintf(path, sizeof(path), "%s.copy", w->path);
	snprintf(command, sizeof(command), "rm -rf %s && cp -r %s %s", path, w->path, path);
	assert_int_equal(system(command), 0);
	open_store(path, &o, &fs);
	after = count(fs, w);
	assert_int_equal(after.recorded, before.recorded);
	assert_int_equal(after.here, NR_FILES - before.recorded); /* the mount has erased the rest */
	expect_all(fs, w);
	assert_int_equal(seal_undo(fs, w->old, &owner, &culprit),
			 before.recorded > 0 || away_is_dropped(fs, w->old) > 0 ? -EREMOTE : 0);
	if (before.recorded > 0) {
		r = away_drop(fs, w->old, 0, &owner);
		assert_true(r == 0 || r == -EALREADY);
		expect_counts(fs, w, NR_FILES - 1, 1); /* also those that had no record */
		expect_all(fs, w);
	}
	assert_int_equal(fs_close(fs), 0);
	w->nr_crashes++;
}

/* Called between two steps, where the drop holds no lock. */
static bool look(void *userdata)
{
	struct world *w = userdata;
	struct counts n = count(w->fs, w);
	unsigned state = n.recorded * 100 + n.here / 10;

	cancel_set(NULL); /* for what is called from here */
	w->nr_steps++;
	if (w->stop_at == 0 && state != w->seen) {
		w->seen = state;
		crash(w);
		expect_all(w->fs, w);
	}
	cancel_set(&w->cancel);
	return w->stop_at != 0 && w->nr_steps >= w->stop_at;
}

static int drop(struct world *w)
{
	int r;

	w->cancel = (struct cancel){ look, w };
	w->nr_steps = 0;
	cancel_set(&w->cancel);
	r = away_drop(w->fs, w->old, 0, &owner);
	cancel_set(NULL);
	return r;
}

static void a_crash_at_any_step_leaves_all_bytes(void **state)
{
	struct world *w = *state;

	flush(w, w->old);
	assert_int_equal(drop(w), 0);
	assert_true(w->nr_crashes >= 8); /* before, some records, all of them, and some of the files erased */
	expect_counts(w->fs, w, NR_FILES - 1, 1);
	expect_all(w->fs, w);
	assert_int_equal(drop(w), -EALREADY);
	assert_int_equal(fs_close(w->fs), 0);
	open_store(w->path, &w->o, &w->fs);
	expect_counts(w->fs, w, NR_FILES - 1, 1);
	expect_all(w->fs, w);
}

static void given_up_at_any_step_it_can_be_repeated(void **state)
{
	struct world *w = *state;
	unsigned nr_given_up = 0;
	int r = -EINTR;

	flush(w, w->old);
	for (w->stop_at = 1; r == -EINTR; w->stop_at += 1 + w->stop_at / 8) {
		r = drop(w);
		nr_given_up += r == -EINTR;
		expect_all(w->fs, w);
	}
	assert_int_equal(r, 0);
	assert_true(nr_given_up >= 3);
	expect_counts(w->fs, w, NR_FILES - 1, 1);
}

static void what_must_stay_stays(void **state)
{
	struct world *w = *state;
	struct ns_seal s;

	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), -EAGAIN); /* it is not in the tier */
	flush(w, w->old);
	assert_int_equal(ns_get_seal(w->fs->db, w->old, &s), 1);
	assert_int_equal(away_drop(w->fs, w->new, 0, &owner), -EBUSY); /* the newest */
	assert_int_equal(away_drop(w->fs, w->old, s.sealed_ns + 1, &owner), -ESTALE);
	assert_int_equal(away_drop(w->fs, w->old, 0, &other), -EPERM);
	assert_int_equal(away_drop(w->fs, w->files[0], 0, &owner), -ENODATA);
	w->fs->read_only = true;
	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), -EROFS);
	w->fs->read_only = false;
	expect_counts(w->fs, w, 0, NR_FILES);
	assert_int_equal(away_drop(w->fs, w->old, s.sealed_ns, &(struct cred){ .pid = PID_ANSWERED }), 0);
	expect_counts(w->fs, w, NR_FILES - 1, 1);
}

/* With the directory of the tier in $t. */
static void shell(const struct world *w, const char *script)
{
	char command[400];

	snprintf(command, sizeof(command), "t=%s; %s", w->tier, script);
	assert_int_equal(system(command), 0);
}

/* Damage of the manifest, or of the tables of a pack: nothing is dropped. */
static void a_damaged_copy_is_none(void **state)
{
	static const char *const damage[] = {
		"find $t/sealed -type f | while read -r f; do chmod u+w $f; printf x | dd of=$f bs=1 seek=900 conv=notrunc 2>/dev/null; done",
		"find $t/packs -type f | while read -r f; do chmod u+w $f; truncate -s -4096 $f; done",
		"rm -r $t/packs",
	};
	struct world *w = *state;

	flush(w, w->old);
	shell(w, "cp -a $t $t.whole");
	for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
		shell(w, damage[i]);
		assert_int_equal(away_drop(w->fs, w->old, 0, &owner), -EBADMSG);
		expect_counts(w->fs, w, 0, NR_FILES);
		expect_all(w->fs, w);
		assert_int_equal(fs_close(w->fs), 0);
		shell(w, "rm -r $t && cp -a $t.whole $t");
		open_store(w->path, &w->o, &w->fs);
	}
	shell(w, "rm -r $t.whole");
	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), 0);
	expect_all(w->fs, w);
}

/* Manifest and tables are in memory, as those of packs that another dropped checkpoint shares. */
static void read_root(struct world *w)
{
	struct tier_recall *recall = away_recall(w->fs->away);
	const struct tier_waiter waiter = { 0 };
	uint8_t root[NS_SEAL_ROOT_LEN];
	struct tier_recalled *e;
	struct ns_seal s;
	uint64_t number;

	assert_int_equal(ns_get_seal(w->fs->db, w->old, &s), 1);
	assert_int_equal(tier_recall_find(recall, w->old, s.sealed_ns, NULL, &number), 1);
	assert_int_equal(tier_recall_enter(recall, number, NULL, NULL, &e, NULL), 0);
	assert_int_equal(tier_root(e->tree, e->source, s.root, &waiter, root), 0);
	assert_memory_equal(root, s.root, sizeof(root));
	tier_recall_leave(recall, e);
}

static void a_copy_in_memory_is_none(void **state)
{
	static const char *const damage[] = {
		"find $t/sealed -type f | while read -r f; do chmod u+w $f; printf x | dd of=$f bs=1 seek=900 conv=notrunc 2>/dev/null; done",
		"find $t/packs -type f | while read -r f; do chmod u+w $f; truncate -s -4096 $f; done",
		"rm -r $t/packs",
	};
	struct world *w = *state;

	flush(w, w->old);
	shell(w, "cp -a $t $t.whole");
	for (size_t i = 0; i < ARRAY_SIZE(damage); i++) {
		read_root(w);
		shell(w, damage[i]);
		assert_int_equal(away_drop(w->fs, w->old, 0, &owner), -EBADMSG);
		expect_counts(w->fs, w, 0, NR_FILES);
		shell(w, "rm -r $t/* && cp -a $t.whole/. $t");
	}
	shell(w, "rm -r $t.whole");
	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), 0);
	expect_all(w->fs, w);
}

static void without_the_tier_reads_fail_and_return_with_it(void **state)
{
	struct world *w = *state;
	uint8_t got[2 * LEN];
	char *url;

	flush(w, w->old);
	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), 0);
	assert_int_equal(fs_close(w->fs), 0);
	open_store(w->path, &w->o, &w->fs);
	shell(w, "mv $t $t.away");
	assert_int_equal(read_file(w->fs, w->files[0], got, false), -EINPROGRESS);
	assert_int_equal(read_file(w->fs, w->files[0], got, true), -EIO);
	assert_int_equal(read_file(w->fs, w->files[OUTSIDE], got, true), LEN);
	shell(w, "mv $t.away $t");
	expect_all(w->fs, w);
	assert_int_equal(read_file(w->fs, w->files[0], got, false), LEN); /* from memory */
	assert_int_equal(fs_close(w->fs), 0);
	url = TAKE(w->o.tier);
	open_store(w->path, &w->o, &w->fs);
	assert_int_equal(read_file(w->fs, w->files[0], got, true), -EIO);
	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), -EOPNOTSUPP);
	w->o.tier = url;
}

static void put_record(struct world *w, uint64_t ino, const void *p, size_t len)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;

	engine_tx_put(&tx, ns_key_away(ino), p, len);
	assert_int_equal(engine_tx_apply(w->fs->engine, &tx), 0);
}

/* The store is mounted, flushes, and reads all the others; what was damaged can be removed. */
static void a_damaged_record_affects_its_file_only(void **state)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct world *w = *state;
	struct seal_removed removed;
	uint8_t got[2 * LEN];
	struct ns_away at;

	flush(w, w->old);
	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), 0);
	assert_int_equal(ns_get_away(w->fs->db, w->old, &at), 1);
	at.is_erased = false; /* the next mount looks at each file */
	ns_away_encode(&at, &value);
	put_record(w, w->old, value.data, value.len);
	for (unsigned i = 0; i < 2; i++) {
		put_record(w, i == 0 ? w->files[3] : w->old, "short", 5);
		assert_int_equal(fs_close(w->fs), 0);
		open_store(w->path, &w->o, &w->fs);
		assert_int_equal(away_is_dropped(w->fs, w->old), 1);
		assert_int_equal(read_file(w->fs, w->files[3], got, true), -EIO);
		assert_int_equal(read_file(w->fs, w->files[2], got, true), LEN);
		assert_int_equal(read_file(w->fs, w->files[4], got, true), LEN);
	}
	flush(w, w->new);
	assert_int_equal(seal_remove(w->fs, w->old, &(struct cred){ .pid = PID_ANSWERED }, &(struct seal_removal){ 0 },
				     &removed),
			 0);
	assert_int_equal(fs_close(w->fs), 0);
	open_store(w->path, &w->o, &w->fs);
}

struct removal {
	struct world *w;
	unsigned nr; /* files that have lost one name of several */
	bool is_twin_sealed, is_outside_sealed;
};

/* Called by the reaper, between the removal of one name and that of the next. */
static void note_link(void *userdata, uint64_t ino)
{
	struct removal *m = userdata;
	struct ns_inode in;
	bool is_sealed = attr_load(m->w->fs, ino, &in) > 0 && in.flags & INODE_SEALED;

	m->nr++;
	m->is_twin_sealed |= ino == m->w->files[0] && is_sealed;
	m->is_outside_sealed |= ino == m->w->files[OUTSIDE] && is_sealed;
}

static bool always(_unused_ void *userdata)
{
	return true;
}

static void a_removed_one_is_immutable_until_its_last_name_is_gone(void **state)
{
	struct removal m = { .w = *state };
	struct seal_removed removed;
	struct world *w = *state;
	struct ns_away at;

	flush(w, w->old);
	assert_int_equal(away_drop(w->fs, w->old, 0, &owner), 0);
	reaper_wait(w->fs->reaper, always, NULL);
	reaper_set_changed(w->fs->reaper, note_link, &m);
	assert_int_equal(seal_remove(w->fs, w->old, &(struct cred){ .pid = PID_ANSWERED }, &(struct seal_removal){ 0 },
				     &removed),
			 0);
	reaper_wait(w->fs->reaper, always, NULL);
	reaper_set_changed(w->fs->reaper, NULL, NULL);
	assert_int_equal(m.nr, 2);
	assert_true(m.is_twin_sealed);
	assert_false(m.is_outside_sealed); /* it goes on as an ordinary file */
	assert_int_equal(ns_get_away(w->fs->db, w->files[OUTSIDE], &at), 0);
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		world_test(a_crash_at_any_step_leaves_all_bytes),
		world_test(given_up_at_any_step_it_can_be_repeated),
		world_test(what_must_stay_stays),
		world_test(a_damaged_copy_is_none),
		world_test(a_copy_in_memory_is_none),
		world_test(without_the_tier_reads_fail_and_return_with_it),
		world_test(a_damaged_record_affects_its_file_only),
		world_test(a_removed_one_is_immutable_until_its_last_name_is_gone),
	};

	return cmocka_run_group_tests_name("dropped", tests, NULL, NULL);
}
