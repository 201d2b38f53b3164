/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What deleting files would free, compared with a count of all chunks and recipes, and with what a collection frees. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/le.h"
#include "base/log.h"
#include "base/util.h"
#include "index/db.h"
#include "index/index_format.h"
#include "index/backref_table.h"
#include "store/engine_state.h"
#include "index/recipes.h"
#include "tests/unit/store/rig.h"

#define LEN MiB(2)
#define PAGE 4096u
#define DIR_A 50u
#define DIR_B 51u

static void put_inode(struct rig *rig, uint64_t ino, uint32_t nlink)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;

	ns_inode_encode(&(struct ns_inode){ .ino = ino, .mode = S_IFREG | 0644, .nlink = nlink }, &value);
	engine_tx_put(&tx, ns_key_inode(ino), value.data, value.len);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

/* A name, told from others of the directory by its cookie. */
static void put_name(struct rig *rig, uint64_t dir, uint64_t cookie, uint64_t ino)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_dirent d = { .ino = ino, .cookie = cookie, .type = DT_REG, .name_len = 1, .name = "f" };

	ns_dirent_encode(&d, &value);
	engine_tx_put(&tx, ns_key_dirent(dir, cookie), value.data, value.len);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

static void make(struct rig *rig, uint64_t dir, uint64_t ino)
{
	put_inode(rig, ino, 1);
	put_name(rig, dir, ino, ino);
}

static void drop(struct rig *rig, uint64_t dir, uint64_t ino)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;

	engine_tx_drop_content(&tx, ino);
	engine_tx_del(&tx, ns_key_inode(ino));
	engine_tx_del(&tx, ns_key_dirent(dir, ino));
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

static struct exclusive_report ask(struct rig *rig, const struct exclusive_name *names, size_t nr)
{
	struct exclusive_conf conf = { .names = names, .nr_names = nr };
	struct exclusive_report report;

	assert_int_equal(engine_exclusive(rig->e, &conf, &report), 0);
	return report;
}

static struct exclusive_report ask_one(struct rig *rig, uint64_t dir, uint64_t cookie)
{
	return ask(rig, &(struct exclusive_name){ dir, cookie }, 1);
}

static struct gc_report collect(struct rig *rig, unsigned move_below)
{
	return rig_collect(rig, &(struct gc_conf){ .delete = true, .move_below = move_below });
}

/* --- counting everything --- */

struct ref {
	uint64_t ino;
	struct extent x;
};

struct refs {
	struct ref *v;
	size_t nr;
};

static struct refs all_refs(struct rig *rig)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const uint8_t prefix = VIEW_RECIPE;
	const void *key, *value;
	size_t key_len, value_len, nr;
	struct refs refs = { 0 };
	struct extent *x;
	uint64_t ino, segment;

	assert_int_equal(db_iter_new(engine_db(rig->e), NULL, &prefix, 1, NULL, 0, &it), 0);
	while (db_iter_next(it, &key, &key_len, &value, &value_len) > 0) {
		assert_int_equal(recipe_key_decode(key, key_len, &ino, &segment), 0);
		assert_int_equal(recipe_decode(value, value_len, &x, &nr), 0);
		refs.v = reallocarray(refs.v, refs.nr + nr, sizeof(*refs.v));
		for (size_t i = 0; i < nr; i++)
			refs.v[refs.nr++] = (struct ref){ ino, x[i] };
		free(x);
	}
	return refs;
}

static struct exclusive_report count(struct rig *rig, const uint64_t *inos, size_t nr_inos)
{
	_cleanup_(freep) struct pack_frame_rec *rec = malloc(sizeof(*rec));
	struct pack_iter it = pack_iter(rig->e->packs, 1, 0);
	struct refs refs = all_refs(rig);
	struct exclusive_report sum = { 0 };

