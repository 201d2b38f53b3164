/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Messages between daemon and agent: each comes back as it was sent, and none that lies is taken. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/link_format.h"
#include "tests/unit/golden.h"

#define HEADER sizeof(struct link_header_wire)

static const uint8_t *body(const struct buf *b)
{
	return b->data + HEADER;
}

/* The header says what follows, and how much. */
static size_t check_header(const struct buf *b, enum link_type type, uint64_t number)
{
	struct link_header h;

	assert_int_equal(buf_error(b), 0);
	assert_int_equal(link_decode_header(b->data, HEADER, &h), 0);
	assert_int_equal(h.type, type);
	assert_int_equal(h.number, number);
	assert_int_equal(h.len, b->len - HEADER);
	return h.len;
}

static const struct link_welcome welcome = {
	.hash = FP_CLMUL,
	.incompat = 5,
	.replicas = 2,
	.popular_max = 1u << 17,
	.store_id = { 1, 2, 3 },
	.proof_key = { 4, 5, 6 },
	.name = "node-a",
};

static const struct link_node nodes[] = {
	{ .store_id = { 1 }, .host = 7, .name = "a" },
	{ .store_id = { 2 }, .host = 7, .name = "b c" },
	{ .store_id = { 3 }, .host = 0, .name = ".hidden" },
};

static const struct fp pages[] = { { .lo = 9, .hi = 1 }, { .lo = 1, .hi = 2 }, { .lo = 2, .hi = 2 } };

static const struct link_owners owners[] = {
	{ .index = 0, .nr = 1, .owners = { 2 } },
	{ .index = 2, .nr = 3, .owners = { 0, 1, 2 }, .has = 5 },
};

static const struct link_want wants[] = {
	{ .fp = { .lo = 5 }, .len = 4096, .nr_owners = 2, .owners = { 1, 0 } },
	{ .fp = { .lo = 4, .hi = 1 }, .len = 1 },
	{ .fp = { .lo = 5 }, .len = 1u << 20, .nr_owners = 4, .as_is = 1, .owners = { 0, 1, 0, 1 } },
	{ .fp = { .lo = 7 }, .len = 2, .as_is = 1 },
};

static const uint8_t store_ids[2][16] = { { 1 }, { 2 } };

static void greetings_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_welcome w;

	link_encode_hello(&b);
	assert_int_equal(link_decode_hello(body(&b), check_header(&b, LINK_HELLO, 0)), 0);
	buf_clear(&b);
	link_encode_welcome(&welcome, &b);
	assert_int_equal(link_decode_welcome(body(&b), check_header(&b, LINK_WELCOME, 0), &w), 0);
	assert_memory_equal(&w, &welcome, sizeof(w));
}

static void plain_messages_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	link_encode_plain(LINK_BEGIN, UINT64_C(0x123456789abcdef), &b);
	assert_int_equal(check_header(&b, LINK_BEGIN, UINT64_C(0x123456789abcdef)), 0);
	buf_clear(&b);
	link_encode_plain(LINK_REFUSED, EBUSY, &b);
	assert_int_equal(check_header(&b, LINK_REFUSED, EBUSY), 0);
}

static void nodes_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct link_node *back = NULL;
	uint32_t nr, self;

	link_encode_nodes(nodes, ARRAY_SIZE(nodes), 2, &b);
	assert_int_equal(link_decode_nodes(body(&b), check_header(&b, LINK_NODES, 0), &back, &nr, &self), 0);
	assert_int_equal(nr, ARRAY_SIZE(nodes));
	assert_int_equal(self, 2);
	assert_memory_equal(back, nodes, sizeof(nodes));
}

