/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * In any order of requests of writers, collectors and readers, and whichever of them ends at any request: checkpoints
 * that a writer has reported as flushed are there byte for byte, unless retention has removed them. No checkpoint is
 * shown in part. Two complete collections leave no garbage.
 */
#include "store/tier/collect/tier_collect.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/collect/tier_log.h"
#include "tests/unit/place.h"
#include "tests/unit/store/tier/actors.h"
#include "tests/unit/store/tier/memory.h"

#define STORES 3u
#define PER_WRITER 4u
#define CHECKPOINTS_MAX (ACTORS_MAX * PER_WRITER + STORES)

struct rig {
	struct world w;
	struct pool pool;
	struct checkpoint all[CHECKPOINTS_MAX];
	const struct checkpoint *known[CHECKPOINTS_MAX];
	bool is_acknowledged[CHECKPOINTS_MAX];
	uint8_t store[CHECKPOINTS_MAX];
	unsigned nr;
	struct writer_actor {
		struct rig *rig;
		uint8_t store;
		unsigned first; /* of PER_WRITER checkpoints */
		int store_dirfd; /* -1: without an index */
	} writers[ACTORS_MAX];
	unsigned nr_writers;
	char dir[64]; /* of the indexes */
};

static void no_log(void *userdata _unused_, enum log_level level _unused_, const char *line _unused_)
{
}

/* --- looking at the objects --- */

/* The marks of the last generation; false: there is none. */
static bool last_marks(struct memory *m, struct tier_marks *ret)
{
	struct tier_log_entry e = { 0 };
	const void *p;
	size_t len;

	for (uint64_t n = 1; (p = memory_find(m, tier_log_name(n).s, &len)); n++)
		if (tier_entry_decode(p, len, &e) < 0)
			return false;
	if (e.generation == 0)
		return false;
	p = memory_find(m, tier_marks_name(e.generation, e.marks_id).s, &len);
	return p && tier_marks_decode(p, len, ret) == 0;
}

static bool is_valid(const struct tier_marks *marks, const uint8_t *store, uint64_t number)
{
	const struct tier_store_marks *s = tier_marks_store(marks, store);

	return !s || number > s->base || tier_marks_keep(s, number);
}

/* Every manifest that is shown is complete, at any time. */
static void check_shown(struct world *w)
{
	struct tier_marks marks = { 0 };

	last_marks(w->m, &marks);
	for (size_t i = 0; i < memory_nr(w->m); i++) {
		uint8_t store[TIER_ID_LEN];
		struct tier_manifest man;
		uint64_t number;
		size_t len;
		const void *p = memory_data(w->m, i, &len);

		if (!tier_manifest_name_parse(memory_name(w->m, i), store, &number) ||
		    tier_manifest_decode(p, len, &man) < 0 || !is_valid(&marks, store, number))
			continue;
		for (uint32_t k = 0; k < man.nr_packs; k++) {
			struct tier_footer f;

			tier_manifest_pack(&man, k, &f);
			if (!memory_find(w->m, tier_pack_name(f.id).s, &len) || len != tier_pack_len(&f))
				w->failure = "a manifest is shown that lacks packs";
		}
	}
	tier_marks_release(&marks);
}

/* --- actors --- */

static struct tier_writer_conf conf_of(uint8_t store)
{
	struct tier_writer_conf conf = checkpoint_writer;

	tier_key_init(&conf.key, FP_CLMUL, (const uint8_t *)"a secret of thirty-two bytes...");
	memset(conf.store, store, sizeof(conf.store));
	conf.pack_bytes = 8192;
	conf.packs_in_flight = 2;
	return conf;
}

/* Flushes its checkpoints, and opens a new writer after a failure, as the daemon does. */
static void write_all(struct actor *a)
{
	struct writer_actor *wa = a->userdata;
	struct rig *rig = wa->rig;
	unsigned next = 0, attempts = 0;

	while (next < PER_WRITER && attempts++ < 8 && !a->is_dead) {
		struct tier_writer_conf conf = conf_of(wa->store);
		struct tier_writer *w;
		int r;

		if (wa->store_dirfd >= 0) { /* and memory for few chunks, so that most are found through the index */
			conf.has_store = true;
			conf.store_dirfd = wa->store_dirfd;
			conf.known_max = 8;
		}
		r = tier_writer_open(&a->tier, &conf, &w);

		if (r < 0)
			continue;
		for (; r == 0 && next < PER_WRITER; next += r == 0) {
			const struct tier_checkpoint *c = &rig->all[wa->first + next].c;
			struct tier_flushed f;

			if (tier_writer_was_removed(w, c->ino, c->sealed_ns))
				continue;
			r = tier_flush(w, c, &f);
			if (r == 0)
				rig->is_acknowledged[wa->first + next] = true;
		}
		tier_writer_close(w);
	}
}

