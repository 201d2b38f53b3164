/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The first message between nodes, and the check whether they can form a cluster. docs/format.md ("Between nodes")
 * changes with this. Pure functions; decoding trusts nothing: -EBADMSG, and -EOPNOTSUPP for another version.
 */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/le.h"
#include "mpi-agent/wire/link_format.h"

#define CARD_VERSION 1u /* covers the whole protocol between nodes: MACs, messages, sets */
#define CARD_NONCE_LEN 32u

struct card_wire {
	struct le32 version;
	struct le32 error; /* an errno: this node has no daemon, and the other fields are not set; 0: it has one */
	struct le32 hash, incompat, replicas; /* as in WELCOME */
	struct le32 reserved;
	struct le64 popular_max;
	uint8_t store_id[16];
	uint8_t nonce[CARD_NONCE_LEN]; /* fresh for each session */
	uint8_t name[LINK_NAME_LEN], host[LINK_NAME_LEN]; /* zero-terminated and zero-padded */
	uint8_t zeros[48]; /* reserved: cards of all versions have the same length */
};
static_assert(sizeof(struct card_wire) == 256, "on the wire");

struct card {
	int error; /* negative */
	uint32_t hash, incompat, replicas;
	uint64_t popular_max;
	uint8_t store_id[16], nonce[CARD_NONCE_LEN];
	char name[LINK_NAME_LEN], host[LINK_NAME_LEN];
};

void card_encode(const struct card *c, struct card_wire *ret);
int card_decode(const struct card_wire *d, struct card *ret);

/* Why nodes cannot form a cluster, with their names. */
struct card_quarrel {
	char why[4 * LINK_NAME_LEN + 256];
};
/* cards[i] is that of rank i. -EINVAL: the nodes cannot form a cluster; -ENOMEM. Time: n log n. */
int cards_agree(const struct card *cards, uint32_t nr, struct card_quarrel *ret);
/* Numbers the hosts from 0 in the order of their lowest ranks: ret[i] is the host of rank i. -ENOMEM */
int cards_number_hosts(const struct card *cards, uint32_t nr, uint32_t *ret);