static void rounds_come_back(void **state _unused_)
{
	static const uint8_t has_stored[] = { 1, 0, 1 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *offered = NULL;
	_cleanup_(freep) struct link_owners *decided = NULL;
	const uint8_t *settled;
	uint32_t nr;
	int error;

	link_encode_offer(3, pages, ARRAY_SIZE(pages), &b);
	assert_int_equal(link_decode_offer(body(&b), check_header(&b, LINK_OFFER, 3), &offered, &nr), 0);
	assert_int_equal(nr, ARRAY_SIZE(pages));
	assert_memory_equal(offered, pages, sizeof(pages));
	buf_clear(&b);
	link_encode_decision(3, owners, ARRAY_SIZE(owners), &b);
	assert_int_equal(link_decode_decision(body(&b), check_header(&b, LINK_DECISION, 3), 3, 3, &decided, &nr), 0);
	assert_int_equal(nr, ARRAY_SIZE(owners));
	assert_memory_equal(decided, owners, sizeof(owners));
	buf_clear(&b);
	link_encode_stored(3, -ENOSPC, &b);
	assert_int_equal(link_decode_stored(body(&b), check_header(&b, LINK_STORED, 3), &error), 0);
	assert_int_equal(error, -ENOSPC);
	buf_clear(&b);
	link_encode_settled(3, has_stored, sizeof(has_stored), &b);
	assert_int_equal(link_decode_settled(body(&b), check_header(&b, LINK_SETTLED, 3), 3, &settled), 0);
	assert_memory_equal(settled, has_stored, sizeof(has_stored));
}

static void messages_about_nothing_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *offered = NULL;
	_cleanup_(freep) struct link_owners *decided = NULL;
	uint32_t nr = 1;

	link_encode_offer(3, NULL, 0, &b);
	assert_int_equal(link_decode_offer(body(&b), check_header(&b, LINK_OFFER, 3), &offered, &nr), 0);
	assert_int_equal(nr, 0);
	nr = 1;
	assert_int_equal(link_decode_decision(NULL, 0, 0, 1, &decided, &nr), 0);
	assert_int_equal(nr, 0);
}

static void fetches_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct link_want *back = NULL;
	const uint8_t(*ids)[16];
	uint32_t nr_nodes, nr;

	link_encode_fetch(8, store_ids, ARRAY_SIZE(store_ids), wants, ARRAY_SIZE(wants), &b);
	assert_int_equal(link_decode_fetch(body(&b), check_header(&b, LINK_FETCH, 8), &ids, &nr_nodes, &back, &nr), 0);
	assert_int_equal(nr_nodes, ARRAY_SIZE(store_ids));
	assert_memory_equal(ids, store_ids, sizeof(store_ids));
	assert_int_equal(nr, ARRAY_SIZE(wants));
	assert_memory_equal(back, wants, sizeof(wants));
}

static void gets_come_back_without_owners(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct link_want *back = NULL;
	uint32_t nr;

	link_encode_get(8, wants, ARRAY_SIZE(wants), &b);
	assert_int_equal(link_decode_get(body(&b), check_header(&b, LINK_GET, 8), &back, &nr), 0);
	assert_int_equal(nr, ARRAY_SIZE(wants));
	for (uint32_t i = 0; i < nr; i++) {
		assert_true(fp_equal(back[i].fp, wants[i].fp));
		assert_int_equal(back[i].len, wants[i].len);
		assert_int_equal(back[i].nr_owners, 0);
		assert_int_equal(back[i].as_is, wants[i].as_is);
	}
}

/* Behind the first byte of the memory, and inside of it. */
static void places_are_inside_of_the_memory(void **state _unused_)
{
	static const uint8_t memory[100];
	const struct link_want asked[] = { { .len = 10 }, { .len = 20 }, { .len = 30 } };
	const struct {
		uint64_t at;
		int r;
	} cases[] = { { 1, 0 },
		      { 70, 0 },
		      { 71, -EBADMSG },
		      { 100, -EBADMSG },
		      { 101, -EBADMSG },
		      { UINT64_MAX, -EBADMSG },
		      { UINT64_MAX - 10, -EBADMSG } };
	const void *chunks[] = { memory + 90, NULL, memory + 1 }, *back[3];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		size_t len;

		chunks[2] = (const void *)((uintptr_t)memory + cases[i].at);
		link_encode_places(7, memory, chunks, 3, &b);
		len = check_header(&b, LINK_PLACES, 7);
		assert_int_equal(link_decode_places(body(&b), len, asked, 3, memory, sizeof(memory), back), cases[i].r);
		if (cases[i].r == 0)
			assert_memory_equal(chunks, back, sizeof(back));
		for (size_t other = 0; other < len; other++)
			assert_int_equal(link_decode_places(body(&b), other, asked, 3, memory, sizeof(memory), back),
					 -EBADMSG);
	}
}

static void what_lies_there_is_inside_of_the_memory(void **state _unused_)
{
	static const struct {
		uint64_t off;
		uint32_t len;
		int r;
	} cases[] = { { 0, 0, 0 },
		      { 0, 100, 0 },
		      { 40, 60, 0 },
		      { 100, 0, 0 },
		      { 0, 101, -EBADMSG },
		      { 100, 1, -EBADMSG },
		      { UINT64_MAX, 2, -EBADMSG },
		      { 101, 0, -EBADMSG },
		      { 40, UINT32_MAX, -EBADMSG } };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		uint64_t off = 0;
		uint32_t there = 0;
		size_t len;

		link_encode_there(3, cases[i].off, cases[i].len, &b);
		len = check_header(&b, LINK_THERE, 3);
		assert_int_equal(link_decode_there(body(&b), len, 100, &off, &there), cases[i].r);
		if (cases[i].r == 0)
			assert_true(off == cases[i].off && there == cases[i].len);
		assert_int_equal(link_decode_there(body(&b), len - 1, 100, &off, &there), -EBADMSG);
	}
}