	while (pack_iter_next(&it, rec) > 0)
		for (uint32_t i = 0; i < rec->nr_chunks; i++) {
			struct addr a = pack_rec_addr(rec, i);
			uint32_t len = pack_rec_len(rec, i);
			bool mine = false, others = false;

			for (const struct ref *r = refs.v; r < refs.v + refs.nr && !fp_is_none(rec->fps[i]); r++) {
				bool is_mine = false;

				if (r->x.addr.pack != a.pack || r->x.addr.off >= a.off + len ||
				    r->x.addr.off + r->x.len <= a.off)
					continue;
				for (size_t k = 0; k < nr_inos; k++)
					is_mine |= inos[k] == r->ino;
				mine |= is_mine;
				others |= !is_mine;
			}
			sum.nr_chunks += mine;
			sum.bytes += mine ? len : 0;
			sum.exclusive_chunks += mine && !others;
			sum.exclusive_bytes += mine && !others ? len : 0;
		}
	free(refs.v);
	return sum;
}

/* Does the table have all that the recipes say? How many entries has it? */
static size_t check_table(struct rig *rig)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	const uint8_t prefix = VIEW_RECIPE;
	struct ns_key all = backref_prefix();
	const void *key, *value;
	size_t key_len, value_len, nr_have = 0, nr;
	uint64_t ino, segment;
	struct extent *x;

	assert_int_equal(db_iter_new(engine_db(rig->e), NULL, all.b, all.len, NULL, 0, &it), 0);
	while (db_iter_next(it, &key, &key_len, &value, &value_len) > 0)
		nr_have++;
	db_iter_free(TAKE(it));
	assert_int_equal(db_iter_new(engine_db(rig->e), NULL, &prefix, 1, NULL, 0, &it), 0);
	while (db_iter_next(it, &key, &key_len, &value, &value_len) > 0) {
		assert_int_equal(recipe_key_decode(key, key_len, &ino, &segment), 0);
		assert_int_equal(recipe_decode(value, value_len, &x, &nr), 0);
		for (size_t i = 0; i < nr; i++) {
			uint32_t frame = (x[i].addr.off / PACK_BLOCK - 1) / PACK_FRAME_STRIDE;
			struct ns_key k = backref_key(
				&(struct backref){ x[i].addr.pack, frame / 16, ino, segment / 64 });

			assert_int_equal(db_get(engine_db(rig->e), DB_VIEW, k.b, k.len, NULL), 1);
		}
		free(x);
	}
	return nr_have;
}

/* --- promises one by one --- */

static void what_only_one_file_has_is_exclusive(void **state)
{
	struct rig *rig = *state;
	struct exclusive_report r;

	make(rig, DIR_A, 101);
	make(rig, DIR_A, 102);
	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN / 2, 1); /* the first half of it */
	r = ask_one(rig, DIR_A, 101);
	assert_int_equal(r.nr_files, 1);
	assert_int_equal(r.size, LEN);
	assert_int_equal(r.mapped, LEN);
	assert_int_equal(r.bytes, LEN);
	assert_int_equal(r.nr_chunks, LEN / PAGE);
	assert_int_equal(r.exclusive_bytes, LEN / 2);
	assert_int_equal(r.exclusive_chunks, LEN / 2 / PAGE);
	assert_int_equal(r.exclusive_stored, LEN / 2);
	assert_int_equal(r.exclusive_disk, LEN / 2 + PACK_BLOCK); /* one of two frames, with its table */
	r = ask_one(rig, DIR_A, 102);
	assert_int_equal(r.bytes, LEN / 2);
	assert_int_equal(r.exclusive_bytes, 0);
}

static void what_is_shared_inside_the_set_counts_once(void **state)
{
	struct exclusive_name both[] = { { DIR_A, 101 }, { DIR_A, 102 } };
	struct exclusive_name twice[] = { { DIR_A, 0 }, { DIR_A, 101 }, { DIR_A, 0 } };
	struct rig *rig = *state;

	make(rig, DIR_A, 101);
	make(rig, DIR_A, 102);
	make(rig, DIR_B, 103);
	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN, 1);
	rig_write(rig, 103, PAGE, 1);
	assert_int_equal(ask(rig, both, 2).exclusive_bytes, LEN - PAGE);
	assert_int_equal(ask(rig, twice, 3).exclusive_bytes, LEN - PAGE);
	assert_int_equal(ask(rig, twice, 3).nr_files, 2);
	assert_int_equal(ask_one(rig, DIR_A, 0).exclusive_bytes, LEN - PAGE);
	assert_int_equal(ask_one(rig, DIR_B, 0).exclusive_bytes, 0);
	drop(rig, DIR_B, 103);
	assert_int_equal(ask_one(rig, DIR_A, 0).exclusive_bytes, LEN);
	assert_int_equal(ask_one(rig, DIR_B, 0).nr_files, 0);
}

