/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Collecting where others refer to what a node has: what is pinned stays, until all nodes find that none does. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "index/db.h"
#include "index/pin_table.h"
#include "store/engine_state.h"
#include "tests/unit/store/world.h"

/* Notes of frames that a store has. */
static unsigned nr_notes(struct rig *rig)
{
	_cleanup_(db_iter_freep) struct db_iter *it = NULL;
	struct ns_key prefix = share_key_totals();
	const void *key, *value;
	size_t key_len, value_len;
	uint32_t pack, frame;
	unsigned nr = 0;

	assert_int_equal(db_iter_new(rig->e->db, NULL, prefix.b, prefix.len, NULL, 0, &it), 0);
	while (db_iter_next(it, &key, &key_len, &value, &value_len) > 0) {
		assert_int_equal(share_key_decode(key, key_len, &pack, &frame), 0);
		nr += pack > 0;
	}
	return nr;
}

static void sum_shared(struct world *w, uint64_t *ret_remote, uint64_t *ret_pinned)
{
	*ret_remote = *ret_pinned = 0;
	for (unsigned i = 0; i < NODES; i++) {
		struct engine_stats s;

		engine_stats(w->nodes[i].rig->e, &s);
		*ret_remote += s.remote_bytes;
		*ret_pinned += s.pinned_bytes;
	}
}

static void assert_shared(struct world *w, uint64_t remote, uint64_t pinned)
{
	uint64_t is_remote, is_pinned;

	sum_shared(w, &is_remote, &is_pinned);
	assert_int_equal(is_remote, remote);
	assert_int_equal(is_pinned, pinned);
}