static void chunks_come_back(void **state _unused_)
{
	static const struct link_want asked[] = { { .len = 3 }, { .len = 5 }, { .len = 1 } };
	const void *chunks[] = { "abc", NULL, "z" }, *back[3];
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	size_t len;

	link_encode_chunks(9, asked, chunks, 3, &b);
	len = check_header(&b, LINK_CHUNKS, 9);
	assert_int_equal(len, 3 + 3 + 1);
	assert_int_equal(link_decode_chunks(body(&b), len, asked, 3, back), 0);
	assert_memory_equal(back[0], "abc", 3);
	assert_null(back[1]);
	assert_memory_equal(back[2], "z", 1);
	for (size_t other = 0; other < len; other++)
		assert_int_equal(link_decode_chunks(body(&b), other, asked, 3, back), -EBADMSG);
	b.data[HEADER + 1] = 2;
	assert_int_equal(link_decode_chunks(body(&b), len, asked, 3, back), -EBADMSG);
	b.data[HEADER + 1] = 1; /* then there are too few bytes */
	assert_int_equal(link_decode_chunks(body(&b), len, asked, 3, back), -EBADMSG);
	assert_null(back[1]);
}

static void pages_are_reported_in_any_order_and_not_too_many(void **state _unused_)
{
	static uint8_t many[(LINK_ANNOUNCE_MAX + 1) * FP_LEN];
	const struct fp announced[] = { { .lo = 3 }, { .lo = 1 }, { .lo = 3 } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *back = NULL;
	size_t len;
	uint32_t nr;

	link_encode_announce(announced, 3, &b);
	len = check_header(&b, LINK_ANNOUNCE, 0);
	assert_int_equal(link_decode_announce(body(&b), len, &back, &nr), 0);
	assert_int_equal(nr, 3);
	assert_memory_equal(back, announced, sizeof(announced));
	free(TAKE(back));
	assert_int_equal(link_decode_offer(body(&b), len, &back, &nr), -EBADMSG);
	assert_int_equal(link_decode_announce(body(&b), len - 1, &back, &nr), -EBADMSG);
	assert_int_equal(link_decode_announce(many, sizeof(many), &back, &nr), -EBADMSG);
	assert_int_equal(link_decode_announce(many, sizeof(many) - FP_LEN, &back, &nr), 0);
}

/* --- lies --- */

static void lying_headers_are_refused(void **state _unused_)
{
	static const struct {
		size_t at;
		uint8_t value;
	} lies[] = {
		{ 3, 0xff }, /* too long */
		{ 0, 1 }, /* BEGIN has nothing behind it */
		{ 4, 0 },
		{ 4, LINK_DROPPED + 1 },
		{ 4, LINK_QUERY - 1 },
		{ 4, LINK_ANSWER + 1 },
		{ 4, LINK_ANNOUNCE - 1 },
		{ 4, LINK_SHARED + 1 },
		{ 5, 1 },
		{ 6, 1 },
		{ 7, 1 },
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_header h;

	link_encode_plain(LINK_BEGIN, 1, &b);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint8_t was = b.data[lies[i].at];

		b.data[lies[i].at] = lies[i].value;
		assert_int_equal(link_decode_header(b.data, HEADER, &h), -EBADMSG);
		b.data[lies[i].at] = was;
	}
	assert_int_equal(link_decode_header(b.data, HEADER - 1, &h), -EBADMSG);
	assert_int_equal(link_decode_header(b.data, HEADER, &h), 0);
}

static void other_versions_are_reported(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_welcome w;

	link_encode_welcome(&welcome, &b);
	b.data[HEADER] = LINK_VERSION + 1;
	assert_int_equal(link_decode_hello(body(&b), 4), -EOPNOTSUPP);
	assert_int_equal(link_decode_hello(body(&b), 8), -EOPNOTSUPP);
	assert_int_equal(link_decode_hello(body(&b), 3), -EBADMSG);
	assert_int_equal(link_decode_welcome(body(&b), 4, &w), -EOPNOTSUPP);
	b.data[HEADER] = LINK_VERSION;
	assert_int_equal(link_decode_hello(body(&b), 5), -EBADMSG);
	assert_int_equal(link_decode_welcome(body(&b), sizeof(struct link_welcome_wire) - 1, &w), -EBADMSG);
	assert_int_equal(link_decode_welcome(body(&b), sizeof(struct link_welcome_wire), &w), 0);
}

static int decode_changed_welcome(struct link_welcome changed)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_welcome w;

	link_encode_welcome(&changed, &b);
	return link_decode_welcome(body(&b), b.len - HEADER, &w);
}

