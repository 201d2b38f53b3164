/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks that a node has for others: kept, served and pinned; and files of chunks that others have. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/content_sync.h"
#include "tests/unit/store/damage.h"
#include "tests/unit/store/world.h"

/* What `from` has of these, `to` has, too. */
static void keep(struct rig *from, struct rig *to, const struct content_piece *p, size_t nr)
{
	struct cluster_chunk *chunks = calloc(nr, sizeof(*chunks));
	size_t n = 0;

	for (size_t i = 0; i < nr; i++) {
		uint8_t *bytes;

		if (fp_is_none(p[i].fp))
			continue;
		bytes = malloc(p[i].chunk_len);
		assert_int_equal(engine_cluster_chunk(from->e, p[i].fp, p[i].chunk_len, bytes), 1);
		chunks[n++] = (struct cluster_chunk){ p[i].fp, p[i].chunk_len, bytes };
	}
	assert_int_equal(engine_cluster_keep(to->e, chunks, n), 0);
	assert_int_equal(engine_cluster_keep(to->e, chunks, n), 0); /* it has them now */
	chunks[0].len--;
	assert_int_equal(engine_cluster_keep(to->e, chunks, n), -EBADMSG);
	for (size_t i = 0; i < n; i++)
		free((void *)chunks[i].data);
	free(chunks);
}

static void refer(struct world *w, unsigned node, uint64_t ino, const struct content_piece *p, size_t nr)
{
	struct content *c = rig_content(w->nodes[node].rig, ino);
	struct cluster_node owner = { .name = "node1" };
	uint64_t off = 0;

	memcpy(owner.id, engine_store_id(w->nodes[1].rig->e), CLUSTER_ID_LEN);
	for (size_t i = 0, n; i < nr; i += n) {
		n = MIN(nr - i, (size_t)333);
		assert_int_equal(engine_cluster_refer(w->nodes[node].rig->e, &(struct cluster_run){ c, off, n }, 1,
						      p + i, &owner),
				 0);
		for (size_t k = i; k < i + n; k++)
			off += p[k].len;
	}
	assert_int_equal(content_sync(c), 0);
	content_close(c);
}

static void a_file_can_be_had_when_its_node_is_lost(void **state)
{
	const struct gc_conf conf = { .delete = true, .move_below = 90, .place = true };
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *lost = w->nodes[0].rig, *partner = w->nodes[1].rig, *heir = w->nodes[2].rig;
	uint8_t *bytes = rig_bytes(MiB(3) + 123, 5), *got = malloc(MiB(3) + 123);
	struct content *c;
	size_t nr;

	w->open = false;
	memset(bytes + KiB(100), 0, KiB(300)); /* a hole */
	memcpy(bytes + MiB(2), bytes + KiB(8), KiB(8)); /* twice the same */
	rig_write_bytes(lost, 10, bytes, MiB(3) + 123);
	rig_write(partner, 11, MiB(1), 5); /* some of it is there already */
	assert_int_equal(engine_sync(lost->e), 0);
	assert_int_equal(engine_sync(partner->e), 0);
	nr = rig_pieces(lost, 10, p, PIECES);
	keep(lost, partner, p, nr);
	rig_drop(partner, 11);
	rig_collect(partner, &conf);
	rig_crash(partner);
	refer(w, 2, 20, p, nr);
	w->nr_remote = 1;
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);
	assert_true(world_stored(w, 2) < KiB(8));
	rig_crash(heir);
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);
	rig_collect(heir, &conf);
	rig_fsck(heir);
	rig_fsck(partner);
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);

	/* It can be changed like any other; and without the partner it cannot be read. */
	c = rig_content(heir, 20);
	assert_int_equal(content_write(c, "new", 3, KiB(500)), 0);
	assert_int_equal(content_sync(c), 0);
	memcpy(bytes + KiB(500), "new", 3);
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);
	w->nr_remote = NODES;
	assert_int_equal(content_read(c, got, MiB(3), 0), -EIO);
	w->nr_remote = 0;
	content_close(c);
	free(got);
	free(bytes);
	free(p);
}

