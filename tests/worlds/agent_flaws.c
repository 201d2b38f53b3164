/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Mistakes that agents can be made with. The linker puts these functions between the parts of an agent: without a flaw
 * they only pass on.
 */
#include <stdlib.h>
#include <string.h>

#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/rounds.h"
#include "mpi-agent/wire/link_format.h"
#include "mpi-agent/wire/peer_format.h"
#include "worlds_internal.h"

/* --- TAKES_STALE --- */

int __real_rounds_offer(struct rounds *rs, uint64_t number, const void *body, size_t len);
int __wrap_rounds_offer(struct rounds *rs, uint64_t number, const void *body, size_t len);
int __real_rounds_stored(struct rounds *rs, uint64_t number, const void *body, size_t len);
int __wrap_rounds_stored(struct rounds *rs, uint64_t number, const void *body, size_t len);
void __real_link_encode_plain(enum link_type type, uint64_t number, struct buf *ret);
void __wrap_link_encode_plain(enum link_type type, uint64_t number, struct buf *ret);

/* An agent's BEGIN has the number of its round. Daemons call this, too, with other types. */
void __wrap_link_encode_plain(enum link_type type, uint64_t number, struct buf *ret)
{
	if (type == LINK_BEGIN)
		ws->current->round = number;
	__real_link_encode_plain(type, number, ret);
}

static uint64_t number_of(uint64_t number)
{
	return ws_is_flaw(WORLDS_TAKES_STALE) ? ws->current->round : number;
}

int __wrap_rounds_offer(struct rounds *rs, uint64_t number, const void *body, size_t len)
{
	return __real_rounds_offer(rs, number_of(number), body, len);
}

int __wrap_rounds_stored(struct rounds *rs, uint64_t number, const void *body, size_t len)
{
	return __real_rounds_stored(rs, number_of(number), body, len);
}

/* --- TRUSTS_HINTS: a PIN stays here, and its answer is made here --- */

int __real_peers_send(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body, size_t len);
int __wrap_peers_send(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body, size_t len);
int __real_peers_next(struct peers *p, unsigned paused, struct peer_header *ret, struct message *ret_message);
int __wrap_peers_next(struct peers *p, unsigned paused, struct peer_header *ret, struct message *ret_message);

int __wrap_peers_send(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body, size_t len)
{
	struct agent *a = ws->current;
	struct fp *pages;
	struct trusted *t = &a->trusted[a->nr_trusted];

	if (type != PEER_PIN || !ws_is_flaw(WORLDS_TRUSTS_HINTS))
		return __real_peers_send(p, to, type, number, body, len);
	if (a->nr_trusted++ == ARRAY_SIZE(a->trusted) || link_decode_pin(body, len, &pages, &t->nr) < 0)
		abort();
	free(pages);
	t->to = to;
	t->number = number;
	return 0;
}

int __wrap_peers_next(struct peers *p, unsigned paused, struct peer_header *ret, struct message *ret_message)
{
	struct agent *a = ws->current;
	struct trusted *t;

	if (a->nr_trusted == 0)
		return __real_peers_next(p, paused, ret, ret_message);
	t = &a->trusted[--a->nr_trusted];
	*ret = (struct peer_header){ .type = PEER_PINNED, .from = t->to, .to = a->w.rank, .number = t->number };
	ret_message->len = sizeof(struct peer_header_wire) + t->nr;
	ret_message->data = malloc(ret_message->len);
	if (!ret_message->data)
		abort();
	memset(ret_message->data, 1, ret_message->len); /* the header has been decoded; a byte of the body is a page */
	return 1;
}

/* --- REMEMBERS_TOO_MUCH --- */

void __real_link_encode_settled(uint64_t number, const uint8_t *stored, uint32_t nr, struct buf *ret);
void __wrap_link_encode_settled(uint64_t number, const uint8_t *stored, uint32_t nr, struct buf *ret);

/* The daemon receives which nodes have stored; after that the agent caches owners of pages as if all had. */
void __wrap_link_encode_settled(uint64_t number, const uint8_t *stored, uint32_t nr, struct buf *ret)
{
	__real_link_encode_settled(number, stored, nr, ret);
	if (ws_is_flaw(WORLDS_REMEMBERS_TOO_MUCH))
		memset((uint8_t *)(uintptr_t)stored, 1, nr);
}

/* --- REMEMBERS_TOO_LONG --- */

void __real_rounds_forget(struct rounds *rs);
void __wrap_rounds_forget(struct rounds *rs);

void __wrap_rounds_forget(struct rounds *rs)
{
	if (!ws_is_flaw(WORLDS_REMEMBERS_TOO_LONG))
		__real_rounds_forget(rs);
}
