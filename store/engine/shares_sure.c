/*
 * May what is written now rely on a chunk that is elsewhere? Not in two cases; then it is stored once more, and who
 * reads the old one finds the new one here, too (shares.c, look_here()).
 *
 * It is with a node that does not take part. It may come back with it, or not at all: nobody here knows. That others
 * have it, too, makes no difference: they are fewer than replicas= says, and the next loss could be theirs. Without an
 * agent nobody takes part. Who did the last time may have been lost since; and a file that is written now can be read
 * now, also if no agent ever comes.
 *
 * It is there on the word of a catalog (keep.c, refer()), as what a copy of another node's directory consists of. That
 * copy is right for as long as the directory is there, or what it has is lent, which is asked for when it is made and
 * may fail. A file of this node has to be right for longer, and after the loss of one node as well.
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

/* What is noted of that frame. 1/0/<0 */
static int look_up(struct engine *e, uint32_t pack, uint32_t frame, struct shares_look *look)
{
	if (look->pack != pack || look->frame != frame) {
		look->pack = pack;
		look->frame = frame;
		look->found = share_get(e->db, pack, frame, &look->note);
	}
	return look->found;
}

bool shares_any_unsure(struct engine *e)
{
	return atomic_load(&e->shares.any) && (!atomic_load(&e->shares.has_world) || atomic_load(&e->shares.any_lost) ||
					       atomic_load(&e->shares.any_told));
}

bool shares_is_sure(struct engine *e, struct addr a, struct shares_look *look)
{
	const struct share_owners *o;
	uint32_t frame, number;
	int r;

	if (!shares_any_unsure(e) || packs_away_number(e->packs, a, &frame, &number) <= 0)
		return true;
	if (!atomic_load(&e->shares.has_world))
		return false;
	r = look_up(e, a.pack, frame, look);
	if (r <= 0)
		return r == 0;
	o = &look->note.owners[number];
	for (unsigned i = 0; i < o->nr; i++)
		if (is_lost(e, o->node[i]))
			return false;
	return !look->note.told;
}
