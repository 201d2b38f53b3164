/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/replica/partners.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "mpi-agent/daemon/service.h"
#include "store/remote/cluster_calls.h"

/* Circular order of ids, starting after `origin`. */
static int compare_behind(const uint8_t *origin, const uint8_t *a, const uint8_t *b)
{
	bool a_is_behind = memcmp(a, origin, CLUSTER_ID_LEN) > 0, b_is_behind = memcmp(b, origin, CLUSTER_ID_LEN) > 0;

	return a_is_behind != b_is_behind ? (a_is_behind ? -1 : 1) : memcmp(a, b, CLUSTER_ID_LEN);
}

static bool is_host_of(const struct service_world *w, uint32_t host, const uint32_t *nodes, uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++)
		if (w->hosts[nodes[i]] == host)
			return true;
	return false;
}

uint32_t partners_group(const struct service_world *w, const uint8_t *origin, uint32_t ret[PARTNERS_MAX])
{
	uint32_t nr = 0;

	for (uint32_t best = w->nr; nr < PARTNERS_MAX; best = w->nr) {
		for (uint32_t i = 0; i < w->nr; i++)
			if (w->hosts[i] != w->hosts[w->self] && !is_host_of(w, w->hosts[i], ret, nr) &&
			    memcmp(w->nodes[i].id, origin, CLUSTER_ID_LEN) != 0 &&
			    (best == w->nr || compare_behind(origin, w->nodes[i].id, w->nodes[best].id) < 0))
				best = i;
		if (best == w->nr)
			break;
		ret[nr++] = best;
	}
	return nr;
}

int partners_first(const struct service_world *w, const uint8_t *origin, uint32_t *ret)
{
	uint32_t group[PARTNERS_MAX];

	if (partners_group(w, origin, group) == 0)
		return -EHOSTUNREACH;
	*ret = group[0];
	return 0;
}
