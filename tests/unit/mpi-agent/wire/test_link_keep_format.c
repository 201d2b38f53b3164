/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Messages about what nodes keep for each other: each comes back as it was sent, and none that lies is taken. */
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
#define NODE "sixteen bytes..."

static const struct link_want wants[] = {
	{ .fp = { .lo = 5 }, .len = 3 },
	{ .fp = { .lo = 4, .hi = 9 }, .len = 1u << 20 },
	{ .fp = { .lo = 6 }, .len = 2 },
};

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

static void put_release(struct link_put *p)
{
	free(p->wants);
	free(p->chunks);
}

static int decode_put(const struct buf *b, size_t len)
{
	_cleanup_(put_release) struct link_put p = { 0 };

	return link_decode_put(b->data + HEADER, len, &p);
}

static void what_is_put_comes_back(void **state _unused_)
{
	const void *const chunks[] = { "abc", NULL, "de" };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, nothing = BUF_EMPTY;
	_cleanup_(put_release) struct link_put p = { 0 };
	size_t len;

	link_encode_put(7, (const uint8_t *)NODE, wants, chunks, 3, &b);
	len = check_header(&b, LINK_PUT, 7);
	assert_int_equal(len, 16 + 4 + 3 * 20 + 3 + 5);
	assert_int_equal(link_decode_put(b.data + HEADER, len, &p), 0);
	assert_memory_equal(p.node, NODE, 16);
	assert_int_equal(p.nr, 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(fp_equal(p.wants[i].fp, wants[i].fp));
		assert_int_equal(p.wants[i].len, wants[i].len);
		assert_int_equal(p.chunks[i] != NULL, chunks[i] != NULL);
		if (chunks[i])
			assert_memory_equal(p.chunks[i], chunks[i], wants[i].len);
	}
	for (size_t less = 0; less < len; less++)
		assert_int_equal(decode_put(&b, less), -EBADMSG);
	link_encode_put(7, (const uint8_t *)NODE, wants, chunks, 0, &nothing);
	assert_int_equal(decode_put(&nothing, nothing.len - HEADER), 0);
}

static void lies_about_what_is_put_are_refused(void **state _unused_)
{
	static const struct {
		size_t at;
		uint8_t byte;
	} lies[] = {
		{ 16, 4 }, /* one more than there are */
		{ 16 + 2, 1 }, /* many more */
		{ 20 + 15, 1 }, /* an owner */
		{ 20 + 15, LINK_AS_IS },
		{ 20 + 16, 0 }, /* of no length */
		{ 20 + 20 + 16 + 3, 1 }, /* longer than a chunk is */
		{ 20 + 60, 2 }, /* neither here nor not */
		{ 20 + 61, 1 }, /* here, without its bytes */
		{ 20 + 62, 0 }, /* not here, with them */
	};
	const void *const chunks[] = { "abc", NULL, "de" };

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;

		link_encode_put(7, (const uint8_t *)NODE, wants, chunks, 3, &b);
		b.data[HEADER + lies[i].at] = lies[i].byte;
		assert_int_equal(decode_put(&b, b.len - HEADER), -EBADMSG);
	}
}

static void no_more_is_put_than_there_may_be(void **state _unused_)
{
	_cleanup_(freep) uint8_t *bytes = calloc(1, 1u << 20);
	_cleanup_(buf_release) struct buf most = BUF_EMPTY, more = BUF_EMPTY;
	struct link_want mib[5];
	const void *chunks[5];

	for (unsigned i = 0; i < 5; i++) {
		mib[i] = (struct link_want){ .fp = { .lo = i }, .len = 1u << 20 };
		chunks[i] = bytes;
	}
	link_encode_put(1, (const uint8_t *)NODE, mib, chunks, 4, &most);
	assert_int_equal(decode_put(&most, most.len - HEADER), 0);
	link_encode_put(1, (const uint8_t *)NODE, mib, chunks, 5, &more);
	assert_int_equal(decode_put(&more, more.len - HEADER), -EBADMSG);
}

static void what_is_kept_comes_back_and_lies_are_refused(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, error = BUF_EMPTY;
	const uint8_t *kept;
	int r;

	link_encode_kept(8, 0, (const uint8_t *)"\0\1\2", 3, &b);
	assert_int_equal(link_decode_kept(b.data + HEADER, check_header(&b, LINK_KEPT, 8), 3, &r, &kept), 0);
	assert_int_equal(r, 0);
	assert_memory_equal(kept, "\0\1\2", 3);
	assert_int_equal(link_decode_kept(b.data + HEADER, 7, 2, &r, &kept), -EBADMSG);
	assert_int_equal(link_decode_kept(b.data + HEADER, 7, 4, &r, &kept), -EBADMSG);
	b.data[HEADER + 4] = 3;
	assert_int_equal(link_decode_kept(b.data + HEADER, 7, 3, &r, &kept), -EBADMSG);

	link_encode_kept(8, -ENOSPC, (const uint8_t *)"\0\0", 2, &error);
	assert_int_equal(link_decode_kept(error.data + HEADER, 6, 2, &r, &kept), 0);
	assert_int_equal(r, -ENOSPC);
	error.data[HEADER + 5] = 1; /* something, though it failed */
	assert_int_equal(link_decode_kept(error.data + HEADER, 6, 2, &r, &kept), -EBADMSG);
	error.data[HEADER + 5] = 0;
	error.data[HEADER + 2] = 1; /* no such errno */
	assert_int_equal(link_decode_kept(error.data + HEADER, 6, 2, &r, &kept), -EBADMSG);
}

