/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/agent/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "mpi-agent/wire/card.h"
#include "mpi-agent/agent/mpi_errno.h"

/* Most pages in a round: 64 GiB of data, and messages of 600 MB; MPI limits their length to an int. */
#define POPULAR_EVER (UINT64_C(1) << 24)

struct proof_wire {
	uint8_t transcript[MAC_DIGEST_LEN];
	struct le32 rank;
};

void world_host(char ret[LINK_NAME_LEN])
{
	const char *given = getenv("CKPTFS_AGENT_HOST");
	char name[MPI_MAX_PROCESSOR_NAME] = "";
	int len;

	if (!given || !*given) {
		MPI_Get_processor_name(name, &len);
		given = name[0] ? name : "unknown";
	}
	memset(ret, 0, LINK_NAME_LEN);
	for (size_t i = 0; i < LINK_NAME_LEN - 1 && given[i]; i++)
		ret[i] = (char)(given[i] >= ' ' && given[i] <= '~' ? given[i] : '?');
}

/* --- cards --- */

static int show_cards(const struct card *own, uint32_t nr, struct card_wire **ret)
{
	_cleanup_(freep) struct card_wire *all = calloc(nr, sizeof(*all));
	struct card_wire d;
	int r;

	if (!all)
		return -ENOMEM;
	card_encode(own, &d);
	r = mpi_errno(MPI_Allgather(&d, sizeof(d), MPI_BYTE, all, sizeof(d), MPI_BYTE, MPI_COMM_WORLD), "cards");
	if (r == 0)
		*ret = TAKE(all);
	return r;
}

static int own_card(const struct link_welcome *w, int error, struct card *ret)
{
	struct card c = { .error = error, .name = "unknown" };

	world_host(c.host);
	if (w) {
		c.hash = w->hash;
		c.incompat = w->incompat;
		c.replicas = w->replicas;
		c.popular_max = w->popular_max;
		memcpy(c.store_id, w->store_id, sizeof(c.store_id));
		memcpy(c.name, w->name, sizeof(c.name));
	}
	*ret = c;
	return mac_random(ret->nonce, sizeof(ret->nonce));
}

static int decode_cards(const struct card_wire *all, uint32_t nr, struct card **ret)
{
	_cleanup_(freep) struct card *cards = calloc(nr, sizeof(*cards));
	struct card_quarrel quarrel;
	int r = 0;

	if (!cards)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		r = card_decode(&all[i], &cards[i]);
		if (r < 0) {
			log_error("rank %" PRIu32 ": %s", i,
				  r == -EOPNOTSUPP ? "its agent has another version" :
						     "its agent sent a malformed message");
			return -EINVAL;
		}
	}
	r = cards_agree(cards, nr, &quarrel);
	if (r == -EINVAL && nr > 1) /* with one, its own message says all */
		log_error("%s", quarrel.why);
	if (r == 0)
		*ret = TAKE(cards);
	return r;
}

/* --- proofs --- */

struct proof {
	struct mac_key key; /* for proofs only */
	struct proof_wire of; /* `rank`: of the proving node */
};

static struct proof proof_of(const struct mac_key *key, const uint8_t transcript[MAC_DIGEST_LEN])
{
	struct proof p = { .key = mac_key_derive(key, "ckptfs proof", NULL, 0) };

	memcpy(p.of.transcript, transcript, sizeof(p.of.transcript));
	return p;
}

/* If not all keys are equal, every node finds one that differs from its own. */
static int compare_proofs(struct proof *p, const struct card *cards, const uint8_t (*proofs)[MAC_LEN], uint32_t rank,
			  uint32_t nr)
{
	for (uint32_t i = 0; i < nr; i++) {
		p->of.rank = le32_put(i);
		if (mac_is_valid(&p->key, &p->of, sizeof(p->of), proofs[i]))
			continue;
		log_error("node %s on %s (rank %" PRIu32
			  ") does not have the key (cluster=) of node %s on %s (rank %" PRIu32 ")",
			  cards[i].name, cards[i].host, i, cards[rank].name, cards[rank].host, rank);
		return -EINVAL;
	}
	return 0;
}

static int prove(const struct mac_key *key, const uint8_t transcript[MAC_DIGEST_LEN], const struct card *cards,
		 uint32_t rank, uint32_t nr)
{
	_cleanup_(freep) uint8_t (*proofs)[MAC_LEN] = calloc(nr, sizeof(*proofs));
	struct proof p = proof_of(key, transcript);
	uint8_t own[MAC_LEN];
	int r;

	if (!proofs)
		return -ENOMEM;
	p.of.rank = le32_put(rank);
	mac_compute(&p.key, &p.of, sizeof(p.of), own);
	r = mpi_errno(MPI_Allgather(own, MAC_LEN, MPI_BYTE, proofs, MAC_LEN, MPI_BYTE, MPI_COMM_WORLD), "proofs");
	return r < 0 ? r : compare_proofs(&p, cards, proofs, rank, nr);
}