static void collect_some(struct actor *a)
{
	unsigned nr = 1 + (unsigned)(world_draw(a->world) % 3);
	uint64_t removes = world_draw(a->world) % 4; /* in 4 */

	for (unsigned i = 0; i < nr && !a->is_dead; i++) {
		_cleanup_(tier_collector_closep) struct tier_collector *c = NULL;
		struct tier_sealed *v;
		size_t nr_sealed;

		if (tier_collector_open(&a->tier, &(struct tier_collect_conf){ 0 }, &c) < 0)
			continue;
		v = tier_collector_sealed(c, &nr_sealed);
		for (size_t k = 0; k < nr_sealed; k++)
			v[k].is_removed = world_draw(a->world) % 4 < removes;
		if (tier_collector_mark(c) == 0)
			(void)tier_collector_delete(c);
	}
}

static int to_nowhere(void *userdata _unused_, const void *p _unused_, size_t len _unused_)
{
	return 0;
}

/* Opens one checkpoint that is shown, and reads its tables later. */
static void read_some(struct actor *a)
{
	for (unsigned i = 0; i < 3; i++) {
		_cleanup_(tier_reader_closep) struct tier_reader *reader = NULL;
		_cleanup_(buf_release) struct buf names = BUF_EMPTY;
		struct tier_log log = { 0 };
		struct tier_marks marks = { 0 };
		const char *name = NULL;
		uint8_t store[TIER_ID_LEN];
		uint64_t number;
		int r = tier_list_all(&a->tier, TIER_SEALED_PREFIX, &names);

		if (r == 0)
			r = tier_log_read(&a->tier, &log);
		for (size_t at = 0; r == 0 && at < names.len; at += strlen((char *)names.data + at) + 1)
			if (tier_manifest_name_parse((char *)names.data + at, store, &number) &&
			    tier_log_keeps(&log, store, number) && (!name || world_draw(a->world) % 2 == 0))
				name = (char *)names.data + at;
		tier_log_release(&log);
		if (!name || tier_reader_open(&a->tier, name, &reader) < 0)
			continue;
		r = tier_reader_catalog(reader, &(struct tier_sink){ to_nowhere, NULL });
		last_marks(a->world->m, &marks);
		tier_manifest_name_parse(name, store, &number);
		if (r < 0 && !a->is_dead && a->fail_at == 0 && is_valid(&marks, store, number))
			a->world->failure = "a reader got an error for a checkpoint that is kept";
		tier_marks_release(&marks);
	}
}

/* --- the rig --- */

static void add_checkpoint(struct rig *rig, uint8_t store, bool is_small)
{
	unsigned nr = is_small ? 2 : 2 + (unsigned)(world_draw(&rig->w) % 8), chunks[10];
	unsigned from = (unsigned)(world_draw(&rig->w) % (rig->pool.nr - 10));

	for (unsigned i = 0; i < nr; i++)
		chunks[i] = world_draw(&rig->w) % 4 == 0 ? (unsigned)(world_draw(&rig->w) % rig->pool.nr) : from + i;
	checkpoint_init_file(&rig->all[rig->nr], &rig->pool, 100 + rig->nr, chunks, nr);
	rig->known[rig->nr] = &rig->all[rig->nr];
	rig->store[rig->nr++] = store;
}

static void add_writer(struct rig *rig, uint8_t store)
{
	struct writer_actor *wa = &rig->writers[rig->nr_writers++];

	*wa = (struct writer_actor){ .rig = rig, .store = store, .first = rig->nr, .store_dirfd = -1 };
	if (rig->nr_writers % 2 == 0) {
		char path[100];

		snprintf(path, sizeof(path), "%s/%u", rig->dir, rig->nr_writers);
		assert_int_equal(mkdir(path, 0700), 0);
		wa->store_dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(wa->store_dirfd >= 0);
	}
	for (unsigned i = 0; i < PER_WRITER; i++)
		add_checkpoint(rig, store, false);
	world_add(&rig->w, write_all, wa);
}

static struct rig *rig_new(uint64_t seed)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	snprintf(rig->dir, sizeof(rig->dir), "%s/ckptfs-test-collect-XXXXXX", test_place());
	assert_non_null(mkdtemp(rig->dir));
	rig->w.m = memory_new();
	rig->w.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	rig->w.check = check_shown;
	pool_init_pages(&rig->pool, 1, 40);
	return rig;
}

static void rig_free(struct rig *rig)
{
	char command[100];

	for (unsigned i = 0; i < rig->nr_writers; i++)
		if (rig->writers[i].store_dirfd >= 0)
			close(rig->writers[i].store_dirfd);
	snprintf(command, sizeof(command), "rm -r '%s'", rig->dir);
	assert_int_equal(system(command), 0);
	for (unsigned i = 0; i < rig->nr; i++)
		checkpoint_release(&rig->all[i]);
	pool_release(&rig->pool);
	memory_free(rig->w.m);
	free(rig);
}

