/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Rounds: what nodes have in common is stored once, also where one of them fails, and asked for early where it pays. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/store/world.h"

static void what_all_have_is_stored_once(void **state)
{
	struct world *w = *state;

	world_write_all(w, 10, MiB(6), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_write(w->nodes[i].rig, 11, MiB(1), OWN + i);
	world_commit(w, NODES);
	world_assert_committed(w);
	assert_int_equal(world_stored_by_all(w), MiB(6) + NODES * MiB(1));
	for (unsigned i = 0; i < NODES; i++) {
		assert_in_range(world_stored(w, i), MiB(1) + MiB(6) / NODES * 8 / 10,
				MiB(1) + MiB(6) / NODES * 12 / 10);
		rig_check(w->nodes[i].rig, 10, MiB(6), 1);
		rig_check(w->nodes[i].rig, 11, MiB(1), OWN + i);
	}
	for (unsigned i = 0; i < NODES; i++) {
		rig_reopen(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(6), 1);
	}
}

static void a_file_like_one_that_is_remote_costs_nothing(void **state)
{
	struct world *w = *state;
	uint64_t before;

	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	before = world_stored_by_all(w);
	w->open = false;
	world_write_all(w, 20, MiB(3), 1);
	world_commit(w, NODES);
	assert_int_equal(world_stored_by_all(w), before);
	world_check_all(w, 20, MiB(3), 1);
}

/* What is written on node 0 now relies on no other node; and what was written before has it from there, too. */
static void assert_stored_again(struct world *w)
{
	struct rig *rig = w->nodes[0].rig;

	w->open = false;
	w->nr_remote = NODES;
	for (unsigned ino = 20; ino < 22; ino++) { /* of the second there is one that is here */
		rig_write(rig, ino, MiB(3), 1);
		world_commit(w, 1);
		assert_int_equal(world_stored(w, 0), MiB(3));
	}
	rig_check(rig, 20, MiB(3), 1);
	rig_check(rig, 10, MiB(3), 1); /* so it is back, too */
	rig_reopen(rig);
	rig_check(rig, 20, MiB(3), 1);
	rig_check(rig, 10, MiB(3), 1);
	w->nr_remote = 0;
}

/* A node that does not take part may never do so again: what is written again does not rely on it. */
static void a_file_like_one_that_lost_nodes_have_is_stored(void **state)
{
	struct world *w = *state;
	struct cluster_node self = { 0 };

	memcpy(self.id, engine_store_id(w->nodes[0].rig->e), sizeof(self.id));
	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	assert_in_range(world_stored(w, 0), 1, MiB(2));
	engine_cluster_present(w->nodes[0].rig->e, &self, 1);
	assert_stored_again(w);
}

/* With two replicas the loss of one node more must not take what is written after that of the first. */
static void a_file_like_one_that_lost_nodes_have_too_is_stored(void **state)
{
	struct world *w = *state;
	struct world_node *n = &w->nodes[NODES - 1];
	struct cluster_node others[NODES - 1] = { 0 };

	w->replicas = 2;
	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	w->open = false;
	for (unsigned i = 1; i < NODES; i++)
		memcpy(others[i - 1].id, engine_store_id(w->nodes[i].rig->e), sizeof(others[i - 1].id));
	engine_cluster_present(n->rig->e, others, NODES - 1);
	rig_write(n->rig, 20, MiB(3), 1);
	assert_int_equal(engine_sync(n->rig->e), 0);
	assert_in_range(world_stored(w, n->number), MiB(2), MiB(3) - 1); /* not what two others have */
	w->nr_remote = 2;
	rig_check(n->rig, 20, MiB(3), 1);
	rig_check(n->rig, 10, MiB(3), 1);
	w->nr_remote = 0;
}

/* It is unknown which nodes are left, and what is written now is to be read now. */
static void a_file_like_one_that_is_remote_is_stored_while_no_agent_is_there(void **state)
{
	struct world *w = *state;

	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	assert_in_range(world_stored(w, 0), 1, MiB(2));
	engine_cluster_present(w->nodes[0].rig->e, NULL, 0);
	assert_stored_again(w);
}

static void a_file_like_one_that_is_remote_is_stored_before_an_agent_comes(void **state)
{
	struct world *w = *state;

	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	assert_in_range(world_stored(w, 0), 1, MiB(2));
	rig_reopen(w->nodes[0].rig);
	assert_stored_again(w);
}

static void as_many_nodes_have_it_as_is_asked_for(void **state)
{
	struct world *w = *state;

	w->replicas = 2;
	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	assert_int_equal(world_stored_by_all(w), 2 * MiB(3));
	w->nr_remote = 1;
	for (unsigned i = 1; i < NODES; i++)
		rig_check(w->nodes[i].rig, 10, MiB(3), 1);
}

static void what_cannot_be_had_is_an_error_until_it_can(void **state)
{
	struct world *w = *state;
	struct content *c;
	uint8_t *p = malloc(MiB(3));

	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	w->nr_remote = NODES;
	c = rig_content(w->nodes[0].rig, 10);
	assert_int_equal(content_read(c, p, MiB(3), 0), -EIO);
	content_close(c);
	w->nr_remote = 0;
	world_check_all(w, 10, MiB(3), 1);
	free(p);
}

static void without_a_decision_all_is_stored(void **state)
{
	struct world *w = *state;

	w->fail_decide = true;
	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	assert_int_equal(world_stored_by_all(w), NODES * MiB(3));
	world_check_all(w, 10, MiB(3), 1);
}

static void no_node_relies_on_one_that_has_not_stored(void **state)
{
	struct world *w = *state;

	w->fail_store = 2;
	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	assert_true(world_stored_by_all(w) > MiB(3) * 3 / 2);
	w->nr_remote = 2; /* what the second had to store all have */
	for (unsigned i = 0; i < NODES; i++) {
		struct engine_stats s;

		engine_stats(w->nodes[i].rig->e, &s);
		assert_true(s.remote_bytes < MiB(3));
	}
	w->nr_remote = 0;
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(3), 1);
	}
}