static struct link_replica sample(void)
{
	struct link_replica c = { .node = NODE,
				  .origin = "who sealed it...",
				  .name = "node-1",
				  .ino = UINT64_MAX,
				  .sealed_ns = -3,
				  .path = "job/step 1",
				  .nr_chunks = 3 };

	c.chunks = (struct link_want *)wants;
	return c;
}

static int decode_copy(const struct buf *b, size_t len)
{
	_cleanup_(freep) struct link_replica *c = malloc(sizeof(*c));
	int r = link_decode_replica(b->data + HEADER, len, c);

	if (r == 0)
		free(c->chunks);
	return r;
}

static void copies_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, again = BUF_EMPTY;
	struct link_replica c = sample(), back;
	size_t len;

	link_encode_replica(9, &c, &b);
	len = check_header(&b, LINK_REPLICATE, 9);
	assert_int_equal(link_decode_replica(b.data + HEADER, len, &back), 0);
	assert_int_equal(back.ino, c.ino);
	assert_int_equal(back.sealed_ns, c.sealed_ns);
	assert_string_equal(back.name, c.name);
	assert_string_equal(back.path, c.path);
	assert_memory_equal(back.origin, c.origin, 16);
	link_encode_replica(9, &back, &again);
	assert_int_equal(again.len, b.len);
	assert_memory_equal(again.data, b.data, b.len);
	free(back.chunks);
	for (size_t less = 0; less < len; less++)
		assert_int_equal(decode_copy(&b, less), -EBADMSG);
}

static void copies_have_paths_and_names_that_can_be(void **state _unused_)
{
	static const struct {
		const char *path;
		int r;
	} paths[] = {
		{ "", 0 },	    { "a", 0 },		  { "...", 0 },	     { "a/b", 0 },	   { "/a", -EBADMSG },
		{ "a/", -EBADMSG }, { "a//b", -EBADMSG }, { ".", -EBADMSG }, { "a/..", -EBADMSG }, { "../a", -EBADMSG },
		{ "/", -EBADMSG }
	};

	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct link_replica c = sample();

		strcpy(c.path, paths[i].path);
		link_encode_replica(9, &c, &b);
		assert_int_equal(decode_copy(&b, b.len - HEADER), paths[i].r);
	}
	for (size_t len = 255; len <= 256; len++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct link_replica c = sample();

		memset(c.path, 'x', len);
		c.path[len] = '\0';
		link_encode_replica(9, &c, &b);
		assert_int_equal(decode_copy(&b, b.len - HEADER), len == 255 ? 0 : -EBADMSG);
	}
	for (unsigned i = 0; i < 2; i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct link_replica c = sample();

		strcpy(c.name, i ? ".." : "a/b");
		link_encode_replica(9, &c, &b);
		assert_int_equal(decode_copy(&b, b.len - HEADER), -EBADMSG);
	}
}

static void copies_have_a_catalog(void **state _unused_)
{
	_cleanup_(freep) struct link_want *many = calloc(LINK_REPLICA_CHUNKS_MAX + 1, sizeof(*many));
	static const uint32_t nr[] = { 0, LINK_REPLICA_CHUNKS_MAX, LINK_REPLICA_CHUNKS_MAX + 1 };

	for (unsigned i = 0; i <= LINK_REPLICA_CHUNKS_MAX; i++)
		many[i].len = 1;
	for (size_t i = 0; i < ARRAY_SIZE(nr); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct link_replica c = sample();

		c.chunks = many;
		c.nr_chunks = nr[i];
		link_encode_replica(9, &c, &b);
		assert_int_equal(decode_copy(&b, b.len - HEADER), nr[i] == LINK_REPLICA_CHUNKS_MAX ? 0 : -EBADMSG);
	}
}