/* Retention may have removed it, also if the writer does not know that it was put. */
static void check_acknowledged(struct rig *rig, const struct tier_marks *marks)
{
	for (unsigned i = 0; i < rig->nr; i++) {
		const struct tier_checkpoint *c = &rig->all[i].c;
		const struct tier_store_marks *s;
		uint8_t store[TIER_ID_LEN];
		bool is_there = false;

		memset(store, rig->store[i], sizeof(store));
		s = tier_marks_store(marks, store);
		for (size_t k = 0; k < memory_nr(rig->w.m) && !is_there; k++) {
			struct tier_manifest man;
			uint8_t of[TIER_ID_LEN];
			uint64_t number;
			size_t len;
			const void *p = memory_data(rig->w.m, k, &len);

			is_there = tier_manifest_name_parse(memory_name(rig->w.m, k), of, &number) &&
				   memcmp(of, store, sizeof(of)) == 0 && tier_manifest_decode(p, len, &man) == 0 &&
				   man.ino == c->ino && is_valid(marks, store, number);
		}
		if (rig->is_acknowledged[i] && !is_there)
			assert_true(s && tier_marks_removed(s, c->ino, c->sealed_ns));
	}
}

/* What is shown is there byte for byte. Returns the number of checkpoints. */
static unsigned check_content(struct rig *rig)
{
	struct tier *t = world_tier(&rig->w);
	struct tier_marks marks = { 0 };
	unsigned nr = 0;

	last_marks(rig->w.m, &marks);
	check_acknowledged(rig, &marks);
	for (size_t i = 0; i < memory_nr(rig->w.m); i++) {
		const char *name = memory_name(rig->w.m, i);
		uint8_t store[TIER_ID_LEN];
		struct tier_manifest man;
		uint64_t number;
		size_t len;
		const void *p = memory_data(rig->w.m, i, &len);

		if (!tier_manifest_name_parse(name, store, &number) || tier_manifest_decode(p, len, &man) < 0 ||
		    !is_valid(&marks, store, number))
			continue;
		checkpoint_check(t, name, rig->known, rig->nr);
		nr++;
	}
	tier_marks_release(&marks);
	return nr;
}

static int collect_with(struct tier *t, unsigned keep, const struct tier_collect_conf *conf)
{
	_cleanup_(tier_collector_closep) struct tier_collector *c = NULL;
	struct tier_sealed *v;
	size_t nr;
	int r = tier_collector_open(t, conf, &c);

	if (r < 0)
		return r;
	v = tier_collector_sealed(c, &nr);
	for (size_t i = 0; i + keep < nr; i++)
		v[i].is_removed = v[nr - 1].is_relied_on = true;
	r = tier_collector_mark(c);
	return r < 0 ? r : tier_collector_delete(c);
}

static int collect(struct tier *t, unsigned keep)
{
	return collect_with(t, keep, &(struct tier_collect_conf){ 0 });
}

/* Nothing that no checkpoint needs is left, but the log, keys, a fence of each store, and two marks. */
static void check_clean(struct rig *rig)
{
	struct tier_marks marks = { 0 };
	unsigned nr_fences = 0, nr_marks = 0;

	assert_true(last_marks(rig->w.m, &marks));
	for (size_t i = 0; i < memory_nr(rig->w.m); i++) {
		const char *name = memory_name(rig->w.m, i);
		uint8_t id[TIER_ID_LEN], store[TIER_ID_LEN];
		bool is_needed = false;
		struct tier_manifest man;
		uint64_t number;
		size_t len;
		const void *p = memory_data(rig->w.m, i, &len);

		nr_marks += tier_marks_name_parse(name, &number, id);
		if (tier_manifest_name_parse(name, store, &number)) {
			assert_true(is_valid(&marks, store, number));
			nr_fences += tier_manifest_decode(p, len, &man) == -ENODATA;
		}
		if (!tier_pack_name_parse(name, id))
			continue;
		for (size_t k = 0; k < memory_nr(rig->w.m) && !is_needed; k++) {
			p = memory_data(rig->w.m, k, &len);
			if (!tier_manifest_name_parse(memory_name(rig->w.m, k), store, &number) ||
			    tier_manifest_decode(p, len, &man) < 0)
				continue;
			for (uint32_t j = 0; j < man.nr_packs && !is_needed; j++) {
				struct tier_footer f;

				tier_manifest_pack(&man, j, &f);
				is_needed = memcmp(f.id, id, sizeof(id)) == 0;
			}
		}
		assert_true(is_needed);
	}
	assert_int_equal(nr_fences, marks.nr_stores);
	assert_true(nr_marks <= 2);
	tier_marks_release(&marks);
}

