/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/crash/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"
#include "store/remote/cluster_calls.h"
#include "store/engine.h"

#define PAGE 4096u

struct page {
	struct fp fp;
	uint8_t bytes[PAGE];
};

static struct {
	int fd; /* pages, in the order they came */
	bool takes_part;
	struct engine *e;
	unsigned nr_rounds;
	struct page *pages; /* of this round, that it is to store */
	size_t nr_pages;
} peer = { .fd = -1 };

static const uint8_t peer_id[CLUSTER_ID_LEN] = "another node";

int peer_begin(uint64_t seed, const char *log, bool records)
{
	char path[300];

	peer_end();
	if (seed / 4 % 2 == 0) /* beside all ways to compress */
		return 0;
	snprintf(path, sizeof(path), "%s.peer", log);
	peer.fd = open(path, O_RDWR | O_CLOEXEC | (records ? O_CREAT | O_TRUNC : 0), 0600);
	peer.takes_part = records;
	peer.nr_rounds = 0;
	return peer.fd < 0 ? -errno : 0;
}

void peer_end(void)
{
	if (peer.fd >= 0)
		close(peer.fd);
	peer.fd = -1;
	peer.e = NULL;
}

void peer_register(struct engine *e)
{
	peer.e = e;
}

static bool is_there(void *userdata)
{
	(void)userdata;
	return peer.takes_part && peer.e;
}

/* It has two of three pages that it is offered; half of these it is to store, a quarter both, a quarter the store. */
static int decide(void *userdata, const struct fp *offer, size_t nr, struct cluster_decision *ret)
{
	struct cluster_decision d = { .nr_nodes = 2, .self = 1 };

	(void)userdata;
	if (++peer.nr_rounds % 5 == 0)
		return -ETIMEDOUT;
	free(peer.pages);
	peer.pages = calloc(nr + 1, sizeof(*peer.pages));
	peer.nr_pages = 0;
	d.nodes = calloc(2, sizeof(*d.nodes));
	d.owners = calloc(nr + 1, sizeof(*d.owners));
	memcpy(d.nodes[0].id, peer_id, CLUSTER_ID_LEN);
	memcpy(d.nodes[1].id, engine_store_id(peer.e), CLUSTER_ID_LEN);
	for (size_t i = 0; i < nr; i++) {
		struct cluster_owners o = { .index = (uint32_t)i, .nr = 1 };

		if (offer[i].lo % 3 == 0)
			continue;
		peer.pages[peer.nr_pages].fp = offer[i];
		if (engine_cluster_chunk(peer.e, offer[i], PAGE, peer.pages[peer.nr_pages].bytes) <= 0)
			continue; /* cut by content */
		if (offer[i].hi % 4 == 0)
			o.owners[0] = 1;
		else if (offer[i].hi % 4 == 1)
			o = (struct cluster_owners){ .index = (uint32_t)i, .nr = 2, .owners = { 0, 1 } };
		else
			peer.nr_pages++;
		d.owners[d.nr++] = o;
	}
	*ret = d;
	return 0;
}

static int settle(void *userdata, const struct cluster_decision *d, int stored, bool *has_stored)
{
	(void)userdata;
	(void)d;
	if (peer.nr_rounds % 7 == 0)
		return -ETIMEDOUT; /* and it has nothing of this */
	if (has_stored) {
		has_stored[0] = peer.nr_rounds % 4 != 0;
		has_stored[1] = stored == 0;
	}
	if (peer.nr_rounds % 4 != 0 && write(peer.fd, peer.pages, peer.nr_pages * sizeof(*peer.pages)) !=
					       (ssize_t)(peer.nr_pages * sizeof(*peer.pages)))
		return -EIO;
	return 0;
}

static int fetch(void *userdata, struct cluster_want *wants, size_t nr)
{
	static _Thread_local struct page page;

	(void)userdata;
	for (size_t i = 0; i < nr; i++)
		for (off_t at = 0; !wants[i].got && pread(peer.fd, &page, sizeof(page), at) == (ssize_t)sizeof(page);
		     at += (off_t)sizeof(page))
			if (fp_equal(page.fp, wants[i].fp) && wants[i].len == PAGE) {
				memcpy(wants[i].buf, page.bytes, PAGE);
				wants[i].got = true;
			}
	return 0;
}

void peer_join(struct engine_conf *conf)
{
	static const struct cluster_calls calls = { NULL, is_there, decide, settle, fetch, NULL, NULL };

	if (peer.fd >= 0)
		conf->cluster_calls = &calls;
}
