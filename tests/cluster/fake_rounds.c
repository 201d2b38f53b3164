/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Rounds, announcements and collections of a fake daemon. In the filters of a collection each page is one bit. */
#include "tests/cluster/fake_daemon.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"

const struct pages *offer_pages(uint64_t round)
{
	static const struct pages none;

	if (fake.nr_lists == 1)
		return &fake.pages[0];
	return round >= 1 && round <= fake.nr_lists ? &fake.pages[round - 1] : &none;
}

void offer(uint64_t round)
{
	const struct pages *p = offer_pages(round);
	_cleanup_(freep) struct fp *pages = calloc(p->nr + 1, sizeof(*pages));

	if (!pages)
		fake_fail("memory");
	for (unsigned i = 0; i < p->nr; i++)
		pages[i] = page_fp(p->v[i]);
	link_encode_offer(round, pages, p->nr, &fake.link.out);
	has_sent("offer");
}

void announce(void)
{
	_cleanup_(freep) struct fp *pages = calloc(fake.nr_reports + 1, sizeof(*pages));

	if (!pages)
		fake_fail("memory");
	for (unsigned i = 0; i < fake.nr_reports; i++)
		pages[i] = page_fp(fake.announces[fake.nr_reports - 1 - i]);
	if (fake.nr_reports == 0)
		return;
	link_encode_announce(pages, fake.nr_reports, &fake.link.out);
	has_sent("tell");
}

void receive_shared(void)
{
	puts("shared");
	fake.is_shared = true;
	if (fake.awaits_shared)
		next_step();
}

void receive_decision(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct link_owners *owners = NULL;
	const struct pages *p = offer_pages(h->number);
	uint32_t nr;

	if (link_decode_decision(body, h->len, p->nr, fake.nr_nodes, &owners, &nr) < 0)
		fake_fail("DECISION");
	printf("decision %" PRIu64, h->number);
	for (uint32_t i = 0; i < nr; i++)
		for (uint32_t k = 0; k < owners[i].nr; k++)
			printf(k == 0 ? " %u:%u%s" : "%.0u,%u%s", k == 0 ? p->v[owners[i].index] : 0,
			       owners[i].owners[k], owners[i].has >> k & 1 ? "*" : "");
	puts("");
	link_encode_stored(h->number, fake.stored, &fake.link.out);
	has_sent("stored");
}

void receive_settled(const struct link_header *h, const void *body)
{
	const uint8_t *has_stored;

	if (link_decode_settled(body, h->len, fake.nr_nodes, &has_stored) < 0)
		fake_fail("SETTLED");
	printf("settled %" PRIu64 " ", h->number);
	for (uint32_t i = 0; i < fake.nr_nodes; i++)
		putchar('0' + has_stored[i]);
	puts("");
	if (++fake.nr_settled <= fake.rounds)
		next_step();
}

/* As if all of them had been stored here that were offered. */
static bool pins(unsigned page)
{
	if (has_page(fake.lost, fake.nr_lost, page))
		return false;
	for (uint64_t round = 1; round <= fake.nr_settled; round++)
		if (has_page(offer_pages(round)->v, offer_pages(round)->nr, page))
			return true;
	return has_page(fake.announces, fake.nr_reports, page);
}

void receive_pin(const struct link_header *h, const void *body)
{
	_cleanup_(freep) struct fp *pages = NULL;
	_cleanup_(freep) uint8_t *pinned = NULL;
	uint32_t nr;

	if (link_decode_pin(body, h->len, &pages, &nr) < 0)
		fake_fail("PIN");
	pinned = calloc(nr + 1, 1);
	if (!pinned)
		fake_fail("memory");
	printf("pinned");
	for (uint32_t i = 0; i < nr; i++) {
		pinned[i] = pins((unsigned)pages[i].hi);
		if (pinned[i])
			printf(" %u", (unsigned)pages[i].hi);
	}
	puts("");
	link_encode_pinned(h->number, pinned, nr, &fake.link.out);
}

static bool is_page_of(unsigned page, const struct link_step *s)
{
	return page % s->nr_windows == s->window;
}

void receive_step(const struct link_header *h, const void *body)
{
	_cleanup_(freep) uint8_t *filter = NULL;
	struct link_done done = { 0 };
	struct link_step s;

	if (link_decode_step(body, h->len, &s) < 0)
		fake_fail("STEP");
	done.kind = s.kind;
	done.window = s.window;
	filter = calloc(1, s.len + 1);
	if (!filter)
		fake_fail("memory");
	switch (s.kind) {
	case LINK_PREPARE:
		printf("prepare %" PRIu64 "\n", h->number);
		done.nr_referred = fake.referred ? fake.referred : fake.nr_refers;
		if (fake.missing)
			snprintf(done.missing, sizeof(done.missing), "%s", fake.missing);
		break;
	case LINK_MARK:
		printf("mark %" PRIu64 " %" PRIu32 "/%" PRIu32 "\n", h->number, s.window, s.nr_windows);
		for (unsigned i = 0; i < fake.nr_refers; i++)
			if (is_page_of(fake.refers[i], &s))
				filter[fake.refers[i] / 8 % s.len] |= (uint8_t)(1u << fake.refers[i] % 8);
		done.len = s.len;
		done.filter = filter;
		break;
	case LINK_UNPIN:
		printf("unpin %" PRIu64 " %" PRIu32 "/%" PRIu32, h->number, s.window, s.nr_windows);
		for (unsigned i = 0; i < fake.nr_pinned; i++) {
			if (!is_page_of(fake.pinned[i], &s))
				continue;
			if (s.filter[fake.pinned[i] / 8 % s.len] >> fake.pinned[i] % 8 & 1) {
				printf(" %u", fake.pinned[i]);
				done.nr_kept++;
			} else {
				done.nr_dropped++;
			}
		}
		puts("");
		break;
	}
	done.error = fake.stored;
	if (done.error < 0)
		done.len = 0;
	link_encode_done(LINK_DONE, h->number, &done, &fake.link.out);
}

void receive_collected(const struct link_header *h, const void *body)
{
	struct link_done done;

	if (link_decode_done(body, h->len, &done) < 0)
		fake_fail("COLLECTED");
	printf("collected %" PRIu64 " %d %" PRIu64 " %s\n", h->number, -done.error, done.nr_dropped, done.missing);
	if (++fake.nr_collected <= fake.collections)
		next_step();
}

const char *step_name(const void *body, size_t len)
{
	struct link_step s;

	if (link_decode_step(body, len, &s) < 0)
		fake_fail("STEP");
	return s.kind == LINK_PREPARE ? "prepare" : s.kind == LINK_MARK ? "mark" : "unpin";
}