static void a_file_with_another_name_frees_nothing(void **state)
{
	struct exclusive_name both[] = { { DIR_A, 101 }, { DIR_B, 7000 } };
	struct rig *rig = *state;
	struct exclusive_report r;

	make(rig, DIR_A, 101);
	put_inode(rig, 101, 2);
	put_name(rig, DIR_B, 7000, 101);
	rig_write(rig, 101, LEN, 1);
	r = ask_one(rig, DIR_A, 101);
	assert_int_equal(r.nr_files, 0);
	assert_int_equal(r.nr_linked, 1);
	assert_int_equal(r.exclusive_bytes, 0);
	r = ask(rig, both, 2);
	assert_int_equal(r.nr_files, 1);
	assert_int_equal(r.nr_linked, 0);
	assert_int_equal(r.exclusive_bytes, LEN);
}

static void a_file_without_a_name_still_has_its_bytes(void **state)
{
	struct rig *rig = *state;

	make(rig, DIR_A, 101);
	put_inode(rig, 102, 0);
	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN / 4, 1);
	assert_int_equal(ask_one(rig, DIR_A, 101).exclusive_bytes, LEN - LEN / 4);
}

static void a_part_of_a_chunk_keeps_all_of_it(void **state)
{
	struct content *from, *to;
	struct rig *rig = *state;
	uint64_t done;

	make(rig, DIR_A, 101);
	make(rig, DIR_A, 102);
	rig_write(rig, 101, LEN, 1);
	from = rig_content(rig, 101);
	to = rig_content(rig, 102);
	assert_int_equal(content_clone(from, PAGE + 100, to, 100, 50, &done), 0); /* a few bytes of the second page */
	content_close(from);
	content_close(to);
	assert_in_range(ask_one(rig, DIR_A, 101).exclusive_bytes, LEN - 2 * PAGE, LEN);
	assert_int_equal(ask_one(rig, DIR_A, 101).exclusive_bytes, count(rig, (uint64_t[]){ 101 }, 1).exclusive_bytes);
}

static void a_store_without_the_table_gets_it_when_asked(void **state)
{
	struct rig *rig = *state;
	struct db_batch *batch;
	struct le64 none = le64_put(0);
	struct ns_key key = ns_key_meta("backrefs"), stray = backref_key(&(struct backref){ 1, 0, 9999, 3 });

	make(rig, DIR_A, 101);
	make(rig, DIR_A, 102);
	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN / 2, 1);
	assert_int_equal(ask_one(rig, DIR_A, 101).nr_built, 0);
	rig_close(rig);
	{
		char dir[80];
		struct db *db;

		snprintf(dir, sizeof(dir), "%s/index", rig->path);
		assert_int_equal(db_open(dir, &(struct db_conf){ .cache = MiB(8) }, &db), 0);
		assert_int_equal(db_batch_new(db, &batch), 0);
		db_batch_put(batch, key.b, key.len, &none, sizeof(none));
		db_batch_put(batch, stray.b, stray.len, "", 0);
		stray = backref_key(&(struct backref){ 1, 0, 101, 0 });
		db_batch_del(batch, stray.b, stray.len);
		assert_int_equal(db_batch_apply(batch), 0);
		db_batch_free(batch);
		assert_int_equal(db_view_flush_start(db), 0);
		assert_int_equal(db_view_flush_wait(db), 0);
		db_close(db);
	}
	rig_open(rig);
	assert_int_equal(ask_one(rig, DIR_A, 101).nr_built, 3);
	assert_int_equal(ask_one(rig, DIR_A, 101).exclusive_bytes, LEN / 2);
	assert_int_equal(ask_one(rig, DIR_A, 101).nr_built, 0);
	assert_int_equal(check_table(rig), 2);
	rig_reopen(rig);
	assert_int_equal(ask_one(rig, DIR_A, 102).nr_built, 0);
}

static bool stop(void *userdata, const struct exclusive_report *so_far)
{
	(void)userdata;
	(void)so_far;
	return false;
}

