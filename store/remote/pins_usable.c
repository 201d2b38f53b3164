/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Decides whether new data may refer to a remote chunk. In two cases it may not: the chunk is then stored again, and
 * reads of the old reference find the new copy here, too (pins.c, find_here()).
 *
 * 1. One of its owners does not take part in the cluster now. Whether it will return with the chunk is unknown. Other
 * owners make no difference: they are fewer than replicas= requires, and the next loss could hit them. Without an agent
 * no peer takes part: those that did last time may have been lost since, and a file written now must be readable even
 * if no agent ever starts again.
 *
 * 2. Its owner comes from a catalog (replica_chunks.c, refer()): the chunk belongs to a replica of another node's
 * directory. That replica is valid as long as the directory exists or its chunks are pinned; pinning is requested when
 * the replica is made, and may fail. A file of this node must stay valid for longer, and after the loss of one node.
 */
#include <string.h>

#include "base/util.h"
#include "store/remote/remote.h"

static void set_lost(struct engine *e, uint32_t number, bool is_lost) REQUIRES(e->shares->lock)
{
	uint64_t bit = UINT64_C(1) << number % 64;

	if (is_lost) {
		atomic_fetch_or(&e->shares->lost[number / 64], bit);
		atomic_store(&e->shares->any_lost, true);
	} else {
		atomic_fetch_and(&e->shares->lost[number / 64], ~bit);
	}
}

void engine_cluster_present(struct engine *e, const struct cluster_node *here, size_t nr)
{
	mutex_lock(&e->shares->lock);
	atomic_store(&e->shares->has_world, false);
	atomic_store(&e->shares->any_lost, false);
	for (uint32_t i = 0; i < e->shares->totals.nr_nodes; i++) {
		const struct share_node *n = &e->shares->nodes[i];
		bool is_here = memcmp(n->id, e->dirs.sb.store_id, CLUSTER_ID_LEN) == 0;

		for (size_t k = 0; k < nr && !is_here; k++)
			is_here = memcmp(n->id, here[k].id, CLUSTER_ID_LEN) == 0;
		set_lost(e, i, !is_here);
	}
	atomic_store(&e->shares->has_world, nr > 0);
	mutex_unlock(&e->shares->lock);
}

static bool is_lost(struct engine *e, uint16_t number)
{
	return atomic_load(&e->shares->lost[number / 64]) >> number % 64 & 1;
}

static bool any_is_lost(struct engine *e, const struct share_owners *o)
{
	for (unsigned i = 0; i < o->nr; i++)
		if (is_lost(e, o->node[i]))
			return true;
	return false;
}

/* Reads the pin record of that frame. If it cannot be read, no remote chunk of the frame is usable. */
static void look_up(struct engine *e, uint32_t pack, uint32_t frame, struct remote_look *look)
{
	struct share_frame f;
	int r = share_get(e->db, pack, frame, &f);

	*look = (struct remote_look){ .pack = pack, .frame = frame };
	if (r < 0)
		memset(look->unusable, 0xff, sizeof(look->unusable));
	for (uint32_t i = 0; i < SHARE_CHUNKS && r > 0; i++)
		if (f.unconfirmed || any_is_lost(e, &f.owners[i]))
			share_set(look->unusable, i);
}

bool remote_any_unusable(struct engine *e)
{
	const struct shares *s = e->shares;

	return atomic_load(&s->any) &&
	       (!atomic_load(&s->has_world) || atomic_load(&s->any_lost) || atomic_load(&s->any_unconfirmed));
}

bool remote_chunk_is_usable(struct engine *e, struct addr a, struct remote_look *look)
{
	uint32_t frame, number;

	if (!remote_any_unusable(e) || packs_remote_number(e->packs, a, &frame, &number) <= 0)
		return true;
	if (!atomic_load(&e->shares->has_world))
		return false;
	if (look->pack != a.pack || look->frame != frame)
		look_up(e, a.pack, frame, look);
	return !share_bit(look->unusable, number);
}
