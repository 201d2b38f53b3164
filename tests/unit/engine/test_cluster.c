/*
 * Several stores of one cluster in one process. The rounds are the real ones of the engine; what is between the nodes
 * is a barrier here, and who stores what is decided by the least load.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "index/db.h"
#include "index/shares.h"
#include "store/engine/cluster.h"
#include "store/engine/engine_internal.h"
#include "tests/unit/engine/damage.h"
#include "tests/unit/engine/rig.h"
#include "tests/unit/place.h"

#define NODES 4u
#define OWN 100 /* seeds of what only one node has */

struct world;

struct node {
	struct world *w;
	struct rig *rig;
	unsigned number;
	pthread_t thread;
	int result;

	/* of the round */
	const struct fp *offer;
	size_t nr_offered;
	struct cluster_decision d;
	int stored;
	uint64_t load;
	unsigned nr_wanted; /* rounds, before a commit */
	size_t nr_told; /* pages that no round was about */
	bool takes_none; /* others store what it has in common with them */
};

struct world {
	struct node nodes[NODES];
	char keyfile[64];
	struct cluster_calls calls[NODES];
	bool open; /* there are rounds */
	unsigned replicas;
	bool fail_decide, fail_settle; /* nobody hears of it */
	int fail_store; /* the node that has not stored what it was to, less 1 */
	unsigned nr_away; /* the first nodes cannot be reached */
	void (*before_settle)(struct node *n);
	struct node *held_meanwhile; /* writes something while it is decided; NULL: nobody does */

	pthread_mutex_t lock;
	pthread_cond_t cond;
	unsigned nr_in_round, nr_arrived, generation;
};

/* All nodes of the round come here; the last one does what is to be done. False: not all have come in time. */
static bool meet(struct world *w, void (*last)(struct world *w))
{
	struct timespec until;
	unsigned generation;
	bool all = true;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 100;
	pthread_mutex_lock(&w->lock);
	generation = w->generation;
	if (++w->nr_arrived == w->nr_in_round) {
		w->nr_arrived = 0;
		w->generation++;
		last(w);
		pthread_cond_broadcast(&w->cond);
	} else {
		while (generation == w->generation && all)
			all = pthread_cond_timedwait(&w->cond, &w->lock, &until) == 0;
	}
	pthread_mutex_unlock(&w->lock);
	return all;
}

static bool holds(const struct node *n, struct fp fp)
{
	for (size_t i = 0; i < n->nr_offered; i++)
		if (fp_equal(n->offer[i], fp))
			return true;
	return false;
}

static void own(struct world *w, struct fp fp, size_t index, struct node *n)
{
	struct cluster_owners o = { .index = (uint32_t)index };
	bool chosen[NODES] = { false };
	unsigned nr_holders = 0;

	for (unsigned i = 0; i < NODES; i++)
		nr_holders += holds(&w->nodes[i], fp);
	if (nr_holders < 2)
		return;
	for (unsigned k = 0; k < MIN(w->replicas, nr_holders); k++) {
		unsigned best = (unsigned)(fp.lo % NODES);

		for (unsigned i = 0; i < NODES; i++) /* by chance: all nodes come to the same, in whatever order */
			if (!chosen[(best + i) % NODES] && holds(&w->nodes[(best + i) % NODES], fp) &&
			    !w->nodes[(best + i) % NODES].takes_none) {
				best = (best + i) % NODES;
				break;
			}
		chosen[best] = true;
	}
	for (unsigned i = 0; i < NODES; i++)
		if (chosen[i])
			o.owners[o.nr++] = (uint16_t)i;
	n->d.owners[n->d.nr++] = o;
}

static void decide_all(struct world *w)
{
	for (struct node *n = w->nodes; n < w->nodes + NODES; n++) {
		cluster_decision_release(&n->d);
		n->d.self = n->number;
		n->d.nr_nodes = NODES;
		n->d.nodes = calloc(NODES, sizeof(*n->d.nodes));
		n->d.owners = calloc(n->nr_offered + 1, sizeof(*n->d.owners));
		for (unsigned i = 0; i < NODES; i++) {
			memcpy(n->d.nodes[i].id, engine_store_id(w->nodes[i].rig->e), CLUSTER_ID_LEN);
			snprintf(n->d.nodes[i].name, sizeof(n->d.nodes[i].name), "node%u", i);
		}
		for (size_t i = 0; i < n->nr_offered; i++)
			own(w, n->offer[i], i, n);
	}
}

static bool is_there(void *node)
{
	return ((struct node *)node)->w->open;
}

static int decide(void *node, const struct fp *offer, size_t nr, struct cluster_decision *ret)
{
	struct node *n = node;

	for (size_t i = 1; i < nr; i++)
		assert_true(fp_compare(offer[i - 1], offer[i]) < 0);
	if (n->w->fail_decide)
		return -ETIMEDOUT;
	n->offer = offer;
	n->nr_offered = nr;
	if (n->w->held_meanwhile == n) {
		n->w->held_meanwhile = NULL;
		rig_write(n->rig, 12, MiB(6), 3);
	}
	if (!meet(n->w, decide_all))
		return -ETIMEDOUT;
	*ret = n->d;
	n->d = (struct cluster_decision){ 0 };
	return 0;
}