static void a_node_that_does_not_receive_the_end_stores_all(void **state)
{
	struct world *w = *state;

	w->fail_settle = true;
	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	assert_int_equal(world_stored_by_all(w), NODES * MiB(3));
	w->nr_remote = NODES;
	world_check_all(w, 10, MiB(3), 1);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(3), 1);
		rig_fsck(w->nodes[i].rig);
	}
}

static void copy_store(struct world_node *n)
{
	rig_copy_as_it_is(n->rig);
}

/* A crash when this node has said that it has stored, and before it knows that others have. */
static void a_crash_in_the_middle_leaves_what_was_there_before(void **state)
{
	struct world *w = *state;

	world_write_all(w, 10, MiB(2), 1);
	world_commit(w, NODES);
	world_write_all(w, 11, MiB(2), 2);
	w->before_settle = copy_store;
	world_commit(w, NODES);
	world_assert_committed(w);
	w->before_settle = NULL;
	w->open = false;
	for (unsigned i = 0; i < NODES; i++) {
		rig_close_to_copy(w->nodes[i].rig);
		rig_open(w->nodes[i].rig);
	}
	world_check_all(w, 10, MiB(2), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_check_absent(w->nodes[i].rig, 11);
	/* A chunk that was to be remote is not taken for known. */
	world_write_all(w, 12, MiB(2), 2);
	world_commit(w, NODES);
	world_check_all(w, 12, MiB(2), 2);
	for (unsigned i = 0; i < NODES; i++) {
		w->nr_remote = NODES;
		rig_check(w->nodes[i].rig, 12, MiB(2), 2);
		w->nr_remote = 0;
		rig_fsck(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 12, MiB(2), 2);
		rig_check(w->nodes[i].rig, 10, MiB(2), 1);
	}
}

static void a_new_index_knows_it_all(void **state)
{
	struct world *w = *state;

	world_write_all(w, 10, MiB(3), 1);
	world_commit(w, NODES);
	w->open = false;
	world_rebuild_all(w);
	world_check_all(w, 10, MiB(3), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_fsck(w->nodes[i].rig);
}

static void past_the_limit_it_is_stored_here(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < NODES; i++) {
		rig_close(w->nodes[i].rig);
		w->nodes[i].rig->conf.pending = MiB(1);
		w->fail_decide = true;
		rig_open(w->nodes[i].rig);
	}
	world_write_all(w, 10, MiB(8), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	world_check_all(w, 10, MiB(8), 1);
	assert_int_equal(world_stored_by_all(w), NODES * MiB(8));
}

/* No thread waits for it: what comes meanwhile is the next one's. */
static void a_round_is_wanted_early_where_little_is_in_common(void **state)
{
	struct world *w = *state;
	struct world_node *n = &w->nodes[0];

	rig_write(n->rig, 10, MiB(20), 1); /* not known yet */
	assert_int_equal(n->nr_wanted, 0);
	rig_write(n->rig, 9, MiB(1), 9);
	rig_write(w->nodes[1].rig, 9, MiB(1), 9);
	w->nodes[0].takes_none = true;
	world_commit(w, 2);
	w->nr_in_round = 1;
	w->nodes[1].nr_offered = 0;
	rig_write(n->rig, 11, MiB(15), 2);
	assert_int_equal(n->nr_wanted, 0);
	rig_write(n->rig, 12, MiB(4), 3);
	assert_int_equal(n->nr_wanted, 1);
	rig_write(n->rig, 13, MiB(1), 4);
	assert_int_equal(n->nr_wanted, 1);
	assert_int_equal(engine_cluster_round(n->rig->e), 0);
	assert_false(engine_cluster_pending(n->rig->e));
	assert_int_equal(world_stored(w, 0), MiB(40));
	rig_write(n->rig, 14, MiB(20), 5);
	assert_int_equal(n->nr_wanted, 2);

	/* Only what was committed is there. */
	w->open = false;
	rig_crash(n->rig);
	rig_check(n->rig, 10, MiB(20), 1);
	rig_check_absent(n->rig, 11);
	rig_fsck(n->rig);
}

/* Two nodes go to a round that no thread waits for. */
static void *round_of_node(void *node)
{
	struct world_node *n = node;

	n->result = engine_cluster_round(n->rig->e);
	return NULL;
}

static void round_of_two(struct world *w)
{
	w->nr_in_round = 2;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&w->nodes[i].thread, NULL, round_of_node, &w->nodes[i]), 0);
	for (unsigned i = 0; i < 2; i++)
		pthread_join(w->nodes[i].thread, NULL);
}