static void copies_have_slots_and_steps_that_can_be(void **state _unused_)
{
	static const struct {
		uint32_t slot, nr_slots, step, nr_chunks;
		int r;
	} cases[] = {
		{ 0, 0, LINK_REPLICA_CREATE, 3, 0 },
		{ 6, 7, LINK_REPLICA_CREATE, 3, 0 },
		{ 0, 1, LINK_REPLICA_COVER, 0, 0 },
		{ 0, 1, LINK_REPLICA_SETTLE, 0, 0 },
		{ 1, 0, LINK_REPLICA_CREATE, 3, -EBADMSG },
		{ 1, 1, LINK_REPLICA_CREATE, 3, -EBADMSG },
		{ 0, 8, LINK_REPLICA_CREATE, 3, -EBADMSG },
		{ 0, 0, LINK_REPLICA_COVER, 0, -EBADMSG },
		{ 0, 1, LINK_REPLICA_COVER, 3, -EBADMSG },
		{ 0, 1, LINK_REPLICA_CREATE, 0, -EBADMSG },
		{ 0, 1, LINK_REPLICA_SETTLE + 1, 0, -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct link_replica c = sample(), back;

		c.slot = cases[i].slot;
		c.nr_slots = cases[i].nr_slots;
		c.step = (enum link_replica_step)cases[i].step;
		c.nr_chunks = cases[i].nr_chunks;
		link_encode_replica(9, &c, &b);
		assert_int_equal(link_decode_replica(b.data + HEADER, b.len - HEADER, &back), cases[i].r);
		if (cases[i].r < 0)
			continue;
		assert_int_equal(back.slot, c.slot);
		assert_int_equal(back.nr_slots, c.nr_slots);
		assert_int_equal(back.step, c.step);
		free(back.chunks);
	}
}

static void what_is_dropped_comes_back(void **state _unused_)
{
	const struct link_drop d = {
		.node = NODE, .origin = "who sealed it...", .name = "node-1", .ino = 12, .sealed_ns = -5, .abandons = true
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, e = BUF_EMPTY;
	struct link_drop back;
	size_t len;
	int r;

	link_encode_drop(3, &d, &b);
	len = check_header(&b, LINK_DROP, 3);
	assert_int_equal(link_decode_drop(b.data + HEADER, len, &back), 0);
	assert_memory_equal(&back, &d, offsetof(struct link_drop, abandons)); /* padding follows it */
	assert_true(back.abandons);
	assert_int_equal(link_decode_drop(b.data + HEADER, len - 1, &back), -EBADMSG);
	b.data[HEADER + offsetof(struct link_drop_wire, flags)] = LINK_DROP_ABANDONS << 1;
	assert_int_equal(link_decode_drop(b.data + HEADER, len, &back), -EBADMSG);
	b.data[HEADER + offsetof(struct link_drop_wire, flags)] = 0;
	assert_int_equal(link_decode_drop(b.data + HEADER, len, &back), 0);
	assert_false(back.abandons);
	b.data[HEADER + 32] = 0; /* no node */
	assert_int_equal(link_decode_drop(b.data + HEADER, len, &back), -EBADMSG);

	link_encode_error(LINK_DROPPED, 3, -EROFS, &e);
	assert_int_equal(link_decode_error(e.data + HEADER, check_header(&e, LINK_DROPPED, 3), &r), 0);
	assert_int_equal(r, -EROFS);
	assert_int_equal(link_decode_error(e.data + HEADER, 3, &r), -EBADMSG);
}

static void messages_have_these_bytes(void **state _unused_)
{
	static const struct link_drop drop = {
		.node = NODE, .origin = "origin of it ...", .name = "far", .ino = 12, .sealed_ns = INT64_MAX, .abandons = true
	};
	const void *const chunks[] = { "abc", NULL, "de" };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_replica c = sample();

	link_encode_put(7, (const uint8_t *)NODE, wants, chunks, ARRAY_SIZE(wants), &b);
	link_encode_kept(7, 0, (const uint8_t *)"\1\0\1", 3, &b);
	link_encode_replica(9, &c, &b);
	link_encode_error(LINK_REPLICATED, 9, 0, &b);
	link_encode_drop(3, &drop, &b);
	link_encode_error(LINK_DROPPED, 3, -EROFS, &b);
	assert_int_equal(buf_error(&b), 0);
	golden_expect("link/v1-keep.txt", "messages about what nodes keep for each other", b.data, b.len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_comes_back),
		cmocka_unit_test(lies_about_what_is_put_are_refused),
		cmocka_unit_test(no_more_is_put_than_there_may_be),
		cmocka_unit_test(what_is_kept_comes_back_and_lies_are_refused),
		cmocka_unit_test(copies_come_back),
		cmocka_unit_test(copies_have_paths_and_names_that_can_be),
		cmocka_unit_test(copies_have_a_catalog),
		cmocka_unit_test(copies_have_slots_and_steps_that_can_be),
		cmocka_unit_test(what_is_dropped_comes_back),
		cmocka_unit_test(messages_have_these_bytes),
	};

	return cmocka_run_group_tests_name("link_keep_format", tests, NULL, NULL);
}