/* After the actors have ended. */
static void check_end(struct rig *rig)
{
	unsigned nr;

	if (rig->w.failure)
		fail_msg("%s", rig->w.failure);
	nr = check_content(rig);
	assert_int_equal(collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(check_content(rig), nr);
	assert_int_equal(collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(check_content(rig), nr);
	check_clean(rig);
	for (uint8_t store = 1; store <= STORES; store++) { /* each store goes on */
		struct tier_writer_conf conf = conf_of(store);
		struct tier_writer *w;
		struct tier_flushed f;

		add_checkpoint(rig, store, true);
		assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
		assert_int_equal(tier_flush(w, &rig->all[rig->nr - 1].c, &f), 0);
		rig->is_acknowledged[rig->nr - 1] = true;
		tier_writer_close(w);
	}
	assert_int_equal(check_content(rig), nr + STORES);
}

/* --- tests --- */

static void any_order_of_requests_is_safe(void **state _unused_)
{
	uint64_t nr_runs = getenv("TIER_COLLECT_RUNS") ? strtoull(getenv("TIER_COLLECT_RUNS"), NULL, 10) : 500;
	uint64_t first = getenv("TIER_COLLECT_SEED") ? strtoull(getenv("TIER_COLLECT_SEED"), NULL, 10) : kill_first_seed();
	uint64_t nr_steps = 0;

	for (uint64_t seed = first; seed < first + nr_runs; seed++) {
		struct rig *rig = rig_new(seed);
		struct world *w = &rig->w;
		unsigned nr_writers = 1 + (unsigned)(world_draw(w) % 3);

		w->lists_lag = world_draw(w) % 2 == 0;
		for (unsigned i = 0; i < nr_writers; i++) /* sometimes two machines write for one store */
			add_writer(rig, (uint8_t)(1 + (world_draw(w) % 8 == 0 ? 0 : i)));
		for (unsigned i = 1 + (unsigned)(world_draw(w) % 3); i > 0; i--)
			world_add(w, collect_some, NULL);
		if (world_draw(w) % 2 == 0)
			world_add(w, read_some, NULL);
		for (unsigned i = 0; i < w->nr_actors; i++) {
			struct actor *a = &w->actors[i];

			if (world_draw(w) % 2 == 0)
				a->pause_at = 1 + world_draw(w) % 60;
			a->pause = world_draw(w) % 400;
			if (world_draw(w) % 3 == 0)
				a->kill_at = 1 + world_draw(w) % 120;
			a->kill_mode = (enum kill_mode)(world_draw(w) % NR_KILL_MODES);
			if (world_draw(w) % 3 == 0)
				a->fail_at = 1 + world_draw(w) % 120;
			a->fail_mode = (enum kill_mode)(world_draw(w) % NR_KILL_MODES);
		}
		if (getenv("TIER_COLLECT_SEED"))
			print_message("seed %llu\n", (unsigned long long)seed);
		world_run(w);
		if (w->failure)
			print_error("seed %llu: %s\n", (unsigned long long)seed, w->failure);
		check_end(rig);
		nr_steps += w->nr_steps;
		rig_free(rig);
	}
	print_message("%llu runs, %llu requests\n", (unsigned long long)nr_runs, (unsigned long long)nr_steps);
}

/* --- a collector that stands still --- */

static unsigned remove_one(struct tier *t, uint64_t ino)
{
	_cleanup_(tier_collector_closep) struct tier_collector *c = NULL;
	unsigned nr_removed = 0;
	struct tier_sealed *v;
	size_t nr;

	assert_int_equal(tier_collector_open(t, &(struct tier_collect_conf){ 0 }, &c), 0);
	v = tier_collector_sealed(c, &nr);
	for (size_t i = 0; i < nr; i++)
		nr_removed += v[i].is_removed = v[i].ino == ino;
	assert_int_equal(tier_collector_mark(c), 0);
	assert_int_equal(tier_collector_delete(c), 0);
	return nr_removed;
}

static int flush(struct rig *rig, struct tier_writer *w, unsigned i)
{
	struct tier_writer_conf conf = conf_of(rig->store[i]);
	_cleanup_(tier_writer_closep) struct tier_writer *own = NULL;
	struct tier_flushed f;
	int r = w ? 0 : tier_writer_open(world_tier(&rig->w), &conf, &own);

	if (r == 0)
		r = tier_flush(w ? w : own, &rig->all[i].c, &f);
	rig->is_acknowledged[i] |= r == 0;
	return r;
}

struct pauses {
	struct rig *rig;
	struct tier_writer *old; /* opened before the checkpoint 0 was removed */
	uint64_t first, second; /* requests of the collector */
};

static void others_work(struct actor *a, uint64_t request)
{
	struct pauses *p = a->userdata;

	if (request == p->first)
		assert_int_equal(flush(p->rig, p->old, 1), 0);
	if (request == p->second) {
		remove_one(world_tier(&p->rig->w), 0);
		assert_int_equal(flush(p->rig, NULL, 2), 0);
		assert_int_equal(remove_one(world_tier(&p->rig->w), p->rig->all[1].c.ino), 1);
	}
}

/*
 * All checkpoints have the same content. The collector finds packs of a removed one that nothing needs. It stands still
 * until one checkpoint that needs them has been flushed, another one has been made from that, and the former has been
 * removed.
 */
static uint64_t collect_with_pauses(uint64_t first, uint64_t second)
{
	static const unsigned chunks[] = { 0, 1, 2, 3 };
	struct tier_writer_conf conf = conf_of(2);
	struct rig *rig = rig_new(1);
	struct pauses p = { .rig = rig, .first = first, .second = second };
	struct actor *a = world_add(&rig->w, NULL, &p);
	uint64_t nr;

	for (unsigned i = 0; i < 3; i++) {
		checkpoint_init_file(&rig->all[i], &rig->pool, 100 + i, chunks, ARRAY_SIZE(chunks));
		rig->known[i] = &rig->all[i];
		rig->store[i] = (uint8_t)(1 + i);
	}
	rig->nr = 3;
	assert_int_equal(flush(rig, NULL, 0), 0);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &p.old), 0);
	assert_int_equal(remove_one(world_tier(&rig->w), 100), 1);
	a->before = others_work;
	(void)collect(&a->tier, 1000);
	nr = a->nr_requests;
	tier_writer_close(p.old);
	if (rig->w.failure)
		fail_msg("requests %llu, %llu: %s", (unsigned long long)first, (unsigned long long)second, rig->w.failure);
	if (first > 0)
		check_end(rig);
	rig_free(rig);
	return nr;
}