static void nothing(struct world *w)
{
	(void)w;
}

static int settle(void *node, const struct cluster_decision *d, int stored, bool *has_stored)
{
	struct node *n = node;
	struct world *w = n->w;

	if (w->before_settle)
		w->before_settle(n);
	n->stored = w->fail_store == (int)n->number + 1 ? -ENOSPC : stored;
	if (!meet(w, nothing) || w->fail_settle)
		return -ETIMEDOUT;
	for (unsigned i = 0; has_stored && i < d->nr_nodes; i++)
		has_stored[i] = w->nodes[i].stored == 0;
	return 0;
}

static int fetch(void *node, struct cluster_want *wants, size_t nr)
{
	struct world *w = ((struct node *)node)->w;

	for (size_t i = 0; i < nr; i++)
		for (unsigned k = 0; k < wants[i].nr_owners && !wants[i].got; k++)
			for (unsigned n = w->nr_away; n < NODES; n++)
				if (memcmp(engine_store_id(w->nodes[n].rig->e), wants[i].owners[k], CLUSTER_ID_LEN) == 0)
					wants[i].got = engine_cluster_chunk(w->nodes[n].rig->e, wants[i].fp,
									    wants[i].len, wants[i].buf) > 0;
	return 0;
}

static void want(void *node)
{
	((struct node *)node)->nr_wanted++;
}

static void told(void *node, const struct fp *fps, size_t nr)
{
	struct node *n = node;

	for (size_t i = 0; i < nr; i++)
		assert_false(fp_equal(fps[i], FP_NONE));
	n->nr_told += nr;
}

/* --- */

static int set_up(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	uint8_t key[32] = { 7 };
	int fd;

	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->cond, NULL);
	w->replicas = 1;
	w->open = true;
	snprintf(w->keyfile, sizeof(w->keyfile), "/tmp/ckptfs-unit-key-XXXXXX");
	fd = mkstemp(w->keyfile);
	if (fd < 0 || write(fd, key, sizeof(key)) != sizeof(key))
		return -1;
	close(fd);
	for (unsigned i = 0; i < NODES; i++) {
		struct node *n = &w->nodes[i];
		struct rig *rig = n->rig = calloc(1, sizeof(*rig));

		n->w = w;
		n->number = i;
		w->calls[i] = (struct cluster_calls){ n, is_there, decide, settle, fetch, want, told };
		snprintf(rig->path, sizeof(rig->path), "%s/ckptfs-unit-XXXXXX", test_place());
		if (!mkdtemp(rig->path))
			return -1;
		rig->conf = (struct engine_conf){
			.page = 4096, .cache = MiB(16), .dirty = MiB(16), .pack_bytes = MiB(1), .cluster = w->keyfile,
			.cluster_calls = &w->calls[i],
		};
		rig_open(rig);
	}
	*state = w;
	return 0;
}

static int tear_down(void **state)
{
	struct world *w = *state;

	w->open = false;
	for (unsigned i = 0; i < NODES; i++) {
		void *rig = w->nodes[i].rig;

		cluster_decision_release(&w->nodes[i].d);
		rig_teardown(&rig);
	}
	unlink(w->keyfile);
	free(w);
	return 0;
}

static void *sync_node(void *node)
{
	struct node *n = node;

	n->result = engine_sync(n->rig->e);
	return NULL;
}

/* A commit of the first `nr` nodes, together. */
static void commit(struct world *w, unsigned nr)
{
	w->nr_in_round = nr;
	for (unsigned i = nr; i < NODES; i++)
		w->nodes[i].nr_offered = 0;
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(pthread_create(&w->nodes[i].thread, NULL, sync_node, &w->nodes[i]), 0);
	for (unsigned i = 0; i < nr; i++)
		pthread_join(w->nodes[i].thread, NULL);
}

static void write_all(struct world *w, uint64_t ino, size_t len, uint64_t seed)
{
	for (unsigned i = 0; i < NODES; i++)
		rig_write(w->nodes[i].rig, ino, len, seed);
}

static void check_all(struct world *w, uint64_t ino, size_t len, uint64_t seed)
{
	for (unsigned i = 0; i < NODES; i++)
		rig_check(w->nodes[i].rig, ino, len, seed);
}

static uint64_t stored(struct world *w, unsigned node)
{
	struct engine_stats s;

	engine_stats(w->nodes[node].rig->e, &s);
	return s.stored_bytes;
}

static uint64_t stored_by_all(struct world *w)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < NODES; i++)
		sum += stored(w, i);
	return sum;
}

static void assert_committed(struct world *w)
{
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(w->nodes[i].result, 0);
}

