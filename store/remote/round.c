/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/remote/round.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void cluster_decision_release(struct cluster_decision *d)
{
	free(d->nodes);
	free(d->owners);
	*d = (struct cluster_decision){ 0 };
}

/* Rejects a second node with this node's id: if a store was copied, each of the two would rely on the other for chunks
 * that neither has stored. */
static bool nodes_fit(const struct cluster_decision *d, const uint8_t self[CLUSTER_ID_LEN])
{
	if (d->self >= d->nr_nodes)
		return false;
	for (uint32_t n = 0; n < d->nr_nodes; n++)
		if ((memcmp(d->nodes[n].id, self, CLUSTER_ID_LEN) == 0) != (n == d->self))
			return false;
	return true;
}

static bool owners_fit(const struct cluster_decision *d, const struct cluster_owners *o)
{
	if (o->nr == 0 || o->nr > CLUSTER_OWNERS_MAX || o->has >> o->nr != 0)
		return false;
	for (uint32_t i = 0; i < o->nr; i++)
		if (o->owners[i] >= d->nr_nodes || (i > 0 && o->owners[i] <= o->owners[i - 1]))
			return false;
	return true;
}

static bool fits(const struct cluster_decision *d, const uint8_t self[CLUSTER_ID_LEN], size_t nr_offered)
{
	if (!nodes_fit(d, self))
		return false;
	for (size_t i = 0; i < d->nr; i++)
		if (d->owners[i].index >= nr_offered || (i > 0 && d->owners[i].index <= d->owners[i - 1].index) ||
		    !owners_fit(d, &d->owners[i]))
			return false;
	return true;
}

static bool is_owner(const struct cluster_owners *o, uint32_t node)
{
	for (uint32_t i = 0; i < o->nr; i++)
		if (o->owners[i] == node)
			return true;
	return false;
}

int round_decide(const struct cluster_decision *d, const uint8_t self[CLUSTER_ID_LEN], size_t nr_offered, uint8_t *fates)
{
	memset(fates, ROUND_WRITE, nr_offered);
	if (!fits(d, self, nr_offered))
		return -EBADMSG;
	for (size_t i = 0; i < d->nr; i++)
		fates[d->owners[i].index] = is_owner(&d->owners[i], d->self) ? ROUND_PIN : ROUND_AWAIT;
	return 0;
}

/* One owner is enough to read the chunk, but all are needed to survive the configured number of losses. */
static bool all_have(const struct cluster_owners *o, const bool *has_stored)
{
	for (uint32_t i = 0; i < o->nr; i++)
		if (!(o->has >> i & 1) && !has_stored[o->owners[i]])
			return false;
	return true;
}

void round_settle(const struct cluster_decision *d, const bool *has_stored, size_t nr_offered, uint8_t *fates)
{
	bool is_ours = has_stored && has_stored[d->self];

	for (size_t i = 0; i < d->nr && is_ours; i++)
		if (fates[d->owners[i].index] == ROUND_AWAIT && all_have(&d->owners[i], has_stored))
			fates[d->owners[i].index] = ROUND_REMOTE;
	for (size_t i = 0; i < nr_offered; i++)
		if (fates[i] == ROUND_AWAIT)
			fates[i] = ROUND_WRITE;
}