static void what_is_pinned_is_not_collected(void **state)
{
	const struct gc_conf conf = { .delete = true, .move_below = 90, .place = true };
	struct world *w = *state;

	world_write_all(w, 10, MiB(3), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_write(w->nodes[i].rig, 11, MiB(1), OWN + i);
	world_commit(w, NODES);
	w->open = false;
	for (unsigned i = 1; i < NODES; i++) {
		rig_drop(w->nodes[i].rig, 10);
		rig_drop(w->nodes[i].rig, 11);
		rig_collect(w->nodes[i].rig, &conf);
		rig_reopen(w->nodes[i].rig);
		rig_collect(w->nodes[i].rig, &conf);
	}
	rig_check(w->nodes[0].rig, 10, MiB(3), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_fsck(w->nodes[i].rig);
	rig_check(w->nodes[0].rig, 10, MiB(3), 1);
	assert_true(world_stored_by_all(w) <= MiB(3) + MiB(1));
}

static void dropped_chunks_are_not_counted_as_remote(void **state)
{
	const struct gc_conf conf = { .delete = true };
	struct world *w = *state;

	world_write_all(w, 10, MiB(3), 1);
	world_write_all(w, 11, MiB(2), 2);
	world_commit(w, NODES);
	w->open = false;
	assert_shared(w, 3 * MiB(5), MiB(5));
	for (unsigned i = 0; i < NODES; i++) {
		rig_drop(w->nodes[i].rig, 10);
		rig_collect(w->nodes[i].rig, &conf);
	}
	assert_shared(w, 3 * MiB(2), MiB(5));
	for (unsigned i = 0; i < NODES; i++)
		rig_crash(w->nodes[i].rig);
	assert_shared(w, 3 * MiB(2), MiB(5));
	world_check_all(w, 11, MiB(2), 2);
	for (unsigned i = 0; i < NODES; i++) {
		rig_drop(w->nodes[i].rig, 11);
		rig_collect(w->nodes[i].rig, &conf);
		rig_fsck(w->nodes[i].rig);
	}
	assert_shared(w, 0, MiB(5));
	world_rebuild_all(w);
	assert_shared(w, 0, MiB(5));
}

static void notes_go_with_what_they_are_about(void **state)
{
	const struct gc_conf conf = { .delete = true };
	struct world *w = *state;

	/* The first one has it all from the others, and has pinned nothing. */
	w->nodes[0].takes_none = true;
	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	w->open = false;
	assert_true(nr_notes(w->nodes[0].rig) >= 3);
	rig_drop(w->nodes[0].rig, 10);
	rig_collect(w->nodes[0].rig, &conf);
	assert_int_equal(nr_notes(w->nodes[0].rig), 0);
	assert_shared(w, 2 * MiB(3), MiB(3));
	rig_crash(w->nodes[0].rig);
	assert_int_equal(nr_notes(w->nodes[0].rig), 0);
	assert_shared(w, 2 * MiB(3), MiB(3));
	rig_write(w->nodes[0].rig, 12, MiB(3), 1); /* not taken for known any more */
	assert_int_equal(engine_sync(w->nodes[0].rig->e), 0);
	w->nr_remote = NODES;
	rig_check(w->nodes[0].rig, 12, MiB(3), 1);
	rig_fsck(w->nodes[0].rig);
}

/* --- together --- */

#define FILTER CLUSTER_FILTER_MIN * 16
static const struct gc_conf collecting = { .delete = true, .move_below = 90 };

static void nodes_of(struct world *w, struct cluster_node nodes[NODES])
{
	memset(nodes, 0, NODES * sizeof(*nodes));
	for (unsigned i = 0; i < NODES; i++) {
		memcpy(nodes[i].id, engine_store_id(w->nodes[i].rig->e), CLUSTER_ID_LEN);
		snprintf(nodes[i].name, sizeof(nodes[i].name), "node%u", i);
	}
}

static void mark_all(struct world *w, const struct cluster_window *win, uint8_t *filter)
{
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(engine_cluster_mark(w->nodes[i].rig->e, win, filter, FILTER), 0);
}

static struct cluster_unpinned unpin_all(struct world *w, const struct cluster_window *win, const uint8_t *filter)
{
	struct cluster_unpinned sum = { 0 }, u;

	for (unsigned i = 0; i < NODES; i++) {
		assert_int_equal(engine_cluster_unpin(w->nodes[i].rig->e, win, filter, FILTER, &u), 0);
		sum.nr_kept += u.nr_kept;
		sum.kept_bytes += u.kept_bytes;
		sum.nr_dropped += u.nr_dropped;
		sum.dropped_bytes += u.dropped_bytes;
	}
	return sum;
}

static void collect_all(struct world *w)
{
	for (unsigned i = 0; i < NODES; i++)
		rig_collect(w->nodes[i].rig, &collecting);
}

/* As the agents do it, in so many windows. */
static struct cluster_unpinned collect_together(struct world *w, unsigned nr_windows)
{
	struct cluster_unpinned sum = { 0 };

	collect_all(w);
	for (unsigned i = 0; i < nr_windows; i++) {
		const struct cluster_window win = { i, nr_windows, 77 + i };
		uint8_t *filter = calloc(1, FILTER);
		struct cluster_unpinned u;

		mark_all(w, &win, filter);
		u = unpin_all(w, &win, filter);
		sum.kept_bytes += u.kept_bytes;
		sum.dropped_bytes += u.dropped_bytes;
		free(filter);
	}
	collect_all(w);
	return sum;
}

static void what_no_node_refers_to_is_dropped(void **state)
{
	struct world *w = *state;
	struct cluster_unpinned u;

	w->replicas = 2;
	world_write_all(w, 10, MiB(3), 1);
	world_write_all(w, 11, MiB(1), 2);
	world_commit(w, NODES);
	w->open = false;
	u = collect_together(w, 3);
	assert_int_equal(u.kept_bytes, 2 * MiB(4));
	assert_int_equal(u.dropped_bytes, 0);
	for (unsigned i = 0; i < NODES - 1; i++)
		rig_drop(w->nodes[i].rig, 10);
	u = collect_together(w, 3);
	rig_check(w->nodes[NODES - 1].rig, 10, MiB(3), 1);
	world_check_all(w, 11, MiB(1), 2);
	/* Another node may still have pinned what the last one has itself. */
	assert_true(u.dropped_bytes > 0 && u.kept_bytes >= 2 * MiB(1) + MiB(1));
	assert_int_equal(u.kept_bytes + u.dropped_bytes, 2 * MiB(4));
	rig_drop(w->nodes[NODES - 1].rig, 10);
	u = collect_together(w, 3);
	assert_int_equal(u.kept_bytes, 2 * MiB(1));
	assert_int_equal(world_stored_by_all(w), 2 * MiB(1));
	for (unsigned i = 0; i < NODES; i++)
		rig_crash(w->nodes[i].rig);
	assert_shared(w, 2 * MiB(1), 2 * MiB(1));
	world_check_all(w, 11, MiB(1), 2);
	for (unsigned i = 0; i < NODES; i++) {
		rig_drop(w->nodes[i].rig, 11);
		rig_fsck(w->nodes[i].rig);
	}
	collect_together(w, 1);
	assert_int_equal(world_stored_by_all(w), 0);
	assert_shared(w, 0, 0);
	for (unsigned i = 0; i < NODES; i++) {
		assert_int_equal(nr_notes(w->nodes[i].rig), 0);
		rig_fsck(w->nodes[i].rig);
	}
}

/* Also one that has nothing that others have: what it refers to is known to it alone. */
static void the_missing_node_is_named(void **state)
{
	struct cluster_node nodes[NODES], missing;
	struct world *w = *state;

	nodes_of(w, nodes);
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(engine_cluster_missing(w->nodes[i].rig->e, nodes, 0, &missing), 0);
	w->nodes[NODES - 1].takes_none = true;
	world_write_all(w, 10, MiB(1), 1);
	world_commit(w, NODES);
	w->open = false;
	for (unsigned i = 0; i < NODES - 1; i++) {
		rig_crash(w->nodes[i].rig);
		assert_int_equal(engine_cluster_missing(w->nodes[i].rig->e, nodes, NODES, &missing), 0);
		assert_int_equal(engine_cluster_missing(w->nodes[i].rig->e, nodes, NODES - 1, &missing), 1);
		assert_string_equal(missing.name, "node3");
	}
	memcpy(missing.id, "a node met today", CLUSTER_ID_LEN);
	assert_int_equal(engine_cluster_register_peers(w->nodes[0].rig->e, &missing, 1), 0);
	rig_crash(w->nodes[0].rig);
	assert_int_equal(engine_cluster_missing(w->nodes[0].rig->e, nodes, NODES, &missing), 1);
	assert_memory_equal(missing.id, "a node met today", CLUSTER_ID_LEN);
}

static void a_forgotten_node_is_not_missing_until_it_is_back(void **state)
{
	struct cluster_node nodes[NODES], missing;
	struct world *w = *state;
	struct rig *rig = w->nodes[0].rig;

	w->open = false;
	nodes_of(w, nodes);
	assert_int_equal(engine_cluster_forget(rig->e, nodes[1].name), -ENOENT);
	assert_int_equal(engine_cluster_register_peers(rig->e, nodes, NODES), 0);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 1);
	assert_int_equal(engine_cluster_forget(rig->e, nodes[NODES - 1].name), 0);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 0);
	rig_crash(rig);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 0);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 2, &missing), 1); /* another one is */
	assert_int_equal(engine_cluster_register_peers(rig->e, nodes, NODES), 0);
	rig_crash(rig);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 1);
	rig_fsck(rig);
}