static void what_all_have_is_stored_once(void **state)
{
	struct world *w = *state;

	write_all(w, 10, MiB(6), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_write(w->nodes[i].rig, 11, MiB(1), OWN + i);
	commit(w, NODES);
	assert_committed(w);
	assert_int_equal(stored_by_all(w), MiB(6) + NODES * MiB(1));
	for (unsigned i = 0; i < NODES; i++) {
		assert_in_range(stored(w, i), MiB(1) + MiB(6) / NODES * 8 / 10, MiB(1) + MiB(6) / NODES * 12 / 10);
		rig_check(w->nodes[i].rig, 10, MiB(6), 1);
		rig_check(w->nodes[i].rig, 11, MiB(1), OWN + i);
	}
	for (unsigned i = 0; i < NODES; i++) {
		rig_reopen(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(6), 1);
	}
}

static void a_file_like_one_that_is_elsewhere_costs_nothing(void **state)
{
	struct world *w = *state;
	uint64_t before;

	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	before = stored_by_all(w);
	w->open = false;
	write_all(w, 20, MiB(3), 1);
	commit(w, NODES);
	assert_int_equal(stored_by_all(w), before);
	check_all(w, 20, MiB(3), 1);
}

static void as_many_nodes_have_it_as_is_asked_for(void **state)
{
	struct world *w = *state;

	w->replicas = 2;
	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	assert_committed(w);
	assert_int_equal(stored_by_all(w), 2 * MiB(3));
	w->nr_away = 1;
	for (unsigned i = 1; i < NODES; i++)
		rig_check(w->nodes[i].rig, 10, MiB(3), 1);
}

static void what_cannot_be_had_is_an_error_until_it_can(void **state)
{
	struct world *w = *state;
	struct content *c;
	uint8_t *p = malloc(MiB(3));

	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	w->nr_away = NODES;
	c = rig_content(w->nodes[0].rig, 10);
	assert_int_equal(content_read(c, p, MiB(3), 0), -EIO);
	content_close(c);
	w->nr_away = 0;
	check_all(w, 10, MiB(3), 1);
	free(p);
}

static void without_a_decision_all_is_stored(void **state)
{
	struct world *w = *state;

	w->fail_decide = true;
	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	assert_committed(w);
	assert_int_equal(stored_by_all(w), NODES * MiB(3));
	check_all(w, 10, MiB(3), 1);
}

static void nobody_relies_on_a_node_that_has_not_stored(void **state)
{
	struct world *w = *state;

	w->fail_store = 2;
	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	assert_committed(w);
	assert_true(stored_by_all(w) > MiB(3) * 3 / 2);
	w->nr_away = 2; /* what the second had to store all have */
	for (unsigned i = 0; i < NODES; i++) {
		struct engine_stats s;

		engine_stats(w->nodes[i].rig->e, &s);
		assert_true(s.elsewhere_bytes < MiB(3));
	}
	w->nr_away = 0;
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(3), 1);
	}
}

static void who_does_not_hear_the_end_stores_all(void **state)
{
	struct world *w = *state;

	w->fail_settle = true;
	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	assert_committed(w);
	assert_int_equal(stored_by_all(w), NODES * MiB(3));
	w->nr_away = NODES;
	check_all(w, 10, MiB(3), 1);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(3), 1);
		rig_fsck(w->nodes[i].rig);
	}
}

static void copy_store(struct node *n)
{
	rig_copy_as_it_is(n->rig);
}