static bool was_offered(struct world_node *n)
{
	bool yes = n->nr_offered != SIZE_MAX;

	n->nr_offered = SIZE_MAX;
	return yes;
}

static void where_nothing_is_in_common_only_the_first_frames_are_deferred(void **state)
{
	struct world *w = *state;
	struct world_node *n = &w->nodes[0];

	rig_write(n->rig, 10, MiB(5), 1);
	world_commit(w, 1);
	assert_true(was_offered(n));
	rig_write(n->rig, 11, MiB(4), 2); /* the last of them is not full */
	assert_int_equal(n->nr_wanted, 0);
	rig_write(n->rig, 12, MiB(3), 3);
	assert_int_equal(n->nr_wanted, 1);
	assert_int_equal(engine_cluster_round(n->rig->e), 0);
	assert_true(was_offered(n));
	rig_write(n->rig, 13, MiB(7), 4);
	assert_int_equal(n->nr_wanted, 1);
	assert_false(engine_cluster_pending(n->rig->e));
	assert_int_equal(n->nr_announced, 0);
	world_commit(w, 1);
	assert_int_equal(n->result, 0);
	assert_false(was_offered(n));
	assert_int_equal(n->nr_announced, MiB(7) / 4096);

	/* The next commit begins as this one did. */
	rig_write(n->rig, 14, MiB(1), 5);
	assert_true(engine_cluster_pending(n->rig->e));
	world_commit(w, 1);
	assert_true(was_offered(n));
	w->open = false;
	rig_crash(n->rig);
	for (uint64_t ino = 10; ino <= 14; ino++)
		rig_check(n->rig, ino, (const size_t[]){ MiB(5), MiB(4), MiB(3), MiB(7), MiB(1) }[ino - 10], ino - 9);
	rig_fsck(n->rig);
}

static void what_comes_while_the_first_frames_are_decided_about_goes_with_them(void **state)
{
	struct world *w = *state;
	struct world_node *n = &w->nodes[0];

	rig_write(n->rig, 10, MiB(5), 1);
	world_commit(w, 1);
	rig_write(n->rig, 11, MiB(5), 2);
	w->deferred_meanwhile = n;
	assert_int_equal(engine_cluster_round(n->rig->e), 0);
	assert_null(w->deferred_meanwhile);
	assert_true(was_offered(n));
	assert_int_equal(n->nr_wanted, 1);
	world_commit(w, 1);
	assert_false(was_offered(n));
	assert_int_equal(n->nr_announced, MiB(6) / 4096); /* the frame that was not full, too */
	rig_check(n->rig, 12, MiB(6), 3);
	w->open = false;
	rig_crash(n->rig);
	rig_check(n->rig, 12, MiB(6), 3);
	rig_fsck(n->rig);
}