static void a_collector_may_stand_still(void **state _unused_)
{
	uint64_t nr = collect_with_pauses(0, 0);

	for (uint64_t first = 1; first <= nr; first++)
		for (uint64_t second = first; second <= nr; second++)
			collect_with_pauses(first, second);
	print_message("%llu requests\n", (unsigned long long)nr);
}

/*
 * A second machine has flushed as this store, and collections have ended since. The first machine must not continue
 * behind the numbers that these have recorded.
 */
static void a_collection_does_not_hide_a_second_machine(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of(1);
	struct rig *rig = rig_new(1);
	struct tier_writer *w;

	for (unsigned i = 0; i < 4; i++)
		add_checkpoint(rig, 1, false);
	assert_int_equal(flush(rig, NULL, 0), 0);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_int_equal(collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(flush(rig, w, 1), 0); /* its own manifest is no other machine's */
	assert_int_equal(collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(flush(rig, NULL, 2), 0); /* the second machine */
	assert_int_equal(collect(world_tier(&rig->w), 1), 0);
	assert_int_equal(flush(rig, w, 3), -ENOTUNIQ);
	tier_writer_close(w);
	check_end(rig);
	rig_free(rig);
}

static void flush_before_fence(struct actor *a, uint64_t request)
{
	struct pauses *p = a->userdata;

	if (request == p->first)
		assert_int_equal(flush(p->rig, p->old, 1), 0);
}

static unsigned nr_packs(const struct memory *m)
{
	uint8_t id[TIER_ID_LEN];
	unsigned nr = 0;

	for (size_t i = 0; i < memory_nr(m); i++)
		nr += tier_pack_name_parse(memory_name(m, i), id);
	return nr;
}

/*
 * A reader has opened a checkpoint before it is removed. Its packs stay until the next collection, also if the one before
 * had dropped them.
 */
static void packs_of_a_removed_checkpoint_stay_for_one_collection(void **state _unused_)
{
	static const unsigned chunks[] = { 0, 1, 2, 3 };
	unsigned nr_dropped = 0;

	for (uint64_t first = 1; first <= 23; first++) {
		struct tier_writer_conf conf = conf_of(2);
		struct rig *rig = rig_new(1);
		struct pauses p = { .rig = rig, .first = first };
		struct actor *a = world_add(&rig->w, NULL, &p);
		struct tier_marks marks = { 0 };
		unsigned nr;

		for (unsigned i = 0; i < 2; i++) {
			checkpoint_init_file(&rig->all[i], &rig->pool, 100 + i, chunks, ARRAY_SIZE(chunks));
			rig->known[i] = &rig->all[i];
			rig->store[i] = (uint8_t)(1 + i);
		}
		rig->nr = 2;
		assert_int_equal(flush(rig, NULL, 0), 0);
		nr = nr_packs(rig->w.m);
		assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &p.old), 0);
		assert_int_equal(remove_one(world_tier(&rig->w), 100), 1);
		a->before = flush_before_fence;
		(void)collect(&a->tier, 1000);
		assert_true(last_marks(rig->w.m, &marks));
		tier_writer_close(p.old);
		if (nr_packs(rig->w.m) == nr && marks.nr_dropped > 0) {
			nr_dropped++; /* needed again: the flush came behind the marks, and before the fence */
			assert_int_equal(remove_one(world_tier(&rig->w), 101), 1);
			assert_int_equal(nr_packs(rig->w.m), nr);
			assert_int_equal(collect(world_tier(&rig->w), 1000), 0);
			assert_int_equal(nr_packs(rig->w.m), 0);
		}
		tier_marks_release(&marks);
		rig_free(rig);
	}
	assert_true(nr_dropped > 0);
}

/* --- ends at each request --- */