/* A crash when this node has said that it has stored, and before it knows that others have. */
static void a_crash_in_the_middle_leaves_what_was_there_before(void **state)
{
	struct world *w = *state;

	write_all(w, 10, MiB(2), 1);
	commit(w, NODES);
	write_all(w, 11, MiB(2), 2);
	w->before_settle = copy_store;
	commit(w, NODES);
	assert_committed(w);
	w->before_settle = NULL;
	w->open = false;
	for (unsigned i = 0; i < NODES; i++) {
		rig_close_to_copy(w->nodes[i].rig);
		rig_open(w->nodes[i].rig);
	}
	check_all(w, 10, MiB(2), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_check_absent(w->nodes[i].rig, 11);
	/* What was to be elsewhere is not taken for known. */
	write_all(w, 12, MiB(2), 2);
	commit(w, NODES);
	check_all(w, 12, MiB(2), 2);
	for (unsigned i = 0; i < NODES; i++) {
		w->nr_away = NODES;
		rig_check(w->nodes[i].rig, 12, MiB(2), 2);
		w->nr_away = 0;
		rig_fsck(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 12, MiB(2), 2);
		rig_check(w->nodes[i].rig, 10, MiB(2), 1);
	}
}

static void what_is_lent_is_not_collected(void **state)
{
	const struct gc_conf conf = { .delete = true, .move_below = 90, .place = true };
	struct world *w = *state;

	write_all(w, 10, MiB(3), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_write(w->nodes[i].rig, 11, MiB(1), OWN + i);
	commit(w, NODES);
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
	assert_true(stored_by_all(w) <= MiB(3) + MiB(1));
}

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

static void sum_shared(struct world *w, uint64_t *ret_away, uint64_t *ret_lent)
{
	*ret_away = *ret_lent = 0;
	for (unsigned i = 0; i < NODES; i++) {
		struct engine_stats s;

		engine_stats(w->nodes[i].rig->e, &s);
		*ret_away += s.elsewhere_bytes;
		*ret_lent += s.lent_bytes;
	}
}

static void assert_shared(struct world *w, uint64_t away, uint64_t lent)
{
	uint64_t is_away, is_lent;

	sum_shared(w, &is_away, &is_lent);
	assert_int_equal(is_away, away);
	assert_int_equal(is_lent, lent);
}

static void what_is_given_up_is_not_counted_as_elsewhere(void **state)
{
	const struct gc_conf conf = { .delete = true };
	struct world *w = *state;

	write_all(w, 10, MiB(3), 1);
	write_all(w, 11, MiB(2), 2);
	commit(w, NODES);
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
	check_all(w, 11, MiB(2), 2);
	for (unsigned i = 0; i < NODES; i++) {
		rig_drop(w->nodes[i].rig, 11);
		rig_collect(w->nodes[i].rig, &conf);
		rig_fsck(w->nodes[i].rig);
	}
	assert_shared(w, 0, MiB(5));
	for (unsigned i = 0; i < NODES; i++) {
		struct rig *rig = w->nodes[i].rig;

		rig_close(rig);
		rig_remove_index(rig);
		assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
		rig_open(rig);
	}
	assert_shared(w, 0, MiB(5));
}

static void notes_go_with_what_they_are_about(void **state)
{
	const struct gc_conf conf = { .delete = true };
	struct world *w = *state;

	/* The first one has it all from the others, and has lent nothing. */
	w->nodes[0].takes_none = true;
	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
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
	w->nr_away = NODES;
	rig_check(w->nodes[0].rig, 12, MiB(3), 1);
	rig_fsck(w->nodes[0].rig);
}

static void a_new_index_knows_it_all(void **state)
{
	struct world *w = *state;

	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	w->open = false;
	for (unsigned i = 0; i < NODES; i++) {
		struct rig *rig = w->nodes[i].rig;

		rig_close(rig);
		rig_remove_index(rig);
		assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
		rig_open(rig);
	}
	check_all(w, 10, MiB(3), 1);
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
	write_all(w, 10, MiB(8), 1);
	commit(w, NODES);
	assert_committed(w);
	check_all(w, 10, MiB(8), 1);
	assert_int_equal(stored_by_all(w), NODES * MiB(8));
}

/* Nobody waits for it: what comes meanwhile is the next one's. */
static void a_round_is_wanted_early_where_little_is_in_common(void **state)
{
	struct world *w = *state;
	struct node *n = &w->nodes[0];

	rig_write(n->rig, 10, MiB(20), 1); /* nobody knows yet */
	assert_int_equal(n->nr_wanted, 0);
	rig_write(n->rig, 9, MiB(1), 9);
	rig_write(w->nodes[1].rig, 9, MiB(1), 9);
	w->nodes[0].takes_none = true;
	commit(w, 2);
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
	assert_int_equal(stored(w, 0), MiB(40));
	rig_write(n->rig, 14, MiB(20), 5);
	assert_int_equal(n->nr_wanted, 2);

	/* Only what was committed is there. */
	w->open = false;
	rig_crash(n->rig);
	rig_check(n->rig, 10, MiB(20), 1);
	rig_check_absent(n->rig, 11);
	rig_fsck(n->rig);
}

/* Two nodes go to a round that nobody waits for. */
static void *round_of_node(void *node)
{
	struct node *n = node;

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

static bool was_offered(struct node *n)
{
	bool yes = n->nr_offered != SIZE_MAX;

	n->nr_offered = SIZE_MAX;
	return yes;
}

static void where_nothing_is_in_common_only_the_first_frames_are_held(void **state)
{
	struct world *w = *state;
	struct node *n = &w->nodes[0];

	rig_write(n->rig, 10, MiB(5), 1);
	commit(w, 1);
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
	assert_int_equal(n->nr_told, 0);
	commit(w, 1);
	assert_int_equal(n->result, 0);
	assert_false(was_offered(n));
	assert_int_equal(n->nr_told, MiB(7) / 4096);

	/* The next commit begins as this one did. */
	rig_write(n->rig, 14, MiB(1), 5);
	assert_true(engine_cluster_pending(n->rig->e));
	commit(w, 1);
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
	struct node *n = &w->nodes[0];

	rig_write(n->rig, 10, MiB(5), 1);
	commit(w, 1);
	rig_write(n->rig, 11, MiB(5), 2);
	w->held_meanwhile = n;
	assert_int_equal(engine_cluster_round(n->rig->e), 0);
	assert_null(w->held_meanwhile);
	assert_true(was_offered(n));
	assert_int_equal(n->nr_wanted, 1);
	commit(w, 1);
	assert_false(was_offered(n));
	assert_int_equal(n->nr_told, MiB(6) / 4096); /* the frame that was not full, too */
	rig_check(n->rig, 12, MiB(6), 3);
	w->open = false;
	rig_crash(n->rig);
	rig_check(n->rig, 12, MiB(6), 3);
	rig_fsck(n->rig);
}

static void where_nothing_was_in_common_for_long_nothing_is_held(void **state)
{
	struct world *w = *state;
	struct node *n = &w->nodes[0];
	unsigned ino = 10;

	for (; ino < 13; ino++) { /* ALONE_RECORD */
		rig_write(n->rig, ino, MiB(5), ino);
		commit(w, 1);
		assert_true(was_offered(n));
	}
	n->nr_wanted = n->nr_told = 0;
	rig_write(n->rig, ino, MiB(5), ino);
	assert_int_equal(n->nr_wanted, 0);
	assert_false(engine_cluster_pending(n->rig->e));
	commit(w, 1);
	assert_false(was_offered(n));
	assert_int_equal(n->nr_told, MiB(5) / 4096);
	engine_cluster_met(n->rig->e); /* other nodes */
	ino++;
	rig_write(n->rig, ino, MiB(5), ino);
	commit(w, 1);
	assert_true(was_offered(n));
	w->open = false;
	rig_crash(n->rig);
	for (; ino >= 10; ino--)
		rig_check(n->rig, ino, MiB(5), ino);
	rig_fsck(n->rig);
}

static void what_others_have_after_all_is_held_again(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 10, MiB(5), OWN + i);
	commit(w, 2);
	for (unsigned i = 0; i < 2; i++) {
		rig_write(w->nodes[i].rig, 11, MiB(6), 1);
		assert_int_equal(w->nodes[i].nr_wanted, 1);
	}
	round_of_two(w);
	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 12, MiB(6), 2);
	commit(w, 2);
	assert_int_equal(stored_by_all(w), 2 * MiB(5) + 2 * MiB(6));
	assert_int_equal(w->nodes[0].nr_told + w->nodes[1].nr_told, 0);
	w->open = false;
}

static void what_others_have_told_too_is_held_the_next_time(void **state)
{
	struct world *w = *state;

	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 10, MiB(5), OWN + i);
	commit(w, 2);
	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 11, MiB(5), OWN + 2 + i);
	round_of_two(w);
	for (unsigned i = 0; i < 2; i++)
		rig_write(w->nodes[i].rig, 12, MiB(3), 1); /* by both: nobody has asked */
	commit(w, 2);
	assert_int_equal(stored_by_all(w), 2 * MiB(5 + 5 + 3));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(w->nodes[i].nr_told, MiB(3) / 4096);
		engine_cluster_is_shared(w->nodes[i].rig->e);
		w->nodes[i].nr_wanted = 0;
		rig_write(w->nodes[i].rig, 13, MiB(6), OWN + 4 + i);
		assert_int_equal(w->nodes[i].nr_wanted, 0);
		rig_write(w->nodes[i].rig, 14, MiB(6), 2);
	}
	commit(w, 2);
	assert_int_equal(stored_by_all(w), 2 * MiB(5 + 5 + 3 + 6) + MiB(6));
	w->open = false;
}