/* Each node writes pages of its own, twice: the next commit begins with a probe that is to confirm it. */
static void back_off_twice(struct world *w, unsigned nr)
{
	for (uint64_t ino = 10; ino < 12; ino++) {
		for (unsigned i = 0; i < nr; i++)
			rig_write(w->nodes[i].rig, ino, MiB(5), OWN + ino * NODES + i);
		world_commit(w, nr);
	}
}

static void behind_a_probe_that_is_to_confirm_it_nothing_is_deferred(void **state)
{
	struct world *w = *state;
	struct world_node *n = &w->nodes[0];

	back_off_twice(w, 1);
	n->nr_wanted = n->nr_announced = 0;
	assert_true(was_offered(n));
	rig_write(n->rig, 12, MiB(5), 1);
	assert_int_equal(n->nr_wanted, 1);
	rig_write(n->rig, 13, MiB(7), 2); /* not decided yet */
	assert_int_equal(engine_cluster_round(n->rig->e), 0);
	assert_true(was_offered(n));
	rig_write(n->rig, 14, MiB(3), 3);
	assert_int_equal(n->nr_wanted, 1);
	assert_false(engine_cluster_pending(n->rig->e));
	world_commit(w, 1);
	assert_int_equal(n->result, 0);
	assert_false(was_offered(n));
	assert_in_range(n->nr_announced, MiB(7 + 3) / 4096, MiB(7 + 3 + 1) / 4096); /* and what was not a frame yet */
	w->open = false;
	rig_crash(n->rig);
	for (uint64_t ino = 12; ino <= 14; ino++)
		rig_check(n->rig, ino, (const size_t[]){ MiB(5), MiB(7), MiB(3) }[ino - 12], ino - 11);
	rig_fsck(n->rig);
}

/* What comes until it is known is stored by each of them, once. */
static void a_probe_that_is_to_confirm_it_may_find_peers(void **state)
{
	struct world *w = *state;
	uint64_t before;

	back_off_twice(w, 2);
	before = world_stored_by_all(w);
	for (unsigned i = 0; i < 2; i++) {
		w->nodes[i].nr_announced = 0;
		rig_write(w->nodes[i].rig, 12, MiB(4) + 4096, 1);
		rig_write(w->nodes[i].rig, 13, MiB(7), 2);
	}
	round_of_two(w);
	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 14, MiB(6), 3);
	world_commit(w, 2);
	assert_int_equal(world_stored_by_all(w) - before, MiB(4) + 4096 + 2 * MiB(7) + MiB(6));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(w->nodes[i].nr_announced, MiB(7) / 4096);
	w->open = false;
}

static void where_nothing_was_in_common_for_long_nothing_is_deferred(void **state)
{
	struct world *w = *state;
	struct world_node *n = &w->nodes[0];
	unsigned ino = 10;

	for (; ino < 13; ino++) { /* BACKOFF_AFTER */
		rig_write(n->rig, ino, MiB(5), ino);
		world_commit(w, 1);
		assert_true(was_offered(n));
	}
	n->nr_wanted = n->nr_announced = 0;
	rig_write(n->rig, ino, MiB(5), ino);
	assert_int_equal(n->nr_wanted, 0);
	assert_false(engine_cluster_pending(n->rig->e));
	world_commit(w, 1);
	assert_false(was_offered(n));
	assert_int_equal(n->nr_announced, MiB(5) / 4096);
	engine_cluster_peers_changed(n->rig->e); /* other nodes */
	ino++;
	rig_write(n->rig, ino, MiB(5), ino);
	world_commit(w, 1);
	assert_true(was_offered(n));
	w->open = false;
	rig_crash(n->rig);
	for (; ino >= 10; ino--)
		rig_check(n->rig, ino, MiB(5), ino);
	rig_fsck(n->rig);
}

