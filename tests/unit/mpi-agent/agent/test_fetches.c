/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which nodes an agent asks for the chunks that its daemon wants, in which order. What is between agents is here: a list of
 * what was asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/agent/fetches.h"
#include "mpi-agent/wire/link.h"
#include "mpi-agent/agent/peers.h"
#include "mpi-agent/agent/waits.h"
#include "mpi-agent/agent/world.h"

#define NODES 4u /* this one is 0 */
#define ASK_NS 1000u
#define CHUNK 4096u

static struct {
	uint32_t rank;
	uint64_t number;
} asked[16];
static unsigned nr_asked;

int peers_send(struct peers *p _unused_, uint32_t to, enum peer_type type, uint64_t number, const void *body _unused_,
	       size_t len _unused_)
{
	assert_int_equal(type, PEER_GET);
	assert_true(nr_asked < ARRAY_SIZE(asked));
	asked[nr_asked].rank = to;
	asked[nr_asked++].number = number;
	return 0;
}

void message_release(struct message *m)
{
	free(m->data);
	*m = MESSAGE_NONE;
}

void message_move(struct message *to, struct message *from)
{
	*to = *from;
	*from = MESSAGE_NONE;
}

struct rig {
	struct link_node nodes[NODES];
	uint32_t by_store[NODES];
	struct world w;
	struct waits waits;
	struct link daemon;
	struct fetches *fs;
	uint64_t number, now_ns;
};

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	for (uint32_t i = 0; i < NODES; i++) {
		rig->nodes[i].store_id[0] = (uint8_t)(i + 1);
		rig->by_store[i] = i;
	}
	rig->w = (struct world){ .nr = NODES, .nodes = rig->nodes, .by_store = rig->by_store };
	rig->waits = (struct waits){ .ask_ns = ASK_NS, .fetch_ns = UINT64_C(1) << 60 };
	link_init(&rig->daemon, -1);
	nr_asked = 0;
	*state = rig;
	return fetches_new(&rig->w, NULL, &rig->daemon, NULL, &rig->waits, &rig->fs);
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	fetches_free(rig->fs);
	link_release(&rig->daemon);
	free(rig);
	return 0;
}

static const struct link_want want = { .fp = { .lo = 5 }, .len = CHUNK, .nr_owners = 2, .owners = { 0, 1 } };

/* The daemon wants a chunk that nodes 1 and 2 should have. */
static void fetch(struct rig *rig)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint8_t ids[2][16] = { { 2 }, { 3 } };

	link_encode_fetch(++rig->number, (const uint8_t(*)[16])ids, 2, &want, 1, &b);
	assert_int_equal(fetches_fetch(rig->fs, rig->number, b.data + sizeof(struct link_header_wire),
				       b.len - sizeof(struct link_header_wire)),
			 0);
	assert_true(fetches_progress(rig->fs, rig->now_ns) >= 0);
}

/* The nth node asked says that it has it, or not. */
static void answer(struct rig *rig, unsigned nth, bool has_it)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	static const uint8_t bytes[CHUNK];
	const void *chunk = has_it ? bytes : NULL;
	struct message m = MESSAGE_NONE;

	link_encode_chunks(asked[nth].number, &want, &chunk, 1, &b);
	m.len = b.len - sizeof(struct link_header_wire) + sizeof(struct peer_header_wire);
	m.data = calloc(1, m.len);
	memcpy(m.data + sizeof(struct peer_header_wire), b.data + sizeof(struct link_header_wire),
	       b.len - sizeof(struct link_header_wire));
	assert_int_equal(fetches_chunks(rig->fs, asked[nth].rank, asked[nth].number, rig->now_ns, &m), 0);
	message_release(&m);
	assert_true(fetches_progress(rig->fs, rig->now_ns) >= 0);
}

static void time_is_up(struct rig *rig)
{
	rig->now_ns += ASK_NS;
	assert_true(fetches_progress(rig->fs, rig->now_ns) >= 0);
}