static void no_round_is_wanted_early_where_much_is_in_common(void **state)
{
	struct world *w = *state;

	write_all(w, 10, MiB(1), 1);
	commit(w, NODES);
	assert_committed(w);
	for (unsigned i = 0; i < NODES; i++) {
		rig_write(w->nodes[i].rig, 11, MiB(20), 100 + i);
		assert_int_equal(w->nodes[i].nr_wanted, 0);
	}
	commit(w, NODES);
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
	write_all(w, 10, MiB(3) + 777, 1);
	commit(w, NODES);
	assert_committed(w);
	assert_int_equal(stored_by_all(w), MiB(3) + 777);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_check(w->nodes[i].rig, 10, MiB(3) + 777, 1);
		rig_fsck(w->nodes[i].rig);
	}
}

/* --- chunks for others, and files of others' chunks --- */

#define PIECES 5000u

/* What `from` has of these, `to` has, too. */
static void keep(struct rig *from, struct rig *to, const struct cluster_piece *p, size_t nr)
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

static void refer(struct world *w, unsigned node, uint64_t ino, const struct cluster_piece *p, size_t nr)
{
	struct content *c = rig_content(w->nodes[node].rig, ino);
	struct cluster_node owner = { .name = "node1" };
	uint64_t off = 0;

	memcpy(owner.id, engine_store_id(w->nodes[1].rig->e), CLUSTER_ID_LEN);
	for (size_t i = 0, n; i < nr; i += n) {
		n = MIN(nr - i, (size_t)333);
		assert_int_equal(engine_cluster_refer(c, off, p + i, n, &owner), 0);
		for (size_t k = i; k < i + n; k++)
			off += p[k].len;
	}
	assert_int_equal(content_sync(c, NULL), 0);
	content_close(c);
}

static void a_file_can_be_had_when_its_node_is_lost(void **state)
{
	const struct gc_conf conf = { .delete = true, .move_below = 90, .place = true };
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
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
	w->nr_away = 1;
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);
	assert_true(stored(w, 2) < KiB(8));
	rig_crash(heir);
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);
	rig_collect(heir, &conf);
	rig_fsck(heir);
	rig_fsck(partner);
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);

	/* It can be changed like any other; and without the partner it cannot be read. */
	c = rig_content(heir, 20);
	assert_int_equal(content_write(c, "new", 3, KiB(500)), 0);
	assert_int_equal(content_sync(c, NULL), 0);
	memcpy(bytes + KiB(500), "new", 3);
	rig_check_bytes(heir, 20, bytes, MiB(3) + 123);
	w->nr_away = NODES;
	assert_int_equal(content_read(c, got, MiB(3), 0), -EIO);
	w->nr_away = 0;
	content_close(c);
	free(got);
	free(bytes);
	free(p);
}

