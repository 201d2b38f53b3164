/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks that a daemon fetches, and those that it serves, in messages or in shared memory. */
#include "tests/cluster/fake_daemon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static bool holds(unsigned page)
{
	return has_page(fake.holds, fake.nr_holds, page);
}

void receive_chunks(const struct link_header *h, const void *body)
{
	static const void *chunks[FETCHES_MAX];
	uint8_t expected[CHUNK_LEN];

	if (h->type == LINK_CHUNKS && link_decode_chunks(body, h->len, fake.wants, fake.nr_wants, chunks) < 0)
		fake_fail("CHUNKS");
	if (h->type == LINK_PLACES &&
	    (!fake.shared.theirs ||
	     link_decode_places(body, h->len, fake.wants, fake.nr_wants, arena_data(fake.shared.theirs),
				arena_len(fake.shared.theirs), chunks) < 0))
		fake_fail("PLACES");
	for (unsigned i = 0; i < fake.nr_wants; i++) {
		page_fill(fake.fetch_pages[i], expected);
		printf("chunk %u %s\n", fake.fetch_pages[i],
		       !chunks[i]				   ? "missing" :
		       memcmp(chunks[i], expected, CHUNK_LEN) == 0 ? "ok" :
								     "wrong");
	}
	if (h->type == LINK_PLACES) {
		puts("places");
		link_encode_plain(LINK_TAKEN, h->number, &fake.link.out);
	}
	fake.is_done = ++fake.nr_answers == fake.times && fake.quit;
}

/* Both ends, or none. */
void share_memory(void)
{
	int fd = fake.link.passed;

	fake.link.passed = -1;
	if (fd < 0 || arena_open(fd, &fake.shared.theirs) < 0 || arena_new(ARENA_LEN, &fake.shared.own) < 0)
		fake_fail("memory of the agent");
	fake.link.passes = arena_fd(fake.shared.own);
}

/* false: there is no room for it */
static bool say_there(uint64_t number, const struct link_want *wants, const void *const *chunks, uint32_t nr)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct given *g = &fake.given[fake.nr_given];
	size_t len;

	link_encode_chunks(number, wants, chunks, nr, &b);
	len = b.len - sizeof(struct link_header_wire);
	if (len < ARENA_MIN || fake.nr_given == GIVEN_MAX)
		return false;
	*g = (struct given){ number, arena_take(fake.shared.own, len), len };
	if (!g->slot)
		return false;
	fake.nr_given++;
	memcpy(g->slot, b.data + sizeof(struct link_header_wire), len);
	link_encode_there(number, (uint64_t)(g->slot - arena_data(fake.shared.own)), (uint32_t)len, &fake.link.out);
	return true;
}

/* It is written over: the agent is not to look there any more. */
void receive_taken(uint64_t number)
{
	for (unsigned i = 0; i < fake.nr_given; i++)
		if (fake.given[i].number == number) {
			puts("taken");
			memset(fake.given[i].slot, 0xa5, fake.given[i].len);
			arena_give_back(fake.shared.own, fake.given[i].slot, fake.given[i].len);
			fake.given[i] = fake.given[--fake.nr_given];
			return;
		}
	fake_fail("TAKEN of what was not given");
}

void receive_get(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct link_want *wants = NULL;
	_cleanup_(freep) const void **chunks = NULL;
	_cleanup_(freep) uint8_t *bytes = NULL;
	uint32_t nr;

	if (link_decode_get(body, h->len, &wants, &nr) < 0)
		fake_fail("GET");
	chunks = calloc(nr + 1, sizeof(*chunks));
	bytes = malloc((size_t)(nr + 1) * CHUNK_LEN);
	if (!chunks || !bytes)
		fake_fail("memory");
	printf("served");
	for (uint32_t i = 0; i < nr; i++) {
		unsigned page = (unsigned)wants[i].fp.hi;

		if (!holds(page) || wants[i].len != CHUNK_LEN)
			continue;
		printf(" %u", page);
		page_fill(page, bytes + i * CHUNK_LEN);
		chunks[i] = bytes + i * CHUNK_LEN;
	}
	puts("");
	if (!fake.memory || !say_there(h->number, wants, chunks, nr))
		link_encode_chunks(h->number, wants, chunks, nr, &fake.link.out);
}