static void lying_welcomes_are_refused(void **state _unused_)
{
	static const char *const names[] = { "", ".", "..", "a/b", "a\nb", "a\x7f", "a\xc3\xa4", "\x1b[0m" };
	struct link_welcome lies[] = { welcome, welcome, welcome, welcome, welcome };

	lies[0].hash = 0;
	lies[1].hash = NR_FP_KINDS;
	lies[2].replicas = 0;
	lies[3].replicas = LINK_OWNERS_MAX + 1;
	lies[4].popular_max = 0;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		assert_int_equal(decode_changed_welcome(lies[i]), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct link_welcome lie = welcome;

		memset(lie.name, 0, sizeof(lie.name));
		memcpy(lie.name, names[i], strlen(names[i]));
		assert_int_equal(decode_changed_welcome(lie), -EBADMSG);
	}
	assert_int_equal(decode_changed_welcome(welcome), 0);
}

static void names_end_and_have_nothing_behind_them(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_welcome w;
	uint8_t *name;

	link_encode_welcome(&welcome, &b);
	name = b.data + HEADER + offsetof(struct link_welcome_wire, name);
	name[LINK_NAME_LEN - 1] = 'x';
	assert_int_equal(link_decode_welcome(body(&b), sizeof(struct link_welcome_wire), &w), -EBADMSG);
	memset(name, 'x', LINK_NAME_LEN);
	assert_int_equal(link_decode_welcome(body(&b), sizeof(struct link_welcome_wire), &w), -EBADMSG);
	name[LINK_NAME_LEN - 1] = 0;
	assert_int_equal(link_decode_welcome(body(&b), sizeof(struct link_welcome_wire), &w), 0);
}

static void lying_nodes_are_refused(void **state _unused_)
{
	static const struct {
		size_t at;
		uint8_t value;
	} lies[] = {
		{ 0, 2 },      { 0, 4 }, { 0, 0 }, { 3, 0x80 }, { 4, 3 }, { 7, 0xff }, /* numbers */
		{ 8 + 20, 0 }, /* a node without a name */
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_node *back = NULL;
	uint32_t nr, self;

	link_encode_nodes(nodes, ARRAY_SIZE(nodes), 2, &b);
	for (size_t len = 0; len < b.len - HEADER; len++)
		assert_int_equal(link_decode_nodes(body(&b), len, &back, &nr, &self), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		uint8_t was = b.data[HEADER + lies[i].at];

		b.data[HEADER + lies[i].at] = lies[i].value;
		assert_int_equal(link_decode_nodes(body(&b), b.len - HEADER, &back, &nr, &self), -EBADMSG);
		b.data[HEADER + lies[i].at] = was;
	}
	assert_null(back);
}

static void offers_are_ascending_and_whole(void **state _unused_)
{
	const struct fp lies[][2] = { { pages[1], pages[0] }, { pages[1], pages[1] } };
	struct fp *back = NULL;
	uint32_t nr;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		link_encode_offer(1, lies[i], 2, &b);
		assert_int_equal(link_decode_offer(body(&b), b.len - HEADER, &back, &nr), -EBADMSG);
		assert_int_equal(link_decode_offer(body(&b), FP_LEN + 1, &back, &nr), -EBADMSG);
	}
	assert_null(back);
}