/* Checkpoints are flushed and removed; the second collection ends at request `at`. Returns the number of its requests. */
static uint64_t collect_and_kill(uint64_t seed, uint64_t at, enum kill_mode mode)
{
	struct rig *rig = rig_new(seed);
	struct actor *a = world_add(&rig->w, NULL, NULL);
	struct tier_writer_conf conf = conf_of(1);
	struct tier_writer *w;
	uint64_t nr;

	for (unsigned i = 0; i < 6; i++)
		add_checkpoint(rig, (uint8_t)(1 + i % 2), false);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(flush(rig, NULL, i), 0);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_int_equal(collect(world_tier(&rig->w), 3), 0);
	a->before = others_work;
	a->userdata = &(struct pauses){ .rig = rig };
	a->kill_at = at;
	a->kill_mode = mode;
	assert_int_equal(collect(&a->tier, 2), at > 0 ? -ECANCELED : 0);
	nr = a->nr_requests;
	if (rig->w.failure)
		fail_msg("request %llu: %s", (unsigned long long)at, rig->w.failure);
	check_content(rig);
	if (flush(rig, w, 4) == -ESTALE) /* packs of this flush were deleted */
		assert_int_equal(flush(rig, NULL, 4), 0);
	tier_writer_close(w);
	assert_int_equal(flush(rig, NULL, 5), 0);
	check_content(rig);
	check_end(rig);
	rig_free(rig);
	return nr;
}

static void a_collector_that_is_killed_leaves_nothing_for_long(void **state _unused_)
{
	uint64_t wanted = kill_states_wanted(50), first = kill_first_seed(), nr_states = 0;

	for (uint64_t seed = first; nr_states < wanted; seed++) {
		uint64_t nr = collect_and_kill(seed, 0, KILL_BEFORE);

		if (first != 1)
			print_message("seed %llu\n", (unsigned long long)seed);
		for (uint64_t at = 1; at <= nr; at++)
			for (enum kill_mode mode = 0; mode <= KILL_AFTER; mode++, nr_states++)
				collect_and_kill(seed, at, mode);
	}
	print_message("a collector has ended in %llu states\n", (unsigned long long)nr_states);
}

/* As while a file server restarts: for a moment an object is not found. */
static void what_is_not_found_once_is_not_removed(void **state _unused_)
{
	for (uint64_t at = 1; at <= 40; at++) {
		const struct memory_faults faults = { .page = 100000, .fail_at = at, .fail_with = -ENOENT };
		struct rig *rig = rig_new(1);

		for (unsigned i = 0; i < 2; i++) {
			add_checkpoint(rig, 1, false);
			assert_int_equal(flush(rig, NULL, i), 0);
		}
		(void)collect(memory_open(rig->w.m, &faults), 1000);
		assert_int_equal(check_content(rig), 2);
		rig_free(rig);
	}
}

static size_t nr_objects(struct rig *rig, const char *prefix)
{
	size_t nr = 0;

	for (size_t i = 0; i < memory_nr(rig->w.m); i++)
		nr += strncmp(memory_name(rig->w.m, i), prefix, strlen(prefix)) == 0;
	return nr;
}

/*
 * As while a server of a shared directory is down: one manifest is neither listed nor found. The collection before has
 * kept it, or it is a new one with a later one behind it. It is there again afterwards.
 */
static void a_manifest_that_is_missing_ends_the_collection(void **state _unused_)
{
	enum { CHECKPOINTS = 5, OLD = 2 };

	for (unsigned lost = 1; lost <= CHECKPOINTS; lost++) {
		struct rig *rig = rig_new(1);
		struct tier *t = world_tier(&rig->w);
		_cleanup_(buf_release) struct buf bytes = BUF_EMPTY;
		struct tier_object_name name;
		uint8_t store[TIER_ID_LEN];
		size_t nr_before;

		memset(store, 1, sizeof(store));
		for (unsigned i = 0; i < CHECKPOINTS; i++) {
			add_checkpoint(rig, 1, false);
			assert_int_equal(flush(rig, NULL, i), 0);
			if (i + 1 == OLD) /* its fence has the next number */
				assert_int_equal(collect(t, 1000), 0);
		}
		name = tier_manifest_name(store, lost + (lost > OLD));
		assert_int_equal(tier_get_all(t, name.s, MiB(1), &bytes), 0);
		assert_int_equal(tier_call(t, &(struct tier_request){ .op = TIER_DELETE, .name = name.s }), 0);
		nr_before = memory_nr(rig->w.m);
		if (lost < CHECKPOINTS) { /* the last one cannot be told from one that was never there */
			assert_int_equal(collect(t, 1000), -EBADMSG);
			assert_int_equal(collect(t, 1), -EBADMSG);
			assert_int_equal(memory_nr(rig->w.m), nr_before);
		}
		assert_int_equal(tier_put_new(t, name.s, bytes.data, bytes.len), 0);
		assert_int_equal(collect(t, 1000), 0);
		assert_int_equal(check_content(rig), CHECKPOINTS);

		assert_int_equal(tier_call(t, &(struct tier_request){ .op = TIER_DELETE, .name = name.s }), 0);
		assert_int_equal(collect_with(t, 1000, &(struct tier_collect_conf){ .forget_missing = true }), 0);
		assert_int_equal(collect(t, 1000), 0);
		assert_int_equal(nr_objects(rig, "sealed/"), CHECKPOINTS - 1 + 1); /* and a fence */
		rig->is_acknowledged[lost - 1] = false;
		assert_int_equal(check_content(rig), CHECKPOINTS - 1);
		assert_int_equal(flush(rig, NULL, lost - 1), 0); /* it is not there, and was not removed */
		check_end(rig);
		rig_free(rig);
	}
}

