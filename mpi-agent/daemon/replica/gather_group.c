/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/daemon/replica/gather_group.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/util.h"
#include "fs/fs.h"
#include "mpi-agent/daemon/replica/replica_send.h"
#include "index/namespace_table.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/daemon/service.h"

#define AGAIN_NS (500 * 1000 * 1000) /* retry interval for a gathering node that could not pin a chunk */
#define AGAIN_MAX 240u /* attempts: a compaction, or a collection of all nodes, may be running */

/* --- gathering nodes --- */

static bool is_before(const struct service_world *w, uint32_t a, uint32_t b)
{
	return memcmp(w->nodes[a].id, w->nodes[b].id, CLUSTER_ID_LEN) < 0;
}

/* Number of nodes ordered before it. */
static uint32_t rank_of(const struct service_world *w, uint32_t node)
{
	uint32_t rank = 0;

	for (uint32_t i = 0; i < w->nr; i++)
		rank += is_before(w, i, node);
	return rank;
}

static uint32_t group_of(uint32_t rank, uint32_t nr, uint32_t group)
{
	uint32_t nr_groups = MAX(nr / group, 1u);

	return MIN(rank / group, nr_groups - 1);
}

static bool has_host(const struct service_world *w, const uint32_t *nodes, uint32_t nr, uint32_t host)
{
	for (uint32_t i = 0; i < nr; i++)
		if (w->hosts[nodes[i]] == host)
			return true;
	return false;
}

int gather_group_nodes(const struct service_world *w, uint32_t group, uint32_t replicas,
			 uint32_t ret[CLUSTER_OWNERS_MAX])
{
	uint32_t mine = group_of(rank_of(w, w->self), w->nr, group), nr = 0;

	for (uint32_t best = w->nr; nr < MIN(replicas, CLUSTER_OWNERS_MAX); best = w->nr) {
		for (uint32_t i = 0; i < w->nr; i++)
			if (group_of(rank_of(w, i), w->nr, group) == mine && !has_host(w, ret, nr, w->hosts[i]) &&
			    (best == w->nr || is_before(w, i, best)))
				best = i;
		if (best == w->nr)
			return -EHOSTUNREACH;
		ret[nr++] = best;
	}
	return (int)nr;
}

/* --- release --- */

struct release {
	const struct replica_target *target;
	const uint32_t *gatherers;
	uint32_t nr;
};

/* A chunk must be stored on all of them. */
static int pin(void *userdata, const struct cluster_want *chunks, size_t nr, bool *has)
{
	const struct release *h = userdata;
	_cleanup_(freep) uint8_t *kept = calloc(nr, 1);
	int r = kept ? 0 : -ENOMEM;

	memset(has, true, nr);
	for (uint32_t i = 0; i < h->nr && r == 0; i++) {
		r = replica_query_chunks(h->target, h->target->world->nodes[h->gatherers[i]].id, chunks, nr, kept);
		for (size_t k = 0; k < nr && r == 0; k++)
			has[k] &= kept[k] == LINK_IS_HERE;
	}
	return r;
}

static int release_file(const struct release *h, const struct cluster_takers *takers, uint64_t ino,
			struct cluster_released *sums)
{
	struct content *c;
	int r = content_open(h->target->fs->engine, ino, &c);

	if (r < 0)
		return r;
	for (unsigned tries = 0;; tries++) {
		sums->nr_refused = 0;
		r = engine_cluster_release(c, takers, sums);
		if (r == 0 && sums->nr_refused > 0)
			r = -EAGAIN;
		if (r != -EAGAIN || tries == AGAIN_MAX)
			break;
		if (!h->target->goes_on(h->target->userdata)) {
			r = -ECANCELED;
			break;
		}
		nanosleep(&(struct timespec){ .tv_nsec = AGAIN_NS }, NULL);
	}
	content_close(c);
	return r;
}

/*
 * Release the files of one directory; subdirectories are appended to `dirs`. If the directory is unsealed and a name
 * removed meanwhile, nothing is lost: its file is removed too.
 */
static int release_names(const struct release *h, const struct cluster_takers *takers, uint64_t dir, struct buf *dirs,
			 struct cluster_released *sums)
{
	_cleanup_(ns_readdir_closep) struct db_iter *it = NULL;
	struct ns_dirent d;
	int r = ns_readdir_open(h->target->fs->db, dir, 0, &it);

	while (r >= 0 && (r = ns_readdir_next(it, &d)) > 0) {
		if (d.type == DT_DIR)
			buf_add(dirs, &d.ino, sizeof(d.ino));
		else if (d.type == DT_REG)
			r = release_file(h, takers, d.ino, sums);
	}
	return r;
}

int gather_group_release(const struct replica_target *target, const uint32_t *gatherers, uint32_t nr, uint64_t dir,
			 struct cluster_released *sums)
{
	_cleanup_(buf_release) struct buf dirs = BUF_EMPTY;
	struct release h = { target, gatherers, nr };
	struct cluster_node nodes[CLUSTER_OWNERS_MAX];
	struct cluster_takers takers = { nodes, nr, pin, &h };
	int r = 0;

	for (uint32_t i = 0; i < nr; i++)
		nodes[i] = target->world->nodes[gatherers[i]];
	buf_add(&dirs, &dir, sizeof(dir));
	for (size_t at = 0; r == 0 && at < dirs.len; at += sizeof(dir)) {
		memcpy(&dir, dirs.data + at, sizeof(dir));
		r = release_names(&h, &takers, dir, &dirs, sums);
		if (r == 0)
			r = buf_error(&dirs);
	}
	return r;
}