static void a_question_can_be_given_up(void **state)
{
	struct exclusive_conf conf = { .names = &(struct exclusive_name){ DIR_A, 0 }, .nr_names = 1, .step = stop };
	struct exclusive_report report = { .nr_files = 77 };
	struct rig *rig = *state;

	make(rig, DIR_A, 101);
	rig_write(rig, 101, LEN, 1);
	assert_int_equal(engine_exclusive(rig->e, &conf, &report), -ECANCELED);
	assert_int_equal(report.nr_files, 77);
}

static void the_list_of_files_is_limited(void **state)
{
	struct rig *rig = *state;
	struct exclusive_name all = { DIR_A, 0 };
	struct exclusive_conf names = { .names = &all, .nr_names = 1, .set_bytes = 512 * 32 };
	struct exclusive_conf owner = { .owner = { FP_OF_USER, 0 }, .set_bytes = 1024 * 8 };
	struct exclusive_report report;

	for (uint64_t i = 0; i < 512; i++)
		make(rig, DIR_A, 1000 + i);
	assert_int_equal(engine_exclusive(rig->e, &names, &report), 0);
	assert_int_equal(report.nr_files, 512);
	put_name(rig, DIR_A, 5000, 1000); /* another name of a file takes room too */
	assert_int_equal(engine_exclusive(rig->e, &names, &report), -E2BIG);
	names.set_bytes *= 2;
	assert_int_equal(engine_exclusive(rig->e, &names, &report), 0);
	for (uint64_t i = 512; i < 1024; i++)
		make(rig, DIR_B, 1000 + i);
	assert_int_equal(engine_exclusive(rig->e, &owner, &report), 0);
	assert_int_equal(report.nr_files, 1024);
	make(rig, DIR_B, 3000);
	assert_int_equal(engine_exclusive(rig->e, &owner, &report), -E2BIG);
}

/* Of a thousand that share a frame a few are asked. */
static void time_grows_with_the_extents_not_with_the_sharers(void **state)
{
	struct rig *rig = *state;
	uint64_t few;

	for (uint64_t ino = 101; ino < 111; ino++) {
		make(rig, DIR_A, ino);
		rig_write(rig, ino, LEN, 1);
	}
	few = ask_one(rig, DIR_A, 105).nr_recipes;
	for (uint64_t ino = 111; ino < 301; ino++) {
		make(rig, DIR_A, ino);
		rig_write(rig, ino, LEN, 1);
		make(rig, DIR_B, 1000 + ino);
		rig_write(rig, 1000 + ino, PAGE, ino);
	}
	assert_int_equal(ask_one(rig, DIR_A, 105).exclusive_bytes, 0);
	assert_int_equal(ask_one(rig, DIR_A, 105).nr_recipes, few);
	assert_in_range(few, 4, 20);
}

/* --- while others write, drop and collect --- */

struct busy {
	struct rig *rig;
	atomic_bool stop;
};

static void *write_and_drop(void *arg)
{
	struct busy *b = arg;

	for (uint64_t ino = 10000; !b->stop; ino++) {
		make(b->rig, DIR_B, ino);
		rig_write(b->rig, ino, LEN / 2, 10 + ino % 3);
		if (ino >= 10003)
			drop(b->rig, DIR_B, ino - 3);
	}
	return NULL;
}

static void *collect_on(void *arg)
{
	struct busy *b = arg;

	for (unsigned i = 0; !b->stop; i++)
		collect(b->rig, i % 2 ? 95 : 0);
	return NULL;
}

static void an_answer_is_right_while_all_goes_on(void **state)
{
	struct rig *rig = *state;
	struct busy b = { .rig = rig };
	struct exclusive_report r;
	pthread_t writer, collector;

	rig_close(rig);
	rig->conf.pack_bytes = MiB(2);
	rig->conf.view_flush_bytes = KiB(16);
	rig_open(rig);
	make(rig, DIR_A, 101);
	make(rig, DIR_A, 102);
	rig_write(rig, 101, LEN, 1);
	rig_write(rig, 102, LEN / 2, 1);
	assert_int_equal(pthread_create(&writer, NULL, write_and_drop, &b), 0);
	assert_int_equal(pthread_create(&collector, NULL, collect_on, &b), 0);
	for (unsigned i = 0; i < 60; i++) {
		r = ask_one(rig, DIR_A, 101);
		assert_int_equal(r.exclusive_bytes, LEN / 2);
		assert_int_equal(r.bytes, LEN);
		assert_int_equal(ask_one(rig, DIR_A, 0).exclusive_bytes, LEN);
		r = ask_one(rig, DIR_B, 0); /* some of which goes while it is looked at */
		assert_true(r.exclusive_bytes == r.bytes && r.bytes <= r.mapped);
	}
	b.stop = true;
	pthread_join(writer, NULL);
	pthread_join(collector, NULL);
}