static void delete_packs(struct rig *rig)
{
	uint8_t id[TIER_ID_LEN];

	for (size_t i = memory_nr(rig->w.m); i-- > 0;) {
		struct tier_request q = { .op = TIER_DELETE, .name = memory_name(rig->w.m, i) };

		if (tier_pack_name_parse(q.name, id))
			assert_int_equal(tier_call(world_tier(&rig->w), &q), 0);
	}
}

/* The newest checkpoint has lost its packs: the one before it stays. */
static void no_checkpoint_is_removed_for_one_that_lacks_packs(void **state _unused_)
{
	struct rig *rig = rig_new(1);
	struct tier_marks marks;

	for (unsigned i = 0; i < 2; i++) {
		add_checkpoint(rig, 1, false);
		assert_int_equal(flush(rig, NULL, i), 0);
	}
	delete_packs(rig);
	assert_int_equal(collect(world_tier(&rig->w), 1), -EBADMSG);
	assert_false(last_marks(rig->w.m, &marks));
	assert_int_equal(collect(world_tier(&rig->w), 1000), -EBADMSG); /* nor garbage from a tier that is not complete */
	rig_free(rig);
}

static void damage_packs(struct rig *rig, bool is_cut)
{
	struct tier *t = world_tier(&rig->w);
	uint8_t id[TIER_ID_LEN];

	for (size_t i = 0; i < memory_nr(rig->w.m); i++) {
		const char *name = memory_name(rig->w.m, i);
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct tier_request q = { .op = TIER_PUT, .name = name };

		if (!tier_pack_name_parse(name, id))
			continue;
		assert_int_equal(tier_get_all(t, name, MiB(1), &b), 0);
		b.data[b.len - sizeof(struct tier_footer_disk)] ^= !is_cut;
		q.data = b.data;
		q.len = b.len - is_cut;
		assert_int_equal(tier_call(t, &q), 0);
	}
}

/* The same for packs that are there, but not whole. */
static void no_checkpoint_is_removed_for_one_with_damaged_packs(void **state _unused_)
{
	for (unsigned is_cut = 0; is_cut <= 1; is_cut++) {
		struct rig *rig = rig_new(1);

		for (unsigned i = 0; i < 2; i++) {
			add_checkpoint(rig, 1, false);
			assert_int_equal(flush(rig, NULL, i), 0);
		}
		damage_packs(rig, is_cut == 1);
		assert_int_equal(collect(world_tier(&rig->w), 1), -EBADMSG);
		assert_int_equal(nr_objects(rig, "sealed/"), 2);
		assert_int_equal(collect(world_tier(&rig->w), 1000), 0); /* removes no checkpoint */
		rig_free(rig);
	}
}