static void what_peers_have_after_all_is_deferred_again(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 10, MiB(5), OWN + i);
	world_commit(w, 2);
	for (unsigned i = 0; i < 2; i++) {
		rig_write(w->nodes[i].rig, 11, MiB(6), 1);
		assert_int_equal(w->nodes[i].nr_wanted, 1);
	}
	round_of_two(w);
	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 12, MiB(6), 2);
	world_commit(w, 2);
	assert_int_equal(world_stored_by_all(w), 2 * MiB(5) + 2 * MiB(6));
	assert_int_equal(w->nodes[0].nr_announced + w->nodes[1].nr_announced, 0);
	w->open = false;
}

static void what_peers_have_reported_too_is_deferred_the_next_time(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 10, MiB(5), OWN + i);
	world_commit(w, 2);
	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 11, MiB(5), OWN + 2 + i);
	round_of_two(w);
	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 12, MiB(3), 1); /* by both: none has asked */
	world_commit(w, 2);
	assert_int_equal(world_stored_by_all(w), 2 * MiB(5 + 5 + 3));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(w->nodes[i].nr_announced, MiB(3) / 4096);
		engine_cluster_is_shared(w->nodes[i].rig->e);
		w->nodes[i].nr_wanted = 0;
		rig_write(w->nodes[i].rig, 13, MiB(6), OWN + 4 + i);
		assert_int_equal(w->nodes[i].nr_wanted, 0);
		rig_write(w->nodes[i].rig, 14, MiB(6), 2);
	}
	world_commit(w, 2);
	assert_int_equal(world_stored_by_all(w), 2 * MiB(5 + 5 + 3 + 6) + MiB(6));
	w->open = false;
}

static void no_round_is_wanted_early_where_much_is_in_common(void **state)
{
	struct world *w = *state;

	world_write_all(w, 10, MiB(1), 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	for (unsigned i = 0; i < NODES; i++) {
		rig_write(w->nodes[i].rig, 11, MiB(20), 100 + i);
		assert_int_equal(w->nodes[i].nr_wanted, 0);
	}
	world_commit(w, NODES);
	for (unsigned i = 0; i < NODES; i++) {
		rig_write(w->nodes[i].rig, 12, MiB(20), 200 + i);
		assert_int_equal(w->nodes[i].nr_wanted, 1);
	}
	w->open = false;
}

static void chunks_cut_by_content_are_shared_too(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < NODES; i++) {
		rig_close(w->nodes[i].rig);
		w->nodes[i].rig->conf.chunking = CHUNKING_CDC;
		rig_open(w->nodes[i].rig);
	}
	world_write_all(w, 10, MiB(3) + 777, 1);
	world_commit(w, NODES);
	world_assert_committed(w);
	assert_int_equal(world_stored_by_all(w), MiB(3) + 777);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(3) + 777, 1);
		rig_fsck(w->nodes[i].rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(what_all_have_is_stored_once),
		world_test(a_file_like_one_that_is_remote_costs_nothing),
		world_test(a_file_like_one_that_lost_nodes_have_is_stored),
		world_test(a_file_like_one_that_lost_nodes_have_too_is_stored),
		world_test(a_file_like_one_that_is_remote_is_stored_while_no_agent_is_there),
		world_test(a_file_like_one_that_is_remote_is_stored_before_an_agent_comes),
		world_test(as_many_nodes_have_it_as_is_asked_for),
		world_test(what_cannot_be_had_is_an_error_until_it_can),
		world_test(without_a_decision_all_is_stored),
		world_test(no_node_relies_on_one_that_has_not_stored),
		world_test(a_node_that_does_not_receive_the_end_stores_all),
		world_test(a_crash_in_the_middle_leaves_what_was_there_before),
		world_test(a_new_index_knows_it_all),
		world_test(past_the_limit_it_is_stored_here),
		world_test(a_round_is_wanted_early_where_little_is_in_common),
		world_test(where_nothing_is_in_common_only_the_first_frames_are_deferred),
		world_test(what_comes_while_the_first_frames_are_decided_about_goes_with_them),
		world_test(behind_a_probe_that_is_to_confirm_it_nothing_is_deferred),
		world_test(a_probe_that_is_to_confirm_it_may_find_peers),
		world_test(where_nothing_was_in_common_for_long_nothing_is_deferred),
		world_test(what_peers_have_after_all_is_deferred_again),
		world_test(what_peers_have_reported_too_is_deferred_the_next_time),
		world_test(no_round_is_wanted_early_where_much_is_in_common),
		world_test(chunks_cut_by_content_are_shared_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