/* Pages of a file, to where they lie one behind the other. All come but `missing` (SIZE_MAX: all). */
static void ask(struct rig *rig, const struct cluster_piece *p, const size_t *which, size_t nr, const uint8_t *bytes,
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
static void write_pieces(struct rig *rig, const uint8_t *bytes, struct cluster_piece *p, size_t all[WRITTEN])
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
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
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
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
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
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
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

static void assert_located(struct rig *rig, const struct cluster_piece *p, size_t nr, bool is_here,
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

static void what_was_elsewhere_can_be_kept_here(void **state)
{
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	struct rig *lost = w->nodes[0].rig, *partner = w->nodes[1].rig;
	size_t nr;

	for (unsigned i = 1; i < NODES; i++)
		w->nodes[i].takes_none = true;
	write_all(w, 10, MiB(1), 1);
	commit(w, NODES);
	assert_committed(w);
	nr = rig_pieces(partner, 10, p, PIECES);
	assert_true(nr > 0);
	assert_located(lost, p, nr, true, NULL);
	assert_located(partner, p, nr, false, lost);
	w->open = false;
	keep(lost, partner, p, nr);
	assert_located(partner, p, nr, true, NULL);
	w->nr_away = NODES;
	rig_check(partner, 10, MiB(1), 1); /* though that refers to what is elsewhere */
	for (int i = 0; i < 2; i++) {
		rig_crash(partner);
		assert_located(partner, p, nr, true, NULL);
		rig_check(partner, 10, MiB(1), 1);
	}
	w->nr_away = 0;
	assert_int_equal(stored(w, 1), MiB(1)); /* once, however often it is kept */
	rig_fsck(partner);
	free(p);
}

/* How many of a file's chunks a node lends. */
static size_t lend(struct rig *rig, const struct cluster_piece *p, size_t nr)
{
	struct fp *fps = calloc(nr, sizeof(*fps));
	bool *lent = calloc(nr, sizeof(*lent));
	size_t n = 0;

	for (size_t i = 0; i < nr; i++)
		fps[i] = p[i].fp;
	assert_int_equal(engine_cluster_lend(rig->e, fps, nr, lent), 0);
	for (size_t i = 0; i < nr; i++)
		n += lent[i];
	free(fps);
	free(lent);
	return n;
}

static void what_is_here_is_lent_when_it_is_asked_for(void **state)
{
	const struct gc_conf conf = { .delete = true, .move_below = 90, .place = true };
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
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
	assert_int_equal(lend(w->nodes[1].rig, p, nr), 0); /* it is not there */
	assert_int_equal(lend(rig, p, nr), nr);
	assert_int_equal(lend(rig, p, nr), nr);
	engine_stats(rig->e, &s);
	assert_int_equal(s.lent_bytes, MiB(3));
	rig_drop(rig, 10);
	rig_drop(rig, 11);
	rig_collect(rig, &conf);
	rig_crash(rig);
	rig_collect(rig, &conf);
	assert_int_equal(stored(w, 0), MiB(3));
	for (size_t i = 0; i < nr; i++)
		assert_int_equal(engine_cluster_chunk(rig->e, p[i].fp, p[i].chunk_len, bytes), 1);
	rig_fsck(rig);
	assert_int_equal(lend(rig, p, nr), nr);
	free(bytes);
	free(p);
}

static void what_is_not_durable_is_not_lent(void **state)
{
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
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
	assert_int_equal(lend(rig, p, nr), 0);
	assert_int_equal(engine_sync(rig->e), 0);
	assert_int_equal(lend(rig, p, nr), nr);
	free(p);
}

static struct cluster_piece *earlier;
static size_t nr_earlier;

/* Between a round's two notes. */
static void lend_in_the_middle(struct node *n)
{
	bool *lent = calloc(n->nr_offered, sizeof(*lent));

	if (n->number == 0)
		assert_int_equal(lend(n->rig, earlier, nr_earlier), nr_earlier);
	assert_int_equal(engine_cluster_lend(n->rig->e, n->offer, n->nr_offered, lent), 0);
	for (size_t i = 0; i < n->nr_offered; i++)
		assert_false(lent[i]);
	free(lent);
}

static void lending_does_not_wait_for_a_round(void **state)
{
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
	struct world *w = *state;
	size_t nr, sum = 0;

	earlier = calloc(PIECES, sizeof(*earlier));
	w->open = false;
	rig_write(w->nodes[0].rig, 9, MiB(1), 5);
	assert_int_equal(engine_sync(w->nodes[0].rig->e), 0);
	nr_earlier = rig_pieces(w->nodes[0].rig, 9, earlier, PIECES);
	w->open = true;
	write_all(w, 10, MiB(2), 1);
	w->before_settle = lend_in_the_middle;
	commit(w, NODES);
	w->before_settle = NULL;
	assert_committed(w);
	assert_int_equal(stored_by_all(w), MiB(2) + MiB(1));
	nr = rig_pieces(w->nodes[0].rig, 10, p, PIECES);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		sum += lend(w->nodes[i].rig, p, nr); /* who has it, and nobody else */
	}
	assert_int_equal(sum, nr);
	check_all(w, 10, MiB(2), 1);
	for (unsigned i = 0; i < NODES; i++)
		rig_fsck(w->nodes[i].rig);
	free(TAKE(earlier));
	free(p);
}

/* --- collecting together --- */

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

static struct cluster_unlent unlend_all(struct world *w, const struct cluster_window *win, const uint8_t *filter)
{
	struct cluster_unlent sum = { 0 }, u;

	for (unsigned i = 0; i < NODES; i++) {
		assert_int_equal(engine_cluster_unlend(w->nodes[i].rig->e, win, filter, FILTER, &u), 0);
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
static struct cluster_unlent collect_together(struct world *w, unsigned nr_windows)
{
	struct cluster_unlent sum = { 0 };

	collect_all(w);
	for (unsigned i = 0; i < nr_windows; i++) {
		const struct cluster_window win = { i, nr_windows, 77 + i };
		uint8_t *filter = calloc(1, FILTER);
		struct cluster_unlent u;

		mark_all(w, &win, filter);
		u = unlend_all(w, &win, filter);
		sum.kept_bytes += u.kept_bytes;
		sum.dropped_bytes += u.dropped_bytes;
		free(filter);
	}
	collect_all(w);
	return sum;
}

static void what_nobody_refers_to_is_given_up(void **state)
{
	struct world *w = *state;
	struct cluster_unlent u;

	w->replicas = 2;
	write_all(w, 10, MiB(3), 1);
	write_all(w, 11, MiB(1), 2);
	commit(w, NODES);
	w->open = false;
	u = collect_together(w, 3);
	assert_int_equal(u.kept_bytes, 2 * MiB(4));
	assert_int_equal(u.dropped_bytes, 0);
	for (unsigned i = 0; i < NODES - 1; i++)
		rig_drop(w->nodes[i].rig, 10);
	u = collect_together(w, 3);
	rig_check(w->nodes[NODES - 1].rig, 10, MiB(3), 1);
	check_all(w, 11, MiB(1), 2);
	/* What the last one has itself another may still have lent. */
	assert_true(u.dropped_bytes > 0 && u.kept_bytes >= 2 * MiB(1) + MiB(1));
	assert_int_equal(u.kept_bytes + u.dropped_bytes, 2 * MiB(4));
	rig_drop(w->nodes[NODES - 1].rig, 10);
	u = collect_together(w, 3);
	assert_int_equal(u.kept_bytes, 2 * MiB(1));
	assert_int_equal(stored_by_all(w), 2 * MiB(1));
	for (unsigned i = 0; i < NODES; i++)
		rig_crash(w->nodes[i].rig);
	assert_shared(w, 2 * MiB(1), 2 * MiB(1));
	check_all(w, 11, MiB(1), 2);
	for (unsigned i = 0; i < NODES; i++) {
		rig_drop(w->nodes[i].rig, 11);
		rig_fsck(w->nodes[i].rig);
	}
	collect_together(w, 1);
	assert_int_equal(stored_by_all(w), 0);
	assert_shared(w, 0, 0);
	for (unsigned i = 0; i < NODES; i++) {
		assert_int_equal(nr_notes(w->nodes[i].rig), 0);
		rig_fsck(w->nodes[i].rig);
	}
}

/* Also one that has nothing that others have: what it refers to is known to it alone. */
static void who_is_missing_is_known(void **state)
{
	struct cluster_node nodes[NODES], missing;
	struct world *w = *state;

	nodes_of(w, nodes);
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(engine_cluster_missing(w->nodes[i].rig->e, nodes, 0, &missing), 0);
	w->nodes[NODES - 1].takes_none = true;
	write_all(w, 10, MiB(1), 1);
	commit(w, NODES);
	w->open = false;
	for (unsigned i = 0; i < NODES - 1; i++) {
		rig_crash(w->nodes[i].rig);
		assert_int_equal(engine_cluster_missing(w->nodes[i].rig->e, nodes, NODES, &missing), 0);
		assert_int_equal(engine_cluster_missing(w->nodes[i].rig->e, nodes, NODES - 1, &missing), 1);
		assert_string_equal(missing.name, "node3");
	}
	memcpy(missing.id, "somebody met now", CLUSTER_ID_LEN);
	assert_int_equal(engine_cluster_meet(w->nodes[0].rig->e, &missing, 1), 0);
	rig_crash(w->nodes[0].rig);
	assert_int_equal(engine_cluster_missing(w->nodes[0].rig->e, nodes, NODES, &missing), 1);
	assert_memory_equal(missing.id, "somebody met now", CLUSTER_ID_LEN);
}

static void who_is_forgotten_is_not_missing_until_it_is_back(void **state)
{
	struct cluster_node nodes[NODES], missing;
	struct world *w = *state;
	struct rig *rig = w->nodes[0].rig;

	w->open = false;
	nodes_of(w, nodes);
	assert_int_equal(engine_cluster_forget(rig->e, nodes[1].name), -ENOENT);
	assert_int_equal(engine_cluster_meet(rig->e, nodes, NODES), 0);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 1);
	assert_int_equal(engine_cluster_forget(rig->e, nodes[NODES - 1].name), 0);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 0);
	rig_crash(rig);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 0);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 2, &missing), 1); /* another one is */
	assert_int_equal(engine_cluster_meet(rig->e, nodes, NODES), 0);
	rig_crash(rig);
	assert_int_equal(engine_cluster_missing(rig->e, nodes, NODES - 1, &missing), 1);
	rig_fsck(rig);
}