/* --- at random --- */

#define NR_FILES 12u
#define FILE_MAX MiB(3)

static uint64_t random_state;

static uint64_t below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

struct crowd {
	struct rig *rig;
	uint64_t inos[NR_FILES]; /* file i is in directory DIR_A + i % 2 */
	uint64_t next;
	uint8_t *bytes;
	bool pages; /* only; else some are cut by content */
};

static uint64_t dir_of(size_t i)
{
	return DIR_A + i % 2;
}

static struct content *open_any(struct crowd *c)
{
	struct content *file = rig_content(c->rig, c->inos[below(NR_FILES)]);
	enum chunking how = below(2) ? CHUNKING_CDC : CHUNKING_PAGE;

	content_set_chunking(file, below(3) && !c->pages ? &how : NULL);
	return file;
}

static void change_bytes(struct crowd *c)
{
	struct content *file = open_any(c), *other;
	uint64_t off = below(FILE_MAX), len = 1 + below(below(2) ? KiB(16) : KiB(800)), done;

	if (below(3)) {
		off -= off % PAGE;
		len = round_up(len, PAGE);
	}
	len = MIN(len, FILE_MAX - off);
	switch (below(8)) {
	case 0:
		assert_int_equal(content_punch(file, off, len), 0);
		break;
	case 1:
		assert_int_equal(content_truncate(file, off), 0);
		break;
	case 2:
		other = open_any(c);
		if (other != file)
			assert_int_equal(content_clone(other, below(FILE_MAX), file, off, len, &done), 0);
		content_close(other);
		break;
	default:
		rig_pattern(c->bytes, len, below(6));
		if (below(4) == 0)
			memset(c->bytes + len / 3, (int)below(2), len / 3); /* shrinks; or a hole */
		assert_int_equal(content_write(file, c->bytes, len, off), 0);
	}
	assert_int_equal(content_flush(file), 0);
	content_close(file);
}

static void replace_file(struct crowd *c)
{
	size_t i = below(NR_FILES);

	drop(c->rig, dir_of(i), c->inos[i]);
	c->inos[i] = c->next++;
	make(c->rig, dir_of(i), c->inos[i]);
}

static void shake(struct crowd *c)
{
	struct rig *rig = c->rig;

	switch (below(6)) {
	case 0:
		rig_reopen(rig);
		break;
	case 1:
		rig_stats(rig); /* synced: else the crash takes files that we go on with */
		rig_crash(rig);
		break;
	case 2:
		rig_close(rig);
		assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
		rig_open(rig);
		break;
	default:
		collect(rig, below(2) ? 90 : 0);
	}
}

static void compare(struct crowd *c)
{
	struct exclusive_name names[NR_FILES];
	uint64_t inos[NR_FILES];
	struct exclusive_report got, want;
	size_t nr = 0;

	for (size_t i = 0; i < NR_FILES; i++)
		if (below(3) == 0) {
			names[nr] = (struct exclusive_name){ dir_of(i), c->inos[i] };
			inos[nr++] = c->inos[i];
		}
	if (below(4) == 0) {
		nr = 0;
		for (size_t i = 0; i < NR_FILES; i += 2)
			inos[nr++] = c->inos[i];
		got = ask_one(c->rig, DIR_A, 0);
	} else {
		got = ask(c->rig, names, nr);
	}
	want = count(c->rig, inos, nr);
	assert_int_equal(got.nr_files, nr);
	assert_int_equal(got.bytes, want.bytes);
	assert_int_equal(got.nr_chunks, want.nr_chunks);
	assert_int_equal(got.exclusive_bytes, want.exclusive_bytes);
	assert_int_equal(got.exclusive_chunks, want.exclusive_chunks);
	assert_true(got.exclusive_stored <= got.exclusive_bytes);
}

