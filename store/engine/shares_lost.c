/*
 * Nodes that do not take part, and what they have. It may come back with them, or not at all: nobody here knows. So a
 * chunk that is with such a node is no match for what is written now, which is stored once more, also if others have
 * it, too: they are fewer than replicas= says, and the next loss could be theirs. Who reads the old one finds the new
 * one here, too (shares.c, look_here()).
 *
 * Without an agent nobody takes part. Who did the last time may have been lost since; and a file that is written now
 * can be read now, also if no agent ever comes.
 */
#include <string.h>

#include "base/util.h"
#include "store/engine/cluster.h"
#include "store/engine/engine_internal.h"

static void set_lost(struct engine *e, uint32_t number, bool is_lost) REQUIRES(e->shares.lock)
{
	uint64_t bit = UINT64_C(1) << number % 64;

	if (is_lost) {
		atomic_fetch_or(&e->shares.lost[number / 64], bit);
		atomic_store(&e->shares.any_lost, true);
	} else {
		atomic_fetch_and(&e->shares.lost[number / 64], ~bit);
	}
}

void engine_cluster_present(struct engine *e, const struct cluster_node *here, size_t nr)
{
	mutex_lock(&e->shares.lock);
	atomic_store(&e->shares.has_world, false);
	atomic_store(&e->shares.any_lost, false);
	for (uint32_t i = 0; i < e->shares.totals.nr_nodes; i++) {
		const struct share_node *n = &e->shares.nodes[i];
		bool is_here = memcmp(n->id, e->dirs.sb.store_id, CLUSTER_ID_LEN) == 0;

		for (size_t k = 0; k < nr && !is_here; k++)
			is_here = memcmp(n->id, here[k].id, CLUSTER_ID_LEN) == 0;
		set_lost(e, i, !is_here);
	}
	atomic_store(&e->shares.has_world, nr > 0);
	mutex_unlock(&e->shares.lock);
}

static bool is_lost(struct engine *e, uint16_t number)
{
	return atomic_load(&e->shares.lost[number / 64]) >> number % 64 & 1;
}

bool shares_is_lost(struct engine *e, struct addr a)
{
	bool has_world = atomic_load(&e->shares.has_world);
	const struct share_owners *o;
	struct share_frame f;
	uint32_t frame, number;

	if (!atomic_load(&e->shares.any) || (has_world && !atomic_load(&e->shares.any_lost)) ||
	    packs_away_number(e->packs, a, &frame, &number) <= 0)
		return false;
	if (!has_world)
		return true;
	if (share_get(e->db, a.pack, frame, &f) <= 0 || !f.settled)
		return false;
	o = &f.owners[number];
	for (unsigned i = 0; i < o->nr; i++)
		if (is_lost(e, o->node[i]))
			return true;
	return false;
}
