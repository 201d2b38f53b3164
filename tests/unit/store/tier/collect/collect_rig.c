/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/collect/collect_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "store/tier/collect/tier_log.h"
#include "tests/unit/place.h"

static void ignore_line(void *userdata _unused_, enum log_level level _unused_, const char *line _unused_)
{
}

void rig_no_log(void)
{
	log_to_function(ignore_line, NULL);
}

struct tier_writer_conf rig_conf(uint8_t store)
{
	struct tier_writer_conf conf = checkpoint_writer;

	tier_key_init(&conf.key, FP_CLMUL, (const uint8_t *)"a secret of thirty-two bytes...");
	memset(conf.store, store, sizeof(conf.store));
	conf.pack_bytes = 8192;
	conf.packs_in_flight = 2;
	return conf;
}

bool rig_last_marks(struct memory *m, struct tier_marks *ret)
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

bool rig_is_valid(const struct tier_marks *marks, const uint8_t *store, uint64_t number)
{
	const struct tier_store_marks *s = tier_marks_store(marks, store);

	return !s || number > s->base || tier_marks_keep(s, number);
}

/* Every manifest that is shown is complete, at any time. */
static void check_shown(struct world *w)
{
	struct tier_marks marks = { 0 };

	rig_last_marks(w->m, &marks);
	for (size_t i = 0; i < memory_nr(w->m); i++) {
		uint8_t store[TIER_ID_LEN];
		struct tier_manifest man;
		uint64_t number;
		size_t len;
		const void *p = memory_data(w->m, i, &len);

		if (!tier_manifest_name_parse(memory_name(w->m, i), store, &number) ||
		    tier_manifest_decode(p, len, &man) < 0 || !rig_is_valid(&marks, store, number))
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

void rig_add(struct rig *rig, uint8_t store, bool is_small)
{
	unsigned nr = is_small ? 2 : 2 + (unsigned)(world_draw(&rig->w) % 8), chunks[10];
	unsigned from = (unsigned)(world_draw(&rig->w) % (rig->pool.nr - 10));

	for (unsigned i = 0; i < nr; i++)
		chunks[i] = world_draw(&rig->w) % 4 == 0 ? (unsigned)(world_draw(&rig->w) % rig->pool.nr) : from + i;
	checkpoint_init_file(&rig->all[rig->nr], &rig->pool, 100 + rig->nr, chunks, nr);
	rig->known[rig->nr] = &rig->all[rig->nr];
	rig->store[rig->nr++] = store;
}

struct rig *rig_new(uint64_t seed)
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

void rig_free(struct rig *rig)
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
				   man.ino == c->ino && rig_is_valid(marks, store, number);
		}
		if (rig->is_acknowledged[i] && !is_there)
			assert_true(s && tier_marks_removed(s, c->ino, c->sealed_ns));
	}
}

unsigned rig_check_content(struct rig *rig)
{
	struct tier *t = world_tier(&rig->w);
	struct tier_marks marks = { 0 };
	unsigned nr = 0;

	rig_last_marks(rig->w.m, &marks);
	check_acknowledged(rig, &marks);
	for (size_t i = 0; i < memory_nr(rig->w.m); i++) {
		const char *name = memory_name(rig->w.m, i);
		uint8_t store[TIER_ID_LEN];
		struct tier_manifest man;
		uint64_t number;
		size_t len;
		const void *p = memory_data(rig->w.m, i, &len);

		if (!tier_manifest_name_parse(name, store, &number) || tier_manifest_decode(p, len, &man) < 0 ||
		    !rig_is_valid(&marks, store, number))
			continue;
		checkpoint_check(t, name, rig->known, rig->nr);
		nr++;
	}
	tier_marks_release(&marks);
	return nr;
}

int rig_collect_with(struct tier *t, unsigned keep, const struct tier_collect_conf *conf)
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

int rig_collect(struct tier *t, unsigned keep)
{
	return rig_collect_with(t, keep, &(struct tier_collect_conf){ 0 });
}

/* Nothing that no checkpoint needs is left, but the log, keys, a fence of each store, and two marks. */
static void check_clean(struct rig *rig)
{
	struct tier_marks marks = { 0 };
	unsigned nr_fences = 0, nr_marks = 0;

	assert_true(rig_last_marks(rig->w.m, &marks));
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
			assert_true(rig_is_valid(&marks, store, number));
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
void rig_check_end(struct rig *rig)
{
	unsigned nr;

	if (rig->w.failure)
		fail_msg("%s", rig->w.failure);
	nr = rig_check_content(rig);
	assert_int_equal(rig_collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(rig_check_content(rig), nr);
	assert_int_equal(rig_collect(world_tier(&rig->w), 1000), 0);
	assert_int_equal(rig_check_content(rig), nr);
	check_clean(rig);
	for (uint8_t store = 1; store <= STORES; store++) { /* each store goes on */
		struct tier_writer_conf conf = rig_conf(store);
		struct tier_writer *w;
		struct tier_flushed f;

		rig_add(rig, store, true);
		assert_int_equal(tier_writer_open(world_tier(&rig->w), &conf, &w), 0);
		assert_int_equal(tier_flush(w, &rig->all[rig->nr - 1].c, &f), 0);
		rig->is_acknowledged[rig->nr - 1] = true;
		tier_writer_close(w);
	}
	assert_int_equal(rig_check_content(rig), nr + STORES);
}

unsigned rig_remove_one(struct tier *t, uint64_t ino)
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

int rig_flush(struct rig *rig, struct tier_writer *w, unsigned i)
{
	struct tier_writer_conf conf = rig_conf(rig->store[i]);
	_cleanup_(tier_writer_closep) struct tier_writer *own = NULL;
	struct tier_flushed f;
	int r = w ? 0 : tier_writer_open(world_tier(&rig->w), &conf, &own);

	if (r == 0)
		r = tier_flush(w ? w : own, &rig->all[i].c, &f);
	rig->is_acknowledged[i] |= r == 0;
	return r;
}

unsigned rig_nr_packs(const struct memory *m)
{
	uint8_t id[TIER_ID_LEN];
	unsigned nr = 0;

	for (size_t i = 0; i < memory_nr(m); i++)
		nr += tier_pack_name_parse(memory_name(m, i), id);
	return nr;
}

size_t rig_nr_objects(struct rig *rig, const char *prefix)
{
	size_t nr = 0;

	for (size_t i = 0; i < memory_nr(rig->w.m); i++)
		nr += strncmp(memory_name(rig->w.m, i), prefix, strlen(prefix)) == 0;
	return nr;
}