/* A size in a catalog is only claimed. */
static void a_long_hole_is_referred_to_at_once(void **state)
{
	static const uint64_t far = ((uint64_t)900 << 50) + 4096;
	struct world *w = *state;
	struct rig *from = w->nodes[1].rig, *heir = w->nodes[2].rig;
	struct content_piece p[16];
	uint8_t *bytes = rig_bytes(10000, 5), got[10000];
	struct content *c = rig_content(from, 10);

	w->open = false;
	assert_int_equal(content_write(c, bytes, 10000, 8192), 0);
	assert_int_equal(content_write(c, bytes, 10000, far), 0);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
	refer(w, 2, 20, p, rig_pieces(from, 10, p, ARRAY_SIZE(p)));
	c = rig_content(heir, 20);
	assert_int_equal(content_read(c, got, sizeof(got), far), sizeof(got));
	assert_memory_equal(got, bytes, sizeof(got));
	assert_int_equal(content_read(c, got, sizeof(got), 8192), sizeof(got));
	assert_memory_equal(got, bytes, sizeof(got));
	assert_int_equal(content_read(c, got, sizeof(got), far - 1), sizeof(got));
	assert_int_equal(got[0], 0);
	content_close(c);
	free(bytes);
}

/* Remote chunks of a catalog may disappear sooner than a file of this node, which is durable by itself. */
static void new_data_does_not_rely_on_a_catalog(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *owner = w->nodes[1].rig, *heir = w->nodes[2].rig;

	w->open = false;
	for (unsigned i = 0; i < 2; i++) {
		rig_write(owner, 10 + i, MiB(3), 5 + i);
		assert_int_equal(engine_sync(owner->e), 0);
		refer(w, 2, 20 + i, p, rig_pieces(owner, 10 + i, p, PIECES));
		if (i > 0)
			rig_crash(heir);
		world_present(w, 2);
		rig_write(heir, 30 + i, MiB(3), 5 + i);
		assert_int_equal(engine_sync(heir->e), 0);
		assert_int_equal(world_stored(w, 2), (i + 1) * MiB(3));
		w->nr_remote = NODES;
		rig_check(heir, 30 + i, MiB(3), 5 + i);
		rig_check(heir, 20 + i, MiB(3), 5 + i); /* what is here is found */
		w->nr_remote = 0;
	}
	rig_fsck(heir);
	free(p);
}

/* Nor where its bytes have moved within a file. */
static void bytes_that_have_moved_are_not_looked_for_in_a_catalog(void **state)
{
	static const enum chunking automatic = CHUNKING_AUTO;
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *owner = w->nodes[1].rig, *heir = w->nodes[2].rig;
	uint8_t *bytes = rig_bytes(MiB(3) + 10, 5);
	struct content *c;

	w->open = false;
	rig_write_bytes(owner, 10, bytes + 10, MiB(3));
	assert_int_equal(engine_sync(owner->e), 0);
	refer(w, 2, 20, p, rig_pieces(owner, 10, p, PIECES));
	world_present(w, 2);
	c = rig_content(heir, 30);
	content_set_chunking(c, &automatic);
	content_set_champions(c, (uint64_t[]){ 20 }, 1);
	assert_int_equal(content_write(c, bytes, MiB(3) + 10, 0), 0);
	assert_int_equal(content_sync(c), 0);
	content_close(c);
	assert_int_equal(rig_stats(heir).shifted, 0);
	w->nr_remote = NODES;
	rig_check_bytes(heir, 30, bytes, MiB(3) + 10);
	w->nr_remote = 0;
	free(bytes);
	free(p);
}

/* Pages of a file, to where they lie one behind the other. All come but `missing` (SIZE_MAX: all). */
static void ask(struct rig *rig, const struct content_piece *p, const size_t *which, size_t nr, const uint8_t *bytes,
		size_t missing)
{
	struct cluster_want *w = calloc(nr, sizeof(*w));
	size_t at = 0, want = 0;
	uint8_t *got;

	for (size_t i = 0; i < nr; i++)
		want += p[which[i]].chunk_len;
	got = malloc(want);
	for (size_t i = 0; i < nr; at += p[which[i++]].chunk_len)
		w[i] = (struct cluster_want){ .fp = p[which[i]].fp, .len = p[which[i]].chunk_len, .buf = got + at };
	assert_int_equal(engine_cluster_chunks(rig->e, w, nr), 0);
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(w[i].got, which[i] != missing);
		if (w[i].got)
			assert_memory_equal(w[i].buf, bytes + KiB(4) * which[i], w[i].len);
	}
	free(got);
	free(w);
}