/* And then really. Of chunks that share a block the collector may leave a dead one beside a live one, for next time. */
static void compare_by_collecting(struct crowd *c)
{
	struct exclusive_name names[NR_FILES];
	struct exclusive_report got;
	struct pack_stats before, after;
	struct gc_report gc;
	size_t nr = 1 + below(4), first = below(NR_FILES - nr);

	collect(c->rig, 0);
	for (size_t i = 0; i < nr; i++)
		names[i] = (struct exclusive_name){ dir_of(first + i), c->inos[first + i] };
	got = ask(c->rig, names, nr);
	for (size_t i = first; i < first + nr; i++) {
		drop(c->rig, dir_of(i), c->inos[i]);
		c->inos[i] = c->next++;
		make(c->rig, dir_of(i), c->inos[i]);
	}
	packs_stats(c->rig->e->packs, &before);
	gc = collect(c->rig, 0);
	packs_stats(c->rig->e->packs, &after);
	if (c->pages) {
		assert_int_equal(gc.freed_bytes, got.exclusive_bytes);
		assert_int_equal(gc.dead_disk, got.exclusive_disk);
		/* the header of a removed pack comes on top */
		assert_int_equal(after.freed_bytes - before.freed_bytes, got.exclusive_disk + gc.nr_removed * PACK_BLOCK);
	} else {
		assert_in_range(gc.freed_bytes + KiB(64), got.exclusive_bytes, got.exclusive_bytes + KiB(128));
		assert_in_range(gc.dead_disk + KiB(64), got.exclusive_disk, got.exclusive_disk + KiB(128));
		assert_in_range(after.freed_bytes - before.freed_bytes + KiB(64), got.exclusive_disk,
				got.exclusive_disk + KiB(128));
	}
}

static void go_on_at_random(struct rig *rig, uint64_t seed, bool pages, struct compress compress)
{
	struct crowd c = { .rig = rig, .next = 1000 * seed, .bytes = malloc(MiB(1)), .pages = pages };

	random_state = seed * 0x9e3779b97f4a7c15u + 1;
	rig_close(rig);
	rig->conf.compress = compress;
	rig->conf.pack_bytes = MiB(4);
	rig->conf.view_flush_bytes = KiB(64);
	rig->conf.snapshot_bytes = KiB(64);
	rig_open(rig);
	for (size_t i = 0; i < NR_FILES; i++) {
		c.inos[i] = c.next++;
		make(rig, dir_of(i), c.inos[i]);
	}
	for (unsigned i = 0; i < 120; i++) {
		change_bytes(&c);
		if (below(12) == 0)
			replace_file(&c);
		if (below(12) == 0)
			shake(&c);
		if (below(4) == 0)
			compare(&c);
		if (below(30) == 0)
			compare_by_collecting(&c);
	}
	compare_by_collecting(&c);
	compare(&c);
	check_table(rig);
	for (size_t i = 0; i < NR_FILES; i++)
		drop(rig, dir_of(i), c.inos[i]);
	collect(rig, 0);
	assert_int_equal(db_compact(engine_db(rig->e), DB_VIEW), 0);
	assert_in_range(check_table(rig), 0, 32); /* of the packs that are not full yet */
	free(c.bytes);
}

static void random_stores_are_counted_exactly(void **state)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		go_on_at_random(*state, seed, seed % 2, (struct compress){ COMPRESS_NONE, 0 });
}

static void random_compressed_stores_are_counted_exactly(void **state)
{
	go_on_at_random(*state, 11, false, (struct compress){ COMPRESS_ZSTD, 1 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(what_only_one_file_has_is_exclusive),
		rig_test(what_is_shared_inside_the_set_counts_once),
		rig_test(a_file_with_another_name_frees_nothing),
		rig_test(a_file_without_a_name_still_has_its_bytes),
		rig_test(a_part_of_a_chunk_keeps_all_of_it),
		rig_test(a_store_without_the_table_gets_it_when_asked),
		rig_test(a_question_can_be_given_up),
		rig_test(the_list_of_files_is_limited),
		rig_test(time_grows_with_the_extents_not_with_the_sharers),
		rig_test(an_answer_is_right_while_all_goes_on),
		rig_test(random_stores_are_counted_exactly),
		rig_test(random_compressed_stores_are_counted_exactly),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