static void questions_come_back_and_lies_are_refused(void **state _unused_)
{
	static const uint8_t id[16] = { 1, 2, 3 };
	static uint8_t large[LINK_ANSWER_MAX + 5];
	_cleanup_(buf_release) struct buf query = BUF_EMPTY, question = BUF_EMPTY, answer = BUF_EMPTY, none = BUF_EMPTY;
	const uint8_t *to;
	const void *p;
	size_t len;
	int error;

	link_encode_query(7, id, "what", 4, &query);
	assert_int_equal(link_decode_query(body(&query), check_header(&query, LINK_QUERY, 7), &to, &p, &len), 0);
	assert_memory_equal(to, id, sizeof(id));
	assert_int_equal(len, 4);
	assert_memory_equal(p, "what", 4);
	for (size_t n = 0; n <= sizeof(id); n++) /* without a whole id, or without a question */
		assert_int_equal(link_decode_query(body(&query), n, &to, &p, &len), -EBADMSG);
	link_encode_body(LINK_QUESTION, 8, "what", 4, &question);
	assert_int_equal(link_decode_question(body(&question), check_header(&question, LINK_QUESTION, 8)), 0);
	assert_int_equal(link_decode_question(large, 0), -EBADMSG);
	assert_int_equal(link_decode_question(large, LINK_QUESTION_MAX), 0);
	assert_int_equal(link_decode_question(large, LINK_QUESTION_MAX + 1), -EBADMSG);
	assert_int_equal(link_decode_query(large, 16 + LINK_QUESTION_MAX + 1, &to, &p, &len), -EBADMSG);
	link_encode_answer(9, 0, "that", 4, &answer);
	assert_int_equal(link_decode_answer(body(&answer), check_header(&answer, LINK_ANSWER, 9), &error, &p, &len), 0);
	assert_int_equal(error, 0);
	assert_int_equal(len, 4);
	assert_memory_equal(p, "that", 4);
	link_encode_answer(9, -ENOENT, NULL, 0, &none);
	assert_int_equal(link_decode_answer(body(&none), check_header(&none, LINK_ANSWER, 9), &error, &p, &len), 0);
	assert_int_equal(error, -ENOENT);
	assert_int_equal(len, 0);
	answer.data[HEADER] = ENOENT; /* an error, with bytes */
	assert_int_equal(link_decode_answer(body(&answer), 8, &error, &p, &len), -EBADMSG);
	none.data[HEADER + 1] = 0x10; /* no such error */
	assert_int_equal(link_decode_answer(body(&none), 4, &error, &p, &len), -EBADMSG);
	assert_int_equal(link_decode_answer(body(&none), 3, &error, &p, &len), -EBADMSG);
	assert_int_equal(link_decode_answer(large, sizeof(large), &error, &p, &len), -EBADMSG);
}

static void pinning_comes_back_and_lies_are_refused(void **state _unused_)
{
	_cleanup_(freep) struct fp *many = calloc(LINK_CHUNKS_MAX + 1, sizeof(*many)), *back = NULL, *all = NULL;
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const uint8_t *pinned;
	uint32_t nr;

	link_encode_pin(7, pages, 3, &b);
	assert_int_equal(link_decode_pin(body(&b), check_header(&b, LINK_PIN, 7), &back, &nr), 0);
	assert_int_equal(nr, 3);
	assert_memory_equal(back, pages, sizeof(pages));
	assert_int_equal(link_decode_pin(body(&b), 3 * FP_LEN - 1, &all, &nr), -EBADMSG);
	assert_int_equal(link_decode_pin(body(&b) + FP_LEN, FP_LEN, &all, &nr), 0);
	free(TAKE(all));
	for (unsigned i = 0; i <= LINK_CHUNKS_MAX; i++)
		many[i].lo = i;
	buf_clear(&b);
	link_encode_pin(7, many, LINK_CHUNKS_MAX + 1, &b);
	assert_int_equal(link_decode_pin(body(&b), b.len - HEADER, &all, &nr), -EBADMSG);
	assert_int_equal(link_decode_pin(body(&b), b.len - HEADER - FP_LEN, &all, &nr), 0);

	buf_clear(&b);
	link_encode_pinned(7, (const uint8_t *)"\1\0\1", 3, &b);
	assert_int_equal(link_decode_pinned(body(&b), check_header(&b, LINK_PINNED, 7), 3, &pinned), 0);
	assert_memory_equal(pinned, "\1\0\1", 3);
	assert_int_equal(link_decode_pinned(body(&b), 3, 2, &pinned), -EBADMSG);
	assert_int_equal(link_decode_pinned(body(&b), 3, 4, &pinned), -EBADMSG);
	b.data[HEADER + 1] = 2;
	assert_int_equal(link_decode_pinned(body(&b), 3, 3, &pinned), -EBADMSG);
}

static int decode_two_owners(const struct link_owners lie[2], uint32_t nr_offered, uint32_t nr_nodes)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct link_owners *back = NULL;
	uint32_t nr;

	link_encode_decision(1, lie, 2, &b);
	return link_decode_decision(body(&b), b.len - HEADER, nr_offered, nr_nodes, &back, &nr);
}

