/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A fake daemon: fake_daemon.c has its usage, the connection and the dispatch of messages. fake_args.c reads arguments,
 * fake_rounds.c has rounds, announcements and collections, fake_chunks.c chunks that are fetched, and fake_calls.c
 * requests to another store and the answers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mpi-agent/wire/arena.h"
#include "mpi-agent/wire/link.h"

#define PAGES_MAX 100000u
#define ROUNDS_MAX 8u
#define CHUNK_LEN 4096u
#define GIVEN_MAX 64u
#define FETCHES_MAX LINK_CHUNKS_MAX
#define IDS_MAX 1024u
#define CALLS_MAX 64u

struct fake_daemon {
	struct link_welcome welcome;
	struct pages {
		unsigned v[PAGES_MAX], nr;
	} pages[ROUNDS_MAX];
	unsigned nr_lists; /* of these */
	unsigned holds[PAGES_MAX], nr_holds;
	unsigned lost[PAGES_MAX], nr_lost;
	unsigned announces[PAGES_MAX], nr_reports;
	bool awaits_shared, is_shared;
	bool crosses;
	unsigned refers[PAGES_MAX], nr_refers;
	unsigned pinned[PAGES_MAX], nr_pinned;
	unsigned collections, nr_collected, referred;
	const char *missing;
	unsigned rounds, late_ms, refused;
	bool quit, memory;
	int stored;
	const char *silent, *die, *kill, *term, *freeze, *garbage;

	uint8_t ids[IDS_MAX][16];
	unsigned nr_ids;
	struct link_want wants[FETCHES_MAX];
	unsigned fetch_pages[FETCHES_MAX], nr_wants, times, nr_answers;

	struct call {
		enum link_type type;
		uint8_t id[16];
	} calls[CALLS_MAX];
	unsigned nr_calls, nr_called;
	struct pages puts;

	struct link link;
	struct arenas shared;
	struct given {
		uint64_t number;
		uint8_t *slot;
		size_t len;
	} given[GIVEN_MAX];
	unsigned nr_given;
	uint32_t nr_nodes;
	unsigned nr_settled;
	bool is_done;
};

extern struct fake_daemon fake; /* its arguments and state */

_Noreturn void fake_fail(const char *what);
/* Ascending with the page, so that an offer is in order. */
struct fp page_fp(unsigned page);
void page_fill(unsigned page, uint8_t *to);
bool has_page(const unsigned *pages, unsigned nr, unsigned page);
const char *message_name(enum link_type type);
bool is_named(const char *when, const char *name);
void has_sent(const char *name); /* flush a message of this name, and do what an argument wants after it */
void next_step(void); /* the next round, collection, calls and fetches, or the end */

/* fake_args.c */
void parse_argument(char *arg);

/* fake_rounds.c */
const struct pages *offer_pages(uint64_t round);
void announce(void);
void offer(uint64_t round);
void receive_shared(void);
void receive_decision(const struct link_header *h, const void *body);
void receive_settled(const struct link_header *h, const void *body);
void receive_pin(const struct link_header *h, const void *body);
const char *step_name(const void *body, size_t len);
void receive_step(const struct link_header *h, const void *body);
void receive_collected(const struct link_header *h, const void *body);

/* fake_chunks.c */
void receive_chunks(const struct link_header *h, const void *body);
void share_memory(void); /* both ends, or none */
void receive_taken(uint64_t number);
void receive_get(const struct link_header *h, const void *body);

/* fake_calls.c */
void send_calls_and_fetches(void);
void receive_put(const struct link_header *h, const void *body);
void receive_replicate(const struct link_header *h, const void *body);
void receive_drop(const struct link_header *h, const void *body);
void receive_question(const struct link_header *h, const void *body);
void receive_called(const struct link_header *h, const void *body); /* KEPT, REPLICATED, DROPPED, ANSWER */
