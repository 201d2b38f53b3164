/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "mpi-agent/wire/card.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fp.h"
#include "base/util.h"

#define ERROR_MAX 4095u

/* --- bytes --- */

static void encode_text(const char *text, uint8_t ret[LINK_NAME_LEN])
{
	memset(ret, 0, LINK_NAME_LEN);
	memcpy(ret, text, strnlen(text, LINK_NAME_LEN - 1));
}

void card_encode(const struct card *c, struct card_wire *ret)
{
	*ret = (struct card_wire){
		.version = le32_put(CARD_VERSION),
		.error = le32_put((uint32_t)-c->error),
		.hash = le32_put(c->hash),
		.incompat = le32_put(c->incompat),
		.replicas = le32_put(c->replicas),
		.popular_max = le64_put(c->popular_max),
	};
	memcpy(ret->store_id, c->store_id, sizeof(ret->store_id));
	memcpy(ret->nonce, c->nonce, sizeof(ret->nonce));
	encode_text(c->name, ret->name);
	encode_text(c->host, ret->host);
}

static bool is_text(const uint8_t text[LINK_NAME_LEN])
{
	size_t len = strnlen((const char *)text, LINK_NAME_LEN);

	if (len == 0 || len == LINK_NAME_LEN)
		return false;
	for (size_t i = 0; i < LINK_NAME_LEN; i++)
		if (i < len ? text[i] < ' ' || text[i] > '~' : text[i] != 0)
			return false;
	return true;
}

int card_decode(const struct card_wire *d, struct card *ret)
{
	static const uint8_t zeros[sizeof(d->zeros)];
	struct card c = {
		.error = -(int)MIN(le32_get(d->error), ERROR_MAX),
		.hash = le32_get(d->hash),
		.incompat = le32_get(d->incompat),
		.replicas = le32_get(d->replicas),
		.popular_max = le64_get(d->popular_max),
	};

	if (le32_get(d->version) != CARD_VERSION)
		return -EOPNOTSUPP;
	if (le32_get(d->reserved) != 0 || memcmp(d->zeros, zeros, sizeof(zeros)) != 0 ||
	    le32_get(d->error) > ERROR_MAX || !is_text(d->name) || !is_text(d->host) ||
	    (c.error == 0 && (!fp_kind_valid((enum fp_kind)c.hash) || c.replicas < 1 || c.replicas > LINK_OWNERS_MAX ||
			      c.popular_max < 1)))
		return -EBADMSG;
	memcpy(c.store_id, d->store_id, sizeof(c.store_id));
	memcpy(c.nonce, d->nonce, sizeof(c.nonce));
	memcpy(c.name, d->name, sizeof(c.name));
	memcpy(c.host, d->host, sizeof(c.host));
	*ret = c;
	return 0;
}

/* --- compatibility --- */

static int by_store(const void *a, const void *b, void *userdata)
{
	const struct card *cards = userdata;
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	int order = memcmp(cards[i].store_id, cards[k].store_id, sizeof(cards[i].store_id));

	return order != 0 ? order : i < k ? -1 : i > k;
}

static int by_host(const void *a, const void *b, void *userdata)
{
	const struct card *cards = userdata;
	uint32_t i = *(const uint32_t *)a, k = *(const uint32_t *)b;
	int order = strcmp(cards[i].host, cards[k].host);

	return order != 0 ? order : i < k ? -1 : i > k;
}

typedef int order_fn(const void *a, const void *b, void *cards);

static uint32_t *ranks_by(const struct card *cards, uint32_t nr, order_fn *order)
{
	uint32_t *ranks = calloc(MAX(nr, UINT32_C(1)), sizeof(*ranks));

	if (!ranks)
		return NULL;
	for (uint32_t i = 0; i < nr; i++)
		ranks[i] = i;
	qsort_r(ranks, nr, sizeof(*ranks), order, (void *)cards);
	return ranks;
}

#define NODE_FMT "node %s on %s (rank %" PRIu32 ")"
#define NODE_ARGS(cards, i) (cards)[i].name, (cards)[i].host, i

/* Compares the parameters that all nodes must share with those of rank 0. */
static int differs(const struct card *cards, uint32_t i, struct card_quarrel *ret)
{
	const struct {
		const char *what;
		uint32_t here, there;
	} figures[] = {
		{ "features of the store", cards[i].incompat, cards[0].incompat },
		{ "replicas=", cards[i].replicas, cards[0].replicas },
	};

	if (cards[i].hash != cards[0].hash) {
		snprintf(ret->why, sizeof(ret->why),
			 NODE_FMT " differs from " NODE_FMT " in the kind of fingerprints (hash=): %s, not %s",
			 NODE_ARGS(cards, i), NODE_ARGS(cards, UINT32_C(0)), fp_kind_name((enum fp_kind)cards[i].hash),
			 fp_kind_name((enum fp_kind)cards[0].hash));
		return -EINVAL;
	}
	for (size_t k = 0; k < ARRAY_SIZE(figures); k++) {
		if (figures[k].here == figures[k].there)
			continue;
		snprintf(ret->why, sizeof(ret->why),
			 NODE_FMT " differs from " NODE_FMT " in %s: %" PRIu32 ", not %" PRIu32, NODE_ARGS(cards, i),
			 NODE_ARGS(cards, UINT32_C(0)), figures[k].what, figures[k].here, figures[k].there);
		return -EINVAL;
	}
	return 0;
}

int cards_agree(const struct card *cards, uint32_t nr, struct card_quarrel *ret)
{
	_cleanup_(freep) uint32_t *ranks = ranks_by(cards, nr, by_store);

	if (!ranks)
		return -ENOMEM;
	for (uint32_t i = 0; i < nr; i++) {
		if (cards[i].error == 0)
			continue;
		snprintf(ret->why, sizeof(ret->why), "%s (rank %" PRIu32 ") has no daemon; see the message of its agent",
			 cards[i].host, i);
		return -EINVAL;
	}
	for (uint32_t i = 1; i < nr; i++) {
		if (memcmp(cards[ranks[i - 1]].store_id, cards[ranks[i]].store_id, sizeof(cards->store_id)) != 0)
			continue;
		snprintf(ret->why, sizeof(ret->why),
			 NODE_FMT " and " NODE_FMT
				  " have the same store id: one store is a copy of the other, or both are the same",
			 NODE_ARGS(cards, ranks[i - 1]), NODE_ARGS(cards, ranks[i]));
		return -EINVAL;
	}
	for (uint32_t i = 1; i < nr; i++)
		if (differs(cards, i, ret) < 0)
			return -EINVAL;
	return 0;
}

int cards_number_hosts(const struct card *cards, uint32_t nr, uint32_t *ret)
{
	_cleanup_(freep) uint32_t *ranks = ranks_by(cards, nr, by_host);
	uint32_t next = 0;

	if (!ranks)
		return -ENOMEM;
	/* First each host's lowest rank, then consecutive numbers in that order. */
	for (uint32_t i = 0; i < nr; i++)
		ret[ranks[i]] = i > 0 && strcmp(cards[ranks[i - 1]].host, cards[ranks[i]].host) == 0 ? ret[ranks[i - 1]] :
												       ranks[i];
	for (uint32_t i = 0; i < nr; i++)
		ret[i] = ret[i] == i ? next++ : ret[ret[i]];
	return 0;
}