/* A seal with two manifests, as its packs were lost once: when the first one is removed, the seal is not. */
static void a_seal_with_another_manifest_is_not_removed(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of(1);
	struct rig *rig = rig_new(1);
	struct tier_writer *w;

	add_checkpoint(rig, 1, false);
	assert_int_equal(flush(rig, NULL, 0), 0);
	delete_packs(rig);
	assert_int_equal(flush(rig, NULL, 0), 0);
	assert_int_equal(collect(world_tier(&rig->w), 1), 0);
	assert_int_equal(check_content(rig), 1);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_true(tier_writer_has(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	tier_writer_close(w);
	delete_packs(rig);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_false(tier_writer_has(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	assert_false(tier_writer_was_removed(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	tier_writer_close(w);
	rig_free(rig);
}

/* One store has as many removed seals as are recorded of one, and there are many others. */
static void removed_seals_take_bounded_space(void **state _unused_)
{
	enum { OTHERS = 200 };
	struct tier_store_marks stores[1 + OTHERS] = { 0 };
	struct tier_seal_disk *removed = calloc(TIER_REMOVED_MAX, sizeof(*removed));
	struct tier_marks marks = { .number = 1, .stores = stores, .nr_stores = ARRAY_SIZE(stores) };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig *rig = rig_new(1);
	struct tier *t = world_tier(&rig->w);
	uint8_t id[TIER_ID_LEN];
	struct tier_log log;

	assert_non_null(removed);
	for (unsigned i = 0; i < TIER_REMOVED_MAX; i++)
		removed[i].sealed_ns = le64_put(1 + i);
	for (unsigned i = 0; i < ARRAY_SIZE(stores); i++)
		stores[i].id[0] = (uint8_t)i;
	stores[0].base = 1;
	stores[0].removed = removed;
	stores[0].nr_removed = TIER_REMOVED_MAX;
	tier_marks_encode(&marks, &b);
	tier_marks_id(b.data, b.len, id);
	assert_int_equal(tier_put_new(t, tier_marks_name(1, id).s, b.data, b.len), 0);
	assert_int_equal(tier_log_read(t, &log), 0);
	assert_int_equal(tier_log_append_generation(&log, id, b.len), 0);
	tier_log_release(&log);

	assert_int_equal(collect(t, 1000), 0);
	assert_true(last_marks(rig->w.m, &marks));
	assert_int_equal(marks.number, 2);
	assert_int_equal(marks.stores[0].nr_removed, TIER_REMOVED_ALL_MAX / ARRAY_SIZE(stores));
	assert_true(tier_marks_removed(&marks.stores[0], 0, TIER_REMOVED_MAX));
	assert_false(tier_marks_removed(&marks.stores[0], 0, 1));
	tier_marks_release(&marks);
	free(removed);
	rig_free(rig);
}

static void a_writer_that_follows_the_log_has_what_was_removed(void **state _unused_)
{
	struct tier_writer_conf conf = conf_of(1);
	struct rig *rig = rig_new(1);
	struct tier_writer *w;

	add_checkpoint(rig, 1, false);
	add_checkpoint(rig, 1, false);
	assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
	assert_int_equal(flush(rig, w, 0), 0);
	assert_int_equal(flush(rig, w, 1), 0);
	assert_int_equal(tier_writer_follow(w), 0);
	assert_int_equal(tier_writer_generation(w), 0);
	assert_int_equal(collect(world_tier(&rig->w), 1), 0);
	assert_true(tier_writer_has(w, rig->all[0].c.ino, rig->all[0].c.sealed_ns));
	assert_int_equal(tier_writer_follow(w), 0);
	assert_true(tier_writer_generation(w) > 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct tier_checkpoint *c = &rig->all[i].c;

		assert_int_equal(tier_writer_has(w, c->ino, c->sealed_ns), i == 1);
		assert_int_equal(tier_writer_was_removed(w, c->ino, c->sealed_ns), i == 0);
	}
	assert_false(tier_writer_has_failed(w));
	tier_writer_close(w);
	rig_free(rig);
}

/* A writer's life; the same chunks in a directory `ino`. Returns the number of chunks sent. */
static uint64_t flush_with_index(struct rig *rig, const struct tier_writer_conf *conf, uint64_t ino)
{
	struct tier_checkpoint c = rig->all[0].c;
	struct tier_flushed f = { 0 };
	struct tier_writer *w;

	c.ino = ino;
	assert_int_equal(tier_writer_open(world_tier(&rig->w), conf, &w), 0);
	assert_int_equal(tier_flush(w, &c, &f), 0);
	tier_writer_close(w);
	return f.chunks;
}

/* Collections end while a store is not mounted. Its index has places in packs that are not there any more. */
static void packs_of_an_index_may_have_been_deleted(void **state _unused_)
{
	struct rig *rig = rig_new(1);
	struct tier_writer_conf conf = conf_of(1);
	size_t nr_packs = 0;
	uint64_t nr;

	add_checkpoint(rig, 1, false);
	conf.has_store = true;
	conf.store_dirfd = open(rig->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(conf.store_dirfd >= 0);
	nr = flush_with_index(rig, &conf, 1000);
	assert_true(nr > 0);
	assert_int_equal(flush_with_index(rig, &conf, 1001), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(collect(world_tier(&rig->w), 0), 0); /* removes both checkpoints, and then their packs */
	for (size_t i = 0; i < memory_nr(rig->w.m); i++)
		nr_packs += strncmp(memory_name(rig->w.m, i), "packs/", 6) == 0;
	assert_int_equal(nr_packs, 0);
	assert_int_equal(flush_with_index(rig, &conf, 1002), nr);
	assert_int_equal(flush_with_index(rig, &conf, 1003), 0);
	close(conf.store_dirfd);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_collector_may_stand_still),
		cmocka_unit_test(a_collection_does_not_hide_a_second_machine),
		cmocka_unit_test(packs_of_a_removed_checkpoint_stay_for_one_collection),
		cmocka_unit_test(a_writer_that_follows_the_log_has_what_was_removed),
		cmocka_unit_test(a_collector_that_is_killed_leaves_nothing_for_long),
		cmocka_unit_test(any_order_of_requests_is_safe),
		cmocka_unit_test(packs_of_an_index_may_have_been_deleted),
		cmocka_unit_test(what_is_not_found_once_is_not_removed),
		cmocka_unit_test(a_manifest_that_is_missing_ends_the_collection),
		cmocka_unit_test(no_checkpoint_is_removed_for_one_that_lacks_packs),
		cmocka_unit_test(no_checkpoint_is_removed_for_one_with_damaged_packs),
		cmocka_unit_test(a_seal_with_another_manifest_is_not_removed),
		cmocka_unit_test(removed_seals_take_bounded_space),
	};

	log_to_function(no_log, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