#define WRITTEN ((size_t)3 * 256) /* chunks of 3 MiB */

/* `bytes` as a file that is in packs only; `p` are its pieces, and `all` their numbers. */
static void write_pieces(struct rig *rig, const uint8_t *bytes, struct content_piece *p, size_t all[WRITTEN])
{
	rig_write_bytes(rig, 10, bytes, MiB(3));
	assert_int_equal(engine_sync(rig->e), 0);
	rig_reopen(rig);
	assert_int_equal(rig_pieces(rig, 10, p, PIECES), WRITTEN);
	for (size_t i = 0; i < WRITTEN; i++)
		all[i] = i;
}

static void chunks_are_given_in_whatever_order_they_are_asked_for(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	size_t order[WRITTEN], nr = 0;
	struct world *w = *state;
	struct rig *rig = w->nodes[0].rig;
	uint8_t *bytes = rig_bytes(MiB(3), 5);

	w->open = false;
	write_pieces(rig, bytes, p, order);
	ask(rig, p, order, ARRAY_SIZE(order), bytes, SIZE_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		order[i] = ARRAY_SIZE(order) - 1 - i;
	ask(rig, p, order, ARRAY_SIZE(order), bytes, SIZE_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(order); i += 3) /* what is between others have */
		order[nr++] = i;
	ask(rig, p, order, nr, bytes, SIZE_MAX);
	order[1] = order[0]; /* twice */
	ask(rig, p, order, nr, bytes, SIZE_MAX);

	p[300].chunk_len--; /* no such chunk, between others that are there */
	ask(rig, p, order, nr, bytes, 300);
	p[300].chunk_len++;
	p[300].fp = FP_NONE;
	ask(rig, p, order, nr, bytes, 300);
	free(bytes);
	free(p);
}

/* One part of a frame after the other, so that the next is guessed: up to the end of the store, where there is none,
 * and then somewhere else. What is wanted of the length of another is not there. */
static void what_is_guessed_is_looked_at(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	size_t which[WRITTEN];
	struct world *w = *state;
	struct rig *rig = w->nodes[0].rig;
	uint8_t *bytes = rig_bytes(MiB(3), 5);

	w->open = false;
	write_pieces(rig, bytes, p, which);
	for (int times = 0; times < 2; times++)
		for (size_t i = 0; i < ARRAY_SIZE(which); i += 96)
			ask(rig, p, which + i, MIN(ARRAY_SIZE(which) - i, (size_t)96), bytes, SIZE_MAX);
	for (size_t i = 0; i < 10; i++) {
		ask(rig, p, which + 40 * i, 7, bytes, SIZE_MAX);
		ask(rig, p, which + 40 * i + 7, 7, bytes, SIZE_MAX);
		ask(rig, p, which + 40 * i + 14, 7, bytes, SIZE_MAX);
		p[40 * i + 21].chunk_len--;
		ask(rig, p, which + 40 * i + 21, 7, bytes, 40 * i + 21);
		p[40 * i + 21].chunk_len++;
	}
	free(bytes);
	free(p);
}

static void one_that_is_damaged_is_not_given_and_its_neighbours_are(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *rig = w->nodes[0].rig;
	uint8_t *bytes = rig_bytes(KiB(400), 5);
	size_t order[100];

	w->open = false;
	rig_write_bytes(rig, 10, bytes, KiB(400));
	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(rig_pieces(rig, 10, p, PIECES), ARRAY_SIZE(order));
	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		order[i] = i;
	damage_chunk(rig, 1, 0, 77);
	rig_reopen(rig);
	ask(rig, p, order, ARRAY_SIZE(order), bytes, 77);
	ask(rig, p, order, ARRAY_SIZE(order), bytes, 77); /* that it is damaged is known now */
	free(bytes);
	free(p);
}

static uint64_t nr_damaged(struct rig *rig)
{
	struct engine_stats st;

	engine_stats(rig->e, &st);
	return st.nr_damaged;
}

/* The reader compares, and not the node that has it. It must detect a mismatch, and read from another node. */
static void what_is_damaged_with_one_owner_comes_from_the_next(void **state)
{
	struct world *w = *state;
	uint8_t *p = malloc(MiB(1));
	struct content *c;

	w->replicas = 2;
	w->nodes[2].takes_none = w->nodes[3].takes_none = true;
	world_write_all(w, 10, MiB(1), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	assert_int_equal(world_stored(w, 0), MiB(1));
	assert_int_equal(world_stored(w, 1), MiB(1));
	for (uint32_t i = 0; i < 3; i++)
		damage_chunk(w->nodes[0].rig, 1, 0, 70 + 2 * i);
	rig_reopen(w->nodes[0].rig);
	rig_check(w->nodes[2].rig, 10, MiB(1), 1);
	assert_int_equal(nr_damaged(w->nodes[0].rig), 3);
	assert_int_equal(nr_damaged(w->nodes[1].rig), 0);
	rig_check(w->nodes[3].rig, 10, MiB(1), 1);

	damage_chunk(w->nodes[1].rig, 1, 0, 72);
	rig_reopen(w->nodes[1].rig);
	c = rig_content(w->nodes[2].rig, 10);
	assert_int_equal(content_read(c, p, MiB(1), 0), -EIO);
	content_close(c);
	assert_int_equal(nr_damaged(w->nodes[1].rig), 1);
	free(p);
}

static void assert_located(struct rig *rig, const struct content_piece *p, size_t nr, bool is_here,
			   const struct rig *owner)
{
	for (size_t i = 0; i < nr; i++) {
		struct cluster_want w = { .fp = p[i].fp, .len = p[i].chunk_len };

		assert_int_equal(engine_cluster_locate(rig->e, &w, 1), 0);
		assert_int_equal(w.got, is_here);
		assert_int_equal(w.nr_owners, owner != NULL);
		if (owner)
			assert_memory_equal(w.owners[0], engine_store_id(owner->e), CLUSTER_ID_LEN);
	}
}

static void what_was_remote_can_be_kept_here(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *lost = w->nodes[0].rig, *partner = w->nodes[1].rig;
	size_t nr;

	for (unsigned i = 1; i < NODES; i++)
		w->nodes[i].takes_none = true;
	world_write_all(w, 10, MiB(1), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	nr = rig_pieces(partner, 10, p, PIECES);
	assert_true(nr > 0);
	assert_located(lost, p, nr, true, NULL);
	assert_located(partner, p, nr, false, lost);
	w->open = false;
	keep(lost, partner, p, nr);
	assert_located(partner, p, nr, true, NULL);
	w->nr_remote = NODES;
	rig_check(partner, 10, MiB(1), 1); /* although that refers to remote chunks */
	for (int i = 0; i < 2; i++) {
		rig_crash(partner);
		assert_located(partner, p, nr, true, NULL);
		rig_check(partner, 10, MiB(1), 1);
	}
	w->nr_remote = 0;
	assert_int_equal(world_stored(w, 1), MiB(1)); /* once, however often it is kept */
	rig_fsck(partner);
	free(p);
}

/* How many of a file's chunks a node has pinned. */
static size_t pin(struct rig *rig, const struct content_piece *p, size_t nr)
{
	struct fp *fps = calloc(nr, sizeof(*fps));
	bool *pinned = calloc(nr, sizeof(*pinned));
	size_t n = 0;

	for (size_t i = 0; i < nr; i++)
		fps[i] = p[i].fp;
	assert_int_equal(engine_cluster_pin(rig->e, fps, nr, pinned), 0);
	for (size_t i = 0; i < nr; i++)
		n += pinned[i];
	free(fps);
	free(pinned);
	return n;
}

static void what_is_here_is_pinned_when_it_is_asked_for(void **state)
{
	const struct gc_conf conf = { .delete = true, .move_below = 90, .place = true };
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *rig = w->nodes[0].rig;
	uint8_t *bytes = malloc(MiB(1));
	struct engine_stats s;
	size_t nr;

	w->open = false;
	rig_write(rig, 10, MiB(3), 5);
	rig_write(rig, 11, MiB(1), 6);
	assert_int_equal(engine_sync(rig->e), 0);
	nr = rig_pieces(rig, 10, p, PIECES);
	assert_int_equal(pin(w->nodes[1].rig, p, nr), 0); /* it is not there */
	assert_int_equal(pin(rig, p, nr), nr);
	assert_int_equal(pin(rig, p, nr), nr);
	engine_stats(rig->e, &s);
	assert_int_equal(s.pinned_bytes, MiB(3));
	rig_drop(rig, 10);
	rig_drop(rig, 11);
	rig_collect(rig, &conf);
	rig_crash(rig);
	rig_collect(rig, &conf);
	assert_int_equal(world_stored(w, 0), MiB(3));
	for (size_t i = 0; i < nr; i++)
		assert_int_equal(engine_cluster_chunk(rig->e, p[i].fp, p[i].chunk_len, bytes), 1);
	rig_fsck(rig);
	assert_int_equal(pin(rig, p, nr), nr);
	free(bytes);
	free(p);
}

static void what_is_not_durable_is_not_pinned(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *rig = w->nodes[0].rig;
	struct content *c;
	size_t nr;

	w->open = false;
	rig_write(rig, 10, MiB(2), 5);
	c = rig_content(rig, 10);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
	nr = rig_pieces(rig, 10, p, PIECES);
	assert_true(nr > 0);
	assert_int_equal(pin(rig, p, nr), 0);
	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(pin(rig, p, nr), nr);
	free(p);
}

static struct content_piece *earlier;
static size_t nr_earlier;

/* Between a round's two notes. */
static void pin_in_the_middle(struct world_node *n)
{
	bool *pinned = calloc(n->nr_offered, sizeof(*pinned));

	if (n->number == 0)
		assert_int_equal(pin(n->rig, earlier, nr_earlier), nr_earlier);
	assert_int_equal(engine_cluster_pin(n->rig->e, n->offer, n->nr_offered, pinned), 0);
	for (size_t i = 0; i < n->nr_offered; i++)
		assert_false(pinned[i]);
	free(pinned);
}

static void pinning_does_not_wait_for_a_round(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	size_t nr, sum = 0;

	earlier = calloc(PIECES, sizeof(*earlier));
	w->open = false;
	rig_write(w->nodes[0].rig, 9, MiB(1), 5);
	assert_int_equal(engine_sync(w->nodes[0].rig->e), 0);
	nr_earlier = rig_pieces(w->nodes[0].rig, 9, earlier, PIECES);
	w->open = true;
	world_write_all(w, 10, MiB(2), 1);
	w->before_settle = pin_in_the_middle;
	world_commit(w, NODES);
	w->before_settle = NULL;
	world_assert_committed(w);
	assert_int_equal(world_stored_by_all(w), MiB(2) + MiB(1));
	nr = rig_pieces(w->nodes[0].rig, 10, p, PIECES);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		sum += pin(w->nodes[i].rig, p, nr); /* the node that has it, and no other */
	}
	assert_int_equal(sum, nr);
	world_check_all(w, 10, MiB(2), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_fsck(w->nodes[i].rig);
	free(TAKE(earlier));
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(chunks_are_given_in_whatever_order_they_are_asked_for),
		world_test(what_is_guessed_is_looked_at),
		world_test(one_that_is_damaged_is_not_given_and_its_neighbours_are),
		world_test(what_is_damaged_with_one_owner_comes_from_the_next),
		world_test(a_file_can_be_had_when_its_node_is_lost),
		world_test(a_long_hole_is_referred_to_at_once),
		world_test(new_data_does_not_rely_on_a_catalog),
		world_test(bytes_that_have_moved_are_not_looked_for_in_a_catalog),
		world_test(what_was_remote_can_be_kept_here),
		world_test(what_is_here_is_pinned_when_it_is_asked_for),
		world_test(what_is_not_durable_is_not_pinned),
		world_test(pinning_does_not_wait_for_a_round),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
