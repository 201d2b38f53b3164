/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/world.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/place.h"

/* --- what is between the nodes --- */

/* All nodes of the round come here; the last one does what is to be done. False: not all have come in time. */
static bool rendezvous(struct world *w, void (*last)(struct world *w))
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

static bool holds(const struct world_node *n, struct fp fp)
{
	for (size_t i = 0; i < n->nr_offered; i++)
		if (fp_equal(n->offer[i], fp))
			return true;
	return false;
}

static void own(struct world *w, struct fp fp, size_t index, struct world_node *n)
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
	for (struct world_node *n = w->nodes; n < w->nodes + NODES; n++) {
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
	return ((struct world_node *)node)->w->open;
}

static int decide(void *node, const struct fp *offer, size_t nr, struct cluster_decision *ret)
{
	struct world_node *n = node;

	for (size_t i = 1; i < nr; i++)
		assert_true(fp_compare(offer[i - 1], offer[i]) < 0);
	if (n->w->fail_decide)
		return -ETIMEDOUT;
	n->offer = offer;
	n->nr_offered = nr;
	if (n->w->deferred_meanwhile == n) {
		n->w->deferred_meanwhile = NULL;
		rig_write(n->rig, 12, MiB(6), 3);
	}
	if (!rendezvous(n->w, decide_all))
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
	struct world_node *n = node;
	struct world *w = n->w;

	if (w->before_settle)
		w->before_settle(n);
	n->stored = w->fail_store == (int)n->number + 1 ? -ENOSPC : stored;
	if (!rendezvous(w, nothing) || w->fail_settle)
		return -ETIMEDOUT;
	for (unsigned i = 0; has_stored && i < d->nr_nodes; i++)
		has_stored[i] = w->nodes[i].stored == 0;
	return 0;
}

static int fetch(void *node, struct cluster_want *wants, size_t nr)
{
	struct world *w = ((struct world_node *)node)->w;

	for (size_t i = 0; i < nr; i++)
		for (unsigned k = 0; k < wants[i].nr_owners && !wants[i].got; k++)
			for (unsigned n = w->nr_remote; n < NODES; n++)
				if (memcmp(engine_store_id(w->nodes[n].rig->e), wants[i].owners[k], CLUSTER_ID_LEN) == 0)
					assert_int_equal(engine_cluster_chunks(w->nodes[n].rig->e, &wants[i], 1), 0);
	return 0;
}

static void want(void *node)
{
	((struct world_node *)node)->nr_wanted++;
}

static void announced(void *node, const struct fp *fps, size_t nr, bool has_time _unused_)
{
	struct world_node *n = node;

	for (size_t i = 0; i < nr; i++)
		assert_false(fp_equal(fps[i], FP_NONE));
	n->nr_announced += nr;
}

/* --- the nodes --- */

void world_present(struct world *w, unsigned node)
{
	struct cluster_node all[NODES] = { 0 };

	for (unsigned i = 0; i < NODES; i++)
		memcpy(all[i].id, engine_store_id(w->nodes[i].rig->e), sizeof(all[i].id));
	engine_cluster_present(w->nodes[node].rig->e, all, NODES);
}

int world_setup(void **state)
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
		struct world_node *n = &w->nodes[i];
		struct rig *rig = n->rig = calloc(1, sizeof(*rig));

		n->w = w;
		n->number = i;
		w->calls[i] = (struct cluster_calls){ n, is_there, decide, settle, fetch, want, announced };
		snprintf(rig->path, sizeof(rig->path), "%s/ckptfs-unit-XXXXXX", test_place());
		if (!mkdtemp(rig->path))
			return -1;
		rig->conf = (struct engine_conf){
			.page = 4096, .cache = MiB(16), .dirty = MiB(16), .pack_bytes = MiB(1), .cluster = w->keyfile,
			.cluster_calls = &w->calls[i],
		};
		rig_open(rig);
	}
	for (unsigned i = 0; i < NODES; i++)
		world_present(w, i);
	*state = w;
	return 0;
}

int world_teardown(void **state)
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
	struct world_node *n = node;

	n->result = engine_sync(n->rig->e);
	return NULL;
}

void world_commit(struct world *w, unsigned nr)
{
	w->nr_in_round = nr;
	for (unsigned i = nr; i < NODES; i++)
		w->nodes[i].nr_offered = 0;
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(pthread_create(&w->nodes[i].thread, NULL, sync_node, &w->nodes[i]), 0);
	for (unsigned i = 0; i < nr; i++)
		pthread_join(w->nodes[i].thread, NULL);
}

void world_assert_committed(struct world *w)
{
	for (unsigned i = 0; i < NODES; i++)
		assert_int_equal(w->nodes[i].result, 0);
}

void world_write_all(struct world *w, uint64_t ino, size_t len, uint64_t seed)
{
	for (unsigned i = 0; i < NODES; i++)
		rig_write(w->nodes[i].rig, ino, len, seed);
}

void world_check_all(struct world *w, uint64_t ino, size_t len, uint64_t seed)
{
	for (unsigned i = 0; i < NODES; i++)
		rig_check(w->nodes[i].rig, ino, len, seed);
}

void world_rebuild_all(struct world *w)
{
	for (unsigned i = 0; i < NODES; i++) {
		struct rig *rig = w->nodes[i].rig;

		rig_close(rig);
		rig_remove_index(rig);
		assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
		rig_open(rig);
	}
}

uint64_t world_stored(struct world *w, unsigned node)
{
	struct engine_stats s;

	engine_stats(w->nodes[node].rig->e, &s);
	return s.stored_bytes;
}

uint64_t world_stored_by_all(struct world *w)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < NODES; i++)
		sum += world_stored(w, i);
	return sum;
}