static void lying_decisions_are_refused(void **state _unused_)
{
	static const struct link_owners lies[][2] = {
		{ { .index = 1, .nr = 1 }, { .index = 1, .nr = 1 } }, /* each once, */
		{ { .index = 1, .nr = 1 }, { .index = 0, .nr = 1 } }, /* ascending, */
		{ { .index = 0, .nr = 1 }, { .index = 3, .nr = 1 } }, /* of the offer */
		{ { .index = 0, .nr = 0 }, { .index = 1, .nr = 1 } },
		{ { .index = 0, .nr = 1, .owners = { 3 } }, { .index = 1, .nr = 1 } },
		{ { .index = 0, .nr = 2, .owners = { 1, 1 } }, { .index = 1, .nr = 1 } },
		{ { .index = 0, .nr = 2, .owners = { 2, 1 } }, { .index = 1, .nr = 1 } },
	};
	static const struct {
		size_t at;
		uint8_t value;
	} bytes[] = { { 4, 5 }, { 5, 2 }, { 6, 1 }, { 7, 1 }, { 10, 1 } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_owners *back = NULL;
	uint32_t nr;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		assert_int_equal(decode_two_owners(lies[i], 3, 3), -EBADMSG);
	assert_int_equal(decode_two_owners(owners, 3, 3), 0);
	assert_int_equal(decode_two_owners(owners, 3, 2), -EBADMSG);
	assert_int_equal(decode_two_owners(owners, 1, 3), -EBADMSG);
	link_encode_decision(1, owners, 1, &b);
	assert_int_equal(link_decode_decision(body(&b), 15, 3, 3, &back, &nr), -EBADMSG);
	for (size_t i = 0; i < ARRAY_SIZE(bytes); i++) {
		uint8_t was = b.data[HEADER + bytes[i].at];

		b.data[HEADER + bytes[i].at] = bytes[i].value;
		assert_int_equal(link_decode_decision(body(&b), 16, 3, 3, &back, &nr), -EBADMSG);
		b.data[HEADER + bytes[i].at] = was;
	}
	assert_null(back);
}

static void lying_ends_of_rounds_are_refused(void **state _unused_)
{
	static const uint8_t large[] = { 0, 0x10, 0, 0 }, has_stored[] = { 1, 2 };
	const uint8_t *settled;
	int error;

	assert_int_equal(link_decode_stored(large, 4, &error), -EBADMSG);
	assert_int_equal(link_decode_stored(large, 3, &error), -EBADMSG);
	assert_int_equal(link_decode_settled(has_stored, 2, 2, &settled), -EBADMSG);
	assert_int_equal(link_decode_settled(has_stored, 1, 2, &settled), -EBADMSG);
	assert_int_equal(link_decode_settled(has_stored, 1, 1, &settled), 0);
}

static int decode_changed_fetch(size_t at, uint8_t value)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct link_want *back = NULL;
	const uint8_t(*ids)[16];
	uint32_t nr_nodes, nr;

	link_encode_fetch(8, store_ids, ARRAY_SIZE(store_ids), wants, ARRAY_SIZE(wants), &b);
	b.data[HEADER + at] = value;
	return link_decode_fetch(body(&b), b.len - HEADER, &ids, &nr_nodes, &back, &nr);
}

static void lying_fetches_are_refused(void **state _unused_)
{
	const size_t first = 8 + sizeof(store_ids), second = first + sizeof(struct link_fetch_wire);
	const struct {
		size_t at;
		uint8_t value;
	} lies[] = {
		{ 0, 1 },
		{ 0, 3 },
		{ 3, 1 },
		{ 4, 3 },
		{ 4, 5 },
		{ 7, 0xff }, /* numbers */
		{ first + FP_LEN, 5 }, /* owners */
		{ first + FP_LEN, LINK_AS_IS | 5 },
		{ first + FP_LEN, 0x40 }, /* what is not known */
		{ first + 20, 2 },
		{ second + 20, 1 }, /* of one that has none */
		{ second + FP_LEN + 1, 0 }, /* a chunk without bytes, ... */
		{ second + FP_LEN + 3, 0x10 }, /* of a MiB and one byte */
	};

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++)
		assert_int_equal(decode_changed_fetch(lies[i].at, lies[i].value), -EBADMSG);
	assert_int_equal(decode_changed_fetch(0, 2), 0);
}

