/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What mounts ask each other: each comes back as it was sent, and none that lies is taken. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/daemon/nodes/question_format.h"
#include "tests/unit/golden.h"

static const struct question samples[] = {
	{ .kind = QUESTION_SEALS, .seals_after = 5, .replicas_after = QUESTION_AT_END },
	{ .kind = QUESTION_CATALOG, .store = "sixteen bytes...", .ino = 7, .sealed_ns = -8, .off = INT64_MAX },
	{ .kind = QUESTION_HOLD, .store = "sixteen bytes...", .ino = UINT64_MAX, .sealed_ns = INT64_MAX },
};

static void questions_round_trip(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct question q;

		question_encode(&samples[i], &b);
		assert_int_equal(b.len, 64);
		assert_int_equal(question_decode(b.data, b.len, &q), 0);
		assert_int_equal(q.kind, samples[i].kind);
		assert_int_equal(q.seals_after, samples[i].seals_after);
		assert_int_equal(q.replicas_after, samples[i].replicas_after);
		assert_memory_equal(q.store, samples[i].store, sizeof(q.store));
		assert_int_equal(q.ino, samples[i].ino);
		assert_int_equal(q.sealed_ns, samples[i].sealed_ns);
		assert_int_equal(q.off, samples[i].off);
		for (size_t len = 0; len < b.len; len++)
			assert_int_equal(question_decode(b.data, len, &q), -EBADMSG);
		buf_add_u8(&b, 0);
		assert_int_equal(question_decode(b.data, b.len, &q), -EBADMSG);
		b.data[0]++;
		assert_int_equal(question_decode(b.data, 64, &q), -EOPNOTSUPP);
		assert_int_equal(question_decode(b.data, 4, &q), -EOPNOTSUPP); /* of any length, then */
	}
}

/* What does not belong to a kind is not there. */
static void questions_are_plain(void **state)
{
	static const struct {
		unsigned sample;
		size_t at; /* of 64 bytes */
	} lies[] = {
		{ 0, 24 }, { 0, 40 }, { 0, 48 }, { 0, 56 }, { 1, 8 },  { 1, 16 },
		{ 2, 8 },  { 2, 16 }, { 2, 56 }, { 0, 7 },  { 1, 63 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct question q;

		question_encode(&samples[lies[i].sample], &b);
		b.data[lies[i].at] |= 0x80;
		assert_int_equal(question_decode(b.data, b.len, &q), -EBADMSG);
	}
}

static void lists_round_trip_and_damage_is_refused(void **state)
{
	static const struct answer_seal seals[] = {
		{ .store = "sixteen bytes...", .name = "n", .ino = 1, .sealed_ns = -2,
		  .access = ANSWER_ACCESS_KNOWN | 050, .path = "a/b" },
		{ .store = "sixteen others..", .name = "node-2", .ino = UINT64_MAX, .sealed_ns = 3, .path = "" },
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint64_t seals_after, replicas_after;
	struct answer_seal t;
	struct cursor c;

	(void)state;
	answer_head_encode(4, QUESTION_AT_END, &b);
	for (size_t i = 0; i < ARRAY_SIZE(seals); i++)
		answer_seal_encode(&seals[i], &b);
	c = cursor_of(b.data, b.len);
	assert_int_equal(answer_head_decode(&c, &seals_after, &replicas_after), 0);
	assert_int_equal(seals_after, 4);
	assert_true(replicas_after == QUESTION_AT_END);
	for (size_t i = 0; i < ARRAY_SIZE(seals); i++) {
		assert_int_equal(answer_seal_next(&c, &t), 1);
		assert_memory_equal(t.store, seals[i].store, sizeof(t.store));
		assert_string_equal(t.name, seals[i].name);
		assert_string_equal(t.path, seals[i].path);
		assert_int_equal(t.ino, seals[i].ino);
		assert_int_equal(t.sealed_ns, seals[i].sealed_ns);
		assert_int_equal(t.access, seals[i].access);
	}
	assert_int_equal(answer_seal_next(&c, &t), 0);
	c = cursor_of(b.data, 15);
	assert_int_equal(answer_head_decode(&c, &seals_after, &replicas_after), -EBADMSG);
	for (size_t len = 17; len < 16 + 36 + 4; len++) { /* the first one cut */
		c = cursor_of(b.data, len);
		assert_int_equal(answer_head_decode(&c, &seals_after, &replicas_after), 0);
		assert_int_equal(answer_seal_next(&c, &t), -EBADMSG);
	}
	for (size_t at = 16 + 32; at < 16 + 36 + 2; at++) { /* lengths, permissions of what is not told, names */
		uint8_t was = b.data[at];

		b.data[at] = at < 16 + 36 ? 0x7f : '/';
		c = cursor_of(b.data + 16, b.len - 16);
		assert_int_equal(answer_seal_next(&c, &t), -EBADMSG);
		b.data[at] = was;
	}
}

static void parts_of_catalogs_round_trip_and_lies_are_refused(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, end = BUF_EMPTY;
	const void *p;
	bool is_last;
	size_t len;

	(void)state;
	answer_catalog_encode(false, "part", 4, &b);
	assert_int_equal(answer_catalog_decode(b.data, b.len, &is_last, &p, &len), 0);
	assert_false(is_last);
	assert_int_equal(len, 4);
	assert_memory_equal(p, "part", 4);
	/* nothing, and more to come: for ever */
	assert_int_equal(answer_catalog_decode(b.data, 1, &is_last, &p, &len), -EBADMSG);
	assert_int_equal(answer_catalog_decode(b.data, 0, &is_last, &p, &len), -EBADMSG);
	b.data[0] = 2;
	assert_int_equal(answer_catalog_decode(b.data, b.len, &is_last, &p, &len), -EBADMSG);
	answer_catalog_encode(true, NULL, 0, &end);
	assert_int_equal(answer_catalog_decode(end.data, end.len, &is_last, &p, &len), 0);
	assert_true(is_last);
	assert_int_equal(len, 0);
}

static void questions_and_answers_have_these_bytes(void **state)
{
	static const struct answer_seal seal = { .store = "sixteen bytes...",
						 .name = "node-2",
						 .ino = 1,
						 .sealed_ns = -2,
						 .access = ANSWER_ACCESS_KNOWN | 050,
						 .path = "a/b" };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(samples); i++)
		question_encode(&samples[i], &b);
	answer_head_encode(4, QUESTION_AT_END, &b);
	answer_seal_encode(&seal, &b);
	answer_catalog_encode(true, "part", 4, &b);
	assert_int_equal(buf_error(&b), 0);
	golden_expect("question/v1.txt", "questions of all kinds, and answers", b.data, b.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(questions_and_answers_have_these_bytes),
		cmocka_unit_test(questions_round_trip),
		cmocka_unit_test(questions_are_plain),
		cmocka_unit_test(lists_round_trip_and_damage_is_refused),
		cmocka_unit_test(parts_of_catalogs_round_trip_and_lies_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