static void without_a_window_nothing_is_dropped(void **state)
{
	const struct cluster_window win = { 0, 1, 5 }, other = { 0, 1, 6 };
	uint8_t *filter = calloc(1, FILTER);
	struct world *w = *state;
	struct rig *rig = w->nodes[1].rig;
	struct cluster_unpinned u;

	world_write_all(w, 10, MiB(1), 1);
	world_commit(w, NODES);
	w->open = false;
	for (unsigned i = 0; i < NODES; i++)
		rig_drop(w->nodes[i].rig, 10);
	collect_all(w);
	assert_int_equal(engine_cluster_unpin(rig->e, &win, filter, FILTER, &u), -ESTALE);
	mark_all(w, &win, filter);
	assert_int_equal(engine_cluster_unpin(rig->e, &other, filter, FILTER, &u), -ESTALE);
	rig_crash(rig); /* between mark and end */
	assert_int_equal(engine_cluster_unpin(rig->e, &win, filter, FILTER, &u), -ESTALE);
	assert_shared(w, 0, MiB(1));
	mark_all(w, &win, filter);
	engine_cluster_end_collection(rig->e);
	assert_int_equal(engine_cluster_unpin(rig->e, &win, filter, FILTER, &u), -ESTALE);
	assert_shared(w, 0, MiB(1));
	mark_all(w, &win, filter);
	assert_int_equal(engine_cluster_unpin(rig->e, &win, filter, FILTER, &u), 0);
	assert_true(u.nr_dropped > 0);
	rig_crash(rig);
	assert_shared(w, 0, MiB(1) - u.dropped_bytes);
	rig_fsck(rig);
	free(filter);
}