static void no_more_is_asked_for_than_there_may_be(void **state _unused_)
{
	_cleanup_(freep) struct link_want *many = calloc(LINK_CHUNKS_MAX + 1, sizeof(*many));
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_want *back = NULL;
	uint32_t nr;

	assert_non_null(many);
	for (uint32_t i = 0; i <= LINK_CHUNKS_MAX; i++)
		many[i].len = 1;
	link_encode_get(1, many, LINK_CHUNKS_MAX + 1, &b);
	assert_int_equal(link_decode_get(body(&b), b.len - HEADER, &back, &nr), -EBADMSG);
	assert_int_equal(link_decode_get(body(&b), b.len - HEADER - 1, &back, &nr), -EBADMSG);
	for (uint32_t i = 0; i < 17; i++)
		many[i].len = 1u << 20;
	buf_clear(&b);
	link_encode_get(1, many, 17, &b);
	assert_int_equal(link_decode_get(body(&b), b.len - HEADER, &back, &nr), -EBADMSG);
	assert_null(back);
	assert_int_equal(link_decode_get(body(&b), 16 * sizeof(struct link_want_wire), &back, &nr), 0);
	free(back);
}

static void steps_come_back(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	static uint8_t filter[LINK_FILTER_MIN] = { 1, 2, 3 };
	const struct link_step steps[] = {
		{ .kind = LINK_PREPARE },
		{ .kind = LINK_MARK, .window = 2, .nr_windows = 3, .len = LINK_FILTER_MAX, .seed = 5 },
		{ .kind = LINK_UNPIN, .window = 0, .nr_windows = 1, .len = sizeof(filter), .seed = 6, .filter =
			filter },
	};
	struct link_step back;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		buf_clear(&b);
		link_encode_step(9, &steps[i], &b);
		check_header(&b, LINK_STEP, 9);
		assert_int_equal(link_decode_step(body(&b), b.len - HEADER, &back), 0);
		assert_int_equal(back.kind, steps[i].kind);
		assert_int_equal(back.window, steps[i].window);
		assert_int_equal(back.nr_windows, steps[i].nr_windows);
		assert_int_equal(back.len, steps[i].len);
		assert_int_equal(back.seed, steps[i].seed);
		assert_int_equal(back.filter != NULL, steps[i].filter != NULL);
		for (size_t len = 0; len < MIN(b.len - HEADER, (size_t)100); len++)
			assert_int_equal(link_decode_step(body(&b), len, &back), -EBADMSG);
	}
	assert_memory_equal(back.filter, filter, sizeof(filter));
}

static void lying_steps_are_refused(void **state)
{
	static uint8_t filter[2 * LINK_FILTER_MIN];
	const struct link_step steps[] = {
		{ .kind = 0 },
		{ .kind = 4, .nr_windows = 1, .len = LINK_FILTER_MIN },
		{ .kind = LINK_PREPARE, .seed = 1 },
		{ .kind = LINK_MARK, .window = 1, .nr_windows = 1, .len = LINK_FILTER_MIN },
		{ .kind = LINK_MARK, .nr_windows = 1, .len = LINK_FILTER_MIN - 1 },
		{ .kind = LINK_MARK, .nr_windows = 1, .len = LINK_FILTER_MAX + 1 },
		{ .kind = LINK_UNPIN, .nr_windows = 1, .len = LINK_FILTER_MIN - 1, .filter = filter },
	};
	struct link_step back;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		link_encode_step_body(&steps[i], &b);
		assert_int_equal(link_decode_step(b.data, b.len, &back), -EBADMSG);
	}
}