static void without_a_window_nothing_is_given_up(void **state)
{
	const struct cluster_window win = { 0, 1, 5 }, other = { 0, 1, 6 };
	uint8_t *filter = calloc(1, FILTER);
	struct world *w = *state;
	struct rig *rig = w->nodes[1].rig;
	struct cluster_unlent u;

	write_all(w, 10, MiB(1), 1);
	commit(w, NODES);
	w->open = false;
	for (unsigned i = 0; i < NODES; i++)
		rig_drop(w->nodes[i].rig, 10);
	collect_all(w);
	assert_int_equal(engine_cluster_unlend(rig->e, &win, filter, FILTER, &u), -ESTALE);
	mark_all(w, &win, filter);
	assert_int_equal(engine_cluster_unlend(rig->e, &other, filter, FILTER, &u), -ESTALE);
	rig_crash(rig); /* between mark and end */
	assert_int_equal(engine_cluster_unlend(rig->e, &win, filter, FILTER, &u), -ESTALE);
	assert_shared(w, 0, MiB(1));
	mark_all(w, &win, filter);
	engine_cluster_collected(rig->e);
	assert_int_equal(engine_cluster_unlend(rig->e, &win, filter, FILTER, &u), -ESTALE);
	assert_shared(w, 0, MiB(1));
	mark_all(w, &win, filter);
	assert_int_equal(engine_cluster_unlend(rig->e, &win, filter, FILTER, &u), 0);
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
	struct cluster_piece *p = calloc(PIECES, sizeof(*p));
	uint8_t page[4096];
	struct world *w = *state;
	struct cluster_chunk chunk;
	struct cluster_unlent u;

	write_all(w, 10, MiB(3), 1);
	commit(w, NODES);
	for (unsigned i = 0; i < NODES; i++)
		rig_drop(w->nodes[i].rig, 10);
	w->open = false;
	collect_all(w);
	mark_all(w, &win, filter);
	/* A round, of new pages and of those that are about to be given up: none of these is known any more to who had
	 * it elsewhere. */
	w->open = true;
	write_all(w, 11, MiB(2), 2);
	write_all(w, 12, MiB(1), 1);
	commit(w, NODES);
	assert_committed(w);
	w->open = false;
	/* Keeping and referring wait. */
	rig_pieces(w->nodes[0].rig, 11, p, PIECES);
	memset(page, 3, sizeof(page));
	chunk = (struct cluster_chunk){ fp_of(&w->nodes[0].rig->e->key, page, sizeof(page)), sizeof(page), page };
	assert_int_equal(engine_cluster_keep(w->nodes[0].rig->e, &chunk, 1), -EAGAIN);
	u = unlend_all(w, &win, filter);
	assert_true(u.dropped_bytes >= MiB(2));
	assert_int_equal(engine_cluster_keep(w->nodes[0].rig->e, &chunk, 1), 0);
	collect_all(w);
	check_all(w, 11, MiB(2), 2);
	check_all(w, 12, MiB(1), 1);
	for (unsigned i = 0; i < NODES; i++) {
		rig_crash(w->nodes[i].rig);
		rig_fsck(w->nodes[i].rig);
	}
	check_all(w, 11, MiB(2), 2);
	check_all(w, 12, MiB(1), 1);
	free(filter);
	free(p);
}