/* --- the world --- */

static int by_store(const void *a, const void *b, void *userdata)
{
	const struct link_node *nodes = userdata;

	return memcmp(nodes[*(const uint32_t *)a].store_id, nodes[*(const uint32_t *)b].store_id,
		      sizeof(nodes->store_id));
}

static int take_cards(struct world *w, const struct card *cards)
{
	w->nodes = calloc(w->nr, sizeof(*w->nodes));
	w->hosts = calloc(w->nr, sizeof(*w->hosts));
	w->by_store = calloc(w->nr, sizeof(*w->by_store));
	if (!w->nodes || !w->hosts || !w->by_store || cards_number_hosts(cards, w->nr, w->hosts) < 0)
		return -ENOMEM;
	w->replicas = cards[0].replicas;
	w->popular_max = POPULAR_EVER;
	for (uint32_t i = 0; i < w->nr; i++) {
		w->popular_max = MIN(w->popular_max, cards[i].popular_max);
		w->nodes[i].host = w->hosts[i];
		memcpy(w->nodes[i].store_id, cards[i].store_id, sizeof(w->nodes[i].store_id));
		memcpy(w->nodes[i].name, cards[i].name, sizeof(w->nodes[i].name));
		w->by_store[i] = i;
	}
	qsort_r(w->by_store, w->nr, sizeof(*w->by_store), by_store, w->nodes);
	return 0;
}

static void make_keys(struct world *w, const struct mac_key *key, const uint8_t transcript[MAC_DIGEST_LEN])
{
	w->message_key = mac_key_derive(key, "ckptfs messages", transcript, MAC_DIGEST_LEN);
	w->set_key = mac_key_derive(key, "ckptfs sets", transcript, MAC_DIGEST_LEN);
	w->stored_key = mac_key_derive(key, "ckptfs stored", transcript, MAC_DIGEST_LEN);
}

static int enter_with(struct world *w, const struct link_welcome *welcome, const struct card_wire *all)
{
	_cleanup_(freep) struct card *cards = NULL;
	uint8_t transcript[MAC_DIGEST_LEN];
	struct mac_key key;
	int r;

	r = decode_cards(all, w->nr, &cards);
	if (r < 0)
		return r;
	assert(welcome); /* a node without a daemon has sent an error in its card */
	static_assert(MAC_KEY_LEN == LINK_KEY_LEN, "the cluster's key is a MAC key");
	memcpy(key.b, welcome->proof_key, sizeof(key.b));
	mac_digest(all, w->nr * sizeof(*all), transcript);
	r = prove(&key, transcript, cards, w->rank, w->nr);
	if (r < 0)
		return r;
	make_keys(w, &key, transcript);
	return take_cards(w, cards);
}

static int enter_mpi(struct world *w)
{
	int rank, nr, r;

	r = mpi_errno(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "error handler");
	if (r == 0)
		r = mpi_errno(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "rank");
	if (r == 0)
		r = mpi_errno(MPI_Comm_size(MPI_COMM_WORLD, &nr), "size");
	if (r < 0)
		return r;
	if ((uint32_t)nr > LINK_NODES_MAX)
		return log_cause(-EINVAL, "%d ranks: at most %u nodes can be one cluster", nr, LINK_NODES_MAX);
	w->rank = (uint32_t)rank;
	w->nr = (uint32_t)nr;
	r = mpi_errno(MPI_Comm_dup(MPI_COMM_WORLD, &w->rounds), "communicator");
	return r < 0 ? r : mpi_errno(MPI_Comm_dup(MPI_COMM_WORLD, &w->messages), "communicator");
}

int world_enter(const struct link_welcome *welcome, int error, struct world *ret)
{
	_cleanup_(world_release) struct world w = { 0 };
	_cleanup_(freep) struct card_wire *all = NULL;
	struct card own;
	int r;

	r = enter_mpi(&w);
	if (r == 0)
		r = own_card(welcome, error, &own);
	if (r == 0)
		r = show_cards(&own, w.nr, &all);
	if (r == 0)
		r = enter_with(&w, welcome, all);
	if (r < 0)
		return r;
	*ret = w;
	w = (struct world){ 0 };
	return 0;
}

void world_release(struct world *w)
{
	free(w->nodes);
	free(w->hosts);
	free(w->by_store);
	w->nodes = NULL;
	w->hosts = w->by_store = NULL;
}

int world_find(const struct world *w, const uint8_t store_id[16], uint32_t *ret)
{
	uint32_t low = 0, high = w->nr;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = memcmp(store_id, w->nodes[w->by_store[middle]].store_id, sizeof(w->nodes->store_id));

		if (order == 0) {
			*ret = w->by_store[middle];
			return 1;
		}
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return 0;
}