static void expect_asked(unsigned nr, const uint32_t *ranks)
{
	assert_int_equal(nr_asked, nr);
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(asked[i].rank, ranks[i]);
}
#define EXPECT_ASKED(...) \
	expect_asked(sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t), (const uint32_t[]){ __VA_ARGS__ })

static void owners_are_asked_and_then_all_peers(void **state)
{
	struct rig *rig = *state;

	fetch(rig);
	answer(rig, 0, false);
	answer(rig, 1, false);
	answer(rig, 2, false);
	EXPECT_ASKED(1, 2, 3);
	assert_int_equal(fetches_figures(rig->fs)->missing, 1);
}

static void a_node_that_did_not_answer_in_time_is_asked_last(void **state)
{
	struct rig *rig = *state;

	fetch(rig);
	time_is_up(rig);
	answer(rig, 1, true);
	EXPECT_ASKED(1, 2);
	for (unsigned i = 2; i < 7; i++) { /* no fetch waits for node 1 any more */
		fetch(rig);
		answer(rig, i, true);
	}
	EXPECT_ASKED(1, 2, 2, 2, 2, 2, 2);
	fetch(rig);
	answer(rig, 7, false);
	answer(rig, 8, false);
	answer(rig, 9, true); /* but for what no other node has */
	EXPECT_ASKED(1, 2, 2, 2, 2, 2, 2, 2, 3, 1);
	fetch(rig);
	answer(rig, 10, true); /* it has answered: as before */
	assert_int_equal(asked[10].rank, 1);
	assert_int_equal(fetches_figures(rig->fs)->missing, 0);
	assert_int_equal(fetches_figures(rig->fs)->chunks, 8);
}

static void an_answer_that_comes_late_is_one(void **state)
{
	struct rig *rig = *state;

	fetch(rig);
	time_is_up(rig);
	answer(rig, 1, true);
	answer(rig, 0, true);
	fetch(rig);
	EXPECT_ASKED(1, 2, 1);
}

static void a_node_that_is_silent_for_long_is_asked_last(void **state)
{
	struct rig *rig = *state;

	fetch(rig);
	answer(rig, 0, false); /* at once: it does not have it */
	answer(rig, 1, true);
	fetch(rig);
	rig->now_ns += ASK_NS / 4 * 3; /* as agents do if their daemon says nothing */
	answer(rig, 2, false);
	answer(rig, 3, true);
	fetch(rig);
	EXPECT_ASKED(1, 2, 1, 2, 2);
	answer(rig, 4, false);
	answer(rig, 5, false);
	rig->now_ns += ASK_NS / 4 * 3;
	answer(rig, 6, true); /* slowly, but it does */
	fetch(rig);
	EXPECT_ASKED(1, 2, 1, 2, 2, 3, 1, 1);
}

/* It is asked once for a chunk, also if it becomes late, or answers something else, while others are. */
static void no_node_is_asked_twice_for_a_chunk(void **state)
{
	struct rig *rig = *state;

	fetch(rig);
	fetch(rig);
	time_is_up(rig);
	EXPECT_ASKED(1, 1, 2, 2);
	fetch(rig); /* of these node 1 is late */
	EXPECT_ASKED(1, 1, 2, 2, 2);
	answer(rig, 0, true);
	for (unsigned i = 2; i < 5; i++)
		answer(rig, i, false);
	EXPECT_ASKED(1, 1, 2, 2, 2, 3, 3, 3);
	for (unsigned i = 5; i < 8; i++)
		answer(rig, i, false);
	EXPECT_ASKED(1, 1, 2, 2, 2, 3, 3, 3, 1);
	answer(rig, 8, false);
	assert_int_equal(nr_asked, 9);
	assert_int_equal(fetches_figures(rig->fs)->missing, 3);
}

int main(void)
{
#define with_rig(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		with_rig(owners_are_asked_and_then_all_peers),
		with_rig(a_node_that_did_not_answer_in_time_is_asked_last),
		with_rig(an_answer_that_comes_late_is_one),
		with_rig(a_node_that_is_silent_for_long_is_asked_last),
		with_rig(no_node_is_asked_twice_for_a_chunk),
	};

	return cmocka_run_group_tests_name("fetches", tests, NULL, NULL);
}