#define world_test(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		world_test(what_all_have_is_stored_once),
		world_test(a_file_like_one_that_is_elsewhere_costs_nothing),
		world_test(as_many_nodes_have_it_as_is_asked_for),
		world_test(what_cannot_be_had_is_an_error_until_it_can),
		world_test(without_a_decision_all_is_stored),
		world_test(nobody_relies_on_a_node_that_has_not_stored),
		world_test(who_does_not_hear_the_end_stores_all),
		world_test(a_crash_in_the_middle_leaves_what_was_there_before),
		world_test(what_is_lent_is_not_collected),
		world_test(what_is_given_up_is_not_counted_as_elsewhere),
		world_test(notes_go_with_what_they_are_about),
		world_test(a_new_index_knows_it_all),
		world_test(past_the_limit_it_is_stored_here),
		world_test(a_round_is_wanted_early_where_little_is_in_common),
		world_test(where_nothing_is_in_common_only_the_first_frames_are_held),
		world_test(what_comes_while_the_first_frames_are_decided_about_goes_with_them),
		world_test(where_nothing_was_in_common_for_long_nothing_is_held),
		world_test(what_others_have_after_all_is_held_again),
		world_test(what_others_have_told_too_is_held_the_next_time),
		world_test(no_round_is_wanted_early_where_much_is_in_common),
		world_test(chunks_cut_by_content_are_shared_too),
		world_test(chunks_are_given_in_whatever_order_they_are_asked_for),
		world_test(what_is_guessed_is_looked_at),
		world_test(one_that_is_damaged_is_not_given_and_its_neighbours_are),
		world_test(a_file_can_be_had_when_its_node_is_lost),
		world_test(what_was_elsewhere_can_be_kept_here),
		world_test(what_is_here_is_lent_when_it_is_asked_for),
		world_test(what_is_not_durable_is_not_lent),
		world_test(lending_does_not_wait_for_a_round),
		world_test(what_nobody_refers_to_is_given_up),
		world_test(who_is_missing_is_known),
		world_test(who_is_forgotten_is_not_missing_until_it_is_back),
		world_test(without_a_window_nothing_is_given_up),
		world_test(what_comes_while_nodes_collect_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