static void what_is_done_comes_back(void **state)
{
	static uint8_t filter[LINK_FILTER_MIN] = { 1, 2, 3 };
	const struct link_done done[] = {
		{ .kind = LINK_PREPARE, .nr_referred = 5, .missing = "far" },
		{ .kind = LINK_MARK, .window = 7, .len = sizeof(filter), .filter = filter },
		{ .kind = LINK_MARK, .window = 7, .error = -EIO },
		{ .kind = LINK_UNPIN, .nr_kept = 1, .kept_bytes = 2, .nr_dropped = 3, .dropped_bytes = 4 },
		{ .kind = 0, .error = -ETIMEDOUT, .nr_dropped = 3 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(done); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY, again = BUF_EMPTY;
		struct link_done back;

		link_encode_done(LINK_DONE, 3, &done[i], &b);
		check_header(&b, LINK_DONE, 3);
		assert_int_equal(link_decode_done(body(&b), b.len - HEADER, &back), 0);
		assert_int_equal(back.error, done[i].error);
		assert_string_equal(back.missing, done[i].missing);
		link_encode_done(LINK_DONE, 3, &back, &again);
		assert_int_equal(again.len, b.len);
		assert_memory_equal(again.data, b.data, b.len);
		assert_int_equal(link_decode_done(body(&b), b.len - HEADER - 1, &back), -EBADMSG);
		b.data[HEADER + 8 + 2] = 1; /* no such errno */
		assert_int_equal(link_decode_done(body(&b), b.len - HEADER, &back), -EBADMSG);
	}
}

/* One of each type that has bytes of its own; what nodes keep for each other is in test_link_keep_format.c. */
static void messages_have_these_bytes(void **state _unused_)
{
	static const struct link_step prepare = { .kind = LINK_PREPARE };
	static const struct link_step mark = {
		.kind = LINK_MARK, .window = 2, .nr_windows = 3, .len = LINK_FILTER_MAX, .seed = 5
	};
	static const struct link_done done = { .kind = LINK_PREPARE, .nr_referred = 5, .missing = "far" };
	static const struct link_done collected = { .kind = 0, .error = -ETIMEDOUT, .nr_dropped = 3, .dropped_bytes = 4 };
	static const char base[] = "abcde";
	const void *chunks[] = { "abc", NULL, "z" }, *there[] = { base + 1, NULL, base + 4 };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	link_encode_hello(&b);
	link_encode_welcome(&welcome, &b);
	link_encode_nodes(nodes, ARRAY_SIZE(nodes), 2, &b);
	link_encode_plain(LINK_BEGIN, UINT64_C(0x123456789abcdef), &b);
	link_encode_announce(pages, ARRAY_SIZE(pages), &b);
	link_encode_offer(3, pages, ARRAY_SIZE(pages), &b);
	link_encode_decision(3, owners, ARRAY_SIZE(owners), &b);
	link_encode_stored(3, -ENOSPC, &b);
	link_encode_settled(3, (const uint8_t *)"\1\0\1", 3, &b);
	link_encode_fetch(8, store_ids, ARRAY_SIZE(store_ids), wants, ARRAY_SIZE(wants), &b);
	link_encode_get(8, wants, ARRAY_SIZE(wants), &b);
	link_encode_chunks(9, (const struct link_want[]){ { .len = 3 }, { .len = 5 }, { .len = 1 } }, chunks, 3, &b);
	link_encode_places(9, base, there, 3, &b);
	link_encode_there(9, 77, 4096, &b);
	link_encode_pin(7, pages, ARRAY_SIZE(pages), &b);
	link_encode_pinned(7, (const uint8_t *)"\1\0\1", 3, &b);
	link_encode_step(9, &prepare, &b);
	link_encode_step(9, &mark, &b);
	link_encode_done(LINK_DONE, 3, &done, &b);
	link_encode_done(LINK_COLLECTED, 3, &collected, &b);
	link_encode_query(7, store_ids[0], "what", 4, &b);
	link_encode_body(LINK_QUESTION, 8, "what", 4, &b);
	link_encode_answer(9, 0, "that", 4, &b);
	assert_int_equal(buf_error(&b), 0);
	golden_expect("link/v1.txt", "messages between daemon and agent, one after the other", b.data, b.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greetings_come_back),
		cmocka_unit_test(plain_messages_come_back),
		cmocka_unit_test(nodes_come_back),
		cmocka_unit_test(rounds_come_back),
		cmocka_unit_test(messages_about_nothing_come_back),
		cmocka_unit_test(fetches_come_back),
		cmocka_unit_test(gets_come_back_without_owners),
		cmocka_unit_test(chunks_come_back),
		cmocka_unit_test(places_are_inside_of_the_memory),
		cmocka_unit_test(what_lies_there_is_inside_of_the_memory),
		cmocka_unit_test(pages_are_reported_in_any_order_and_not_too_many),
		cmocka_unit_test(lying_headers_are_refused),
		cmocka_unit_test(other_versions_are_reported),
		cmocka_unit_test(lying_welcomes_are_refused),
		cmocka_unit_test(names_end_and_have_nothing_behind_them),
		cmocka_unit_test(lying_nodes_are_refused),
		cmocka_unit_test(offers_are_ascending_and_whole),
		cmocka_unit_test(pinning_comes_back_and_lies_are_refused),
		cmocka_unit_test(questions_come_back_and_lies_are_refused),
		cmocka_unit_test(lying_decisions_are_refused),
		cmocka_unit_test(lying_ends_of_rounds_are_refused),
		cmocka_unit_test(lying_fetches_are_refused),
		cmocka_unit_test(no_more_is_asked_for_than_there_may_be),
		cmocka_unit_test(steps_come_back),
		cmocka_unit_test(lying_steps_are_refused),
		cmocka_unit_test(what_is_done_comes_back),
		cmocka_unit_test(messages_have_these_bytes),
	};

	return cmocka_run_group_tests_name("link_format", tests, NULL, NULL);
}