static void what_comes_while_nodes_collect_stays(void **state)
{
	const struct cluster_window win = { 0, 1, 5 };
	uint8_t *filter = calloc(1, FILTER);
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	uint8_t page[4096];
	struct world *w = *state;
	struct cluster_chunk chunk;
	struct cluster_unpinned u;

	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	for (unsigned i = 0; i < NODES; i++)
		rig_drop(w->nodes[i].rig, 10);
	w->open = false;
	collect_all(w);
	mark_all(w, &win, filter);
	/* A round of new pages, and of pages that are about to be dropped: nodes that referred to these have no record of
	 * them. */
	w->open = true;
	world_write_all(w, 11, MiB(2), 2);
	world_write_all(w, 12, MiB(1), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	w->open = false;
	/* Keeping and referring wait. */
	rig_pieces(w->nodes[0].rig, 11, p, PIECES);
	memset(page, 3, sizeof(page));
	chunk = (struct cluster_chunk){ fp_of(&w->nodes[0].rig->e->key, page, sizeof(page)), sizeof(page), page };
	assert_int_equal(engine_cluster_keep(w->nodes[0].rig->e, &chunk, 1), -EAGAIN);
	u = unpin_all(w, &win, filter);
	assert_true(u.dropped_bytes >= MiB(2));
	assert_int_equal(engine_cluster_keep(w->nodes[0].rig->e, &chunk, 1), 0);
	collect_all(w);
	world_check_all(w, 11, MiB(2), 2);
	world_check_all(w, 12, MiB(1), 1);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_fsck(w->nodes[i].rig);
	}
	world_check_all(w, 11, MiB(2), 2);
	world_check_all(w, 12, MiB(1), 1);
	free(filter);
	free(p);
}

/* Node 1 has pinned all of it; and as this node learns so late that the round is over, none refers to it. */
static int decide_and_collect(void *node, const struct fp *offer _unused_, size_t nr, struct cluster_decision *ret)
{
	const struct cluster_window win = { 0, 1, 5 };
	uint8_t *filter = calloc(1, FILTER);
	struct world *w = ((struct world_node *)node)->w;
	struct cluster_unpinned u;

	*ret = (struct cluster_decision){ .nr_nodes = NODES, .nr = nr };
	ret->nodes = calloc(NODES, sizeof(*ret->nodes));
	ret->owners = calloc(nr, sizeof(*ret->owners));
	nodes_of(w, ret->nodes);
	for (size_t i = 0; i < nr; i++)
		ret->owners[i] = (struct cluster_owners){ .index = (uint32_t)i, .nr = 1, .owners = { 1 }, .has = 1 };
	mark_all(w, &win, filter);
	u = unpin_all(w, &win, filter);
	assert_int_equal(u.dropped_bytes, MiB(1));
	rig_collect(w->nodes[1].rig, &collecting);
	free(filter);
	return 0;
}

static int no_node_has(void *node _unused_, const struct cluster_decision *d, int stored _unused_, bool *has_stored)
{
	memset(has_stored, 0, d->nr_nodes * sizeof(*has_stored));
	return 0;
}

static void a_late_node_does_not_rely_on_what_peers_had(void **state)
{
	struct content_piece *p = calloc(PIECES, sizeof(*p));
	struct fp *fps = calloc(PIECES, sizeof(*fps));
	bool *pinned = calloc(PIECES, sizeof(*pinned));
	struct world *w = *state;
	size_t nr;

	w->open = false;
	rig_write(w->nodes[1].rig, 10, MiB(1), 1);
	assert_int_equal(engine_sync(w->nodes[1].rig->e), 0);
	nr = rig_pieces(w->nodes[1].rig, 10, p, PIECES);
	for (size_t i = 0; i < nr; i++)
		fps[i] = p[i].fp;
	assert_int_equal(engine_cluster_pin(w->nodes[1].rig->e, fps, nr, pinned), 0);
	assert_shared(w, 0, MiB(1));
	rig_drop(w->nodes[1].rig, 10);
	assert_int_equal(engine_sync(w->nodes[1].rig->e), 0);
	w->open = true;
	w->calls[0].decide = decide_and_collect;
	w->calls[0].settle = no_node_has;
	rig_write(w->nodes[0].rig, 10, MiB(1), 1);
	world_commit(w, 1);
	assert_int_equal(w->nodes[0].result, 0);
	w->open = false;
	rig_check(w->nodes[0].rig, 10, MiB(1), 1);
	assert_shared(w, 0, 0);
	rig_crash(w->nodes[0].rig);
	rig_fsck(w->nodes[0].rig);
	rig_check(w->nodes[0].rig, 10, MiB(1), 1);
	free(pinned);
	free(fps);
	free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(what_is_pinned_is_not_collected),
		world_test(dropped_chunks_are_not_counted_as_remote),
		world_test(notes_go_with_what_they_are_about),
		world_test(what_no_node_refers_to_is_dropped),
		world_test(the_missing_node_is_named),
		world_test(a_forgotten_node_is_not_missing_until_it_is_back),
		world_test(without_a_window_nothing_is_dropped),
		world_test(what_comes_while_nodes_collect_stays),
		world_test(a_late_node_does_not_rely_on_what_peers_had),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
