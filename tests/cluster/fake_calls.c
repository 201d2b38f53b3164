/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Calls to another store: PUT, REPLICATE, DROP, QUERY, and the answers to those of others. */
#include "tests/cluster/fake_daemon.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static void say_put(uint64_t number, const uint8_t id[16])
{
	static const struct pages one = { { 1 }, 1 };
	const struct pages *p = fake.puts.nr > 0 ? &fake.puts : &one;
	_cleanup_(freep) struct link_want *wants = calloc(p->nr, sizeof(*wants));
	_cleanup_(freep) const void **chunks = calloc(p->nr, sizeof(*chunks));
	_cleanup_(freep) uint8_t *bytes = malloc((size_t)p->nr * CHUNK_LEN);

	if (!wants || !chunks || !bytes)
		fake_fail("memory");
	for (unsigned i = 0; i < p->nr; i++) {
		wants[i] = (struct link_want){ .fp = page_fp(p->v[i]), .len = CHUNK_LEN };
		chunks[i] = bytes + (size_t)i * CHUNK_LEN;
		page_fill(p->v[i], bytes + (size_t)i * CHUNK_LEN);
	}
	link_encode_put(number, id, wants, chunks, p->nr, &fake.link.out);
}

static void say_replicate(uint64_t number, const uint8_t id[16])
{
	struct link_want catalog = { .fp = page_fp(1), .len = CHUNK_LEN };
	struct link_replica c = { .name = "of", .path = "step", .ino = 7, .nr_chunks = 1, .chunks = &catalog };

	memcpy(c.node, id, sizeof(c.node));
	link_encode_replica(number, &c, &fake.link.out);
}

static void say_drop(uint64_t number, const uint8_t id[16])
{
	struct link_drop drop = { .name = "of", .ino = 7 };

	memcpy(drop.node, id, sizeof(drop.node));
	link_encode_drop(number, &drop, &fake.link.out);
}

static void call(uint64_t number, const struct call *c)
{
	if (c->type == LINK_PUT)
		say_put(number, c->id);
	else if (c->type == LINK_REPLICATE)
		say_replicate(number, c->id);
	else if (c->type == LINK_DROP)
		say_drop(number, c->id);
	else
		link_encode_query(number, c->id, "what", 4, &fake.link.out);
	has_sent(message_name(c->type));
}

void send_calls_and_fetches(void)
{
	for (unsigned i = 0; i < fake.nr_calls; i++)
		call(i + 1, &fake.calls[i]);
	for (unsigned i = 1; fake.nr_wants > 0 && i <= fake.times; i++)
		link_encode_fetch(i, fake.ids, fake.nr_ids, fake.wants, fake.nr_wants, &fake.link.out);
}

void receive_put(const struct link_header *h, const void *body)
{
	_cleanup_(freep) uint8_t *kept = NULL;
	struct link_put p;

	if (link_decode_put(body, h->len, &p) < 0)
		fake_fail("PUT");
	printf("put %" PRIu32 "\n", p.nr);
	kept = malloc(p.nr + 1);
	if (!kept)
		fake_fail("memory");
	memset(kept, fake.stored < 0 ? LINK_NOT_KEPT : LINK_IS_HERE, p.nr);
	link_encode_kept(h->number, fake.stored, kept, p.nr, &fake.link.out);
	free(p.wants);
	free(p.chunks);
}

void receive_replicate(const struct link_header *h, const void *body)
{
	struct link_replica c;

	if (link_decode_replica(body, h->len, &c) < 0)
		fake_fail("REPLICATE");
	free(c.chunks);
	puts("replicate");
	link_encode_error(LINK_REPLICATED, h->number, fake.stored, &fake.link.out);
}

void receive_drop(const struct link_header *h, const void *body)
{
	struct link_drop drop;

	if (link_decode_drop(body, h->len, &drop) < 0)
		fake_fail("DROP");
	puts("drop");
	link_encode_error(LINK_DROPPED, h->number, fake.stored, &fake.link.out);
}

void receive_question(const struct link_header *h, const void *body)
{
	if (link_decode_question(body, h->len) < 0)
		fake_fail("QUESTION");
	puts("question");
	link_encode_answer(h->number, fake.stored, "this", fake.stored < 0 ? 0 : 4, &fake.link.out);
}

/* KEPT, REPLICATED, DROPPED, ANSWER: to the call of that number. */
void receive_called(const struct link_header *h, const void *body)
{
	const uint8_t *kept;
	const void *said;
	size_t len;
	int error, r;

	r = h->type == LINK_KEPT   ? link_decode_kept(body, h->len, MAX(fake.puts.nr, 1u), &error, &kept) :
	    h->type == LINK_ANSWER ? link_decode_answer(body, h->len, &error, &said, &len) :
				     link_decode_error(body, h->len, &error);
	if (r < 0)
		fake_fail(message_name(h->type));
	printf("%s %d\n", message_name(h->type), -error);
	if (++fake.nr_called == fake.nr_calls && fake.nr_wants == 0)
		fake.is_done = fake.quit;
}
