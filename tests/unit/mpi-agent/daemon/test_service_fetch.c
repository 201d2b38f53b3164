/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Chunks that this node has from others, and they from it: through the socket, and in memory that the agent shares. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/wire/arena.h"
#include "mpi-agent/wire/link.h"
#include "tests/unit/mpi-agent/daemon/service_rig.h"

/* Chunk `lo` is of bytes `lo`; those that divide by 5 are nowhere. */
static void say_chunks(struct rig *rig, struct rig_fetch *f)
{
	const void **chunks = calloc(f->nr, sizeof(*chunks));

	for (uint32_t i = 0; i < f->nr; i++)
		if (f->wants[i].fp.lo % 5 != 0) {
			void *p = malloc(f->wants[i].len);

			memset(p, (int)f->wants[i].fp.lo, f->wants[i].len);
			chunks[i] = p;
		}
	RIG_SAY(rig, chunks, f->number, f->wants, chunks, f->nr);
	for (uint32_t i = 0; i < f->nr; i++)
		free((void *)chunks[i]);
	free(chunks);
	rig_fetch_release(f);
}

static void check_wants(const struct cluster_want *w, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		assert_int_equal(w[i].got, w[i].fp.lo % 5 != 0);
		for (uint32_t at = 0; w[i].got && at < w[i].len; at += MAX(w[i].len / 16, 1u))
			assert_int_equal(((uint8_t *)w[i].buf)[at], (uint8_t)w[i].fp.lo);
	}
}

static void chunks_come_in_messages_that_are_not_too_large(void **state)
{
	static const struct {
		size_t nr;
		uint32_t len, in_first;
		unsigned nr_messages;
	} cases[] = {
		{ 1, 1, 1, 1 },
		{ 3, 4096, 3, 1 },
		{ 40, 1u << 20, 16, 3 },
		{ LINK_CHUNKS_MAX + 1, 16, LINK_CHUNKS_MAX, 2 },
	};
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct rig_call c = { .rig = &rig,
				      .nr = cases[i].nr,
				      .wants = rig_wants_of(cases[i].nr, cases[i].len, 1) };

		rig_call_start(&c, rig_run_fetch);
		for (unsigned m = 0; m < cases[i].nr_messages; m++) {
			struct rig_fetch f;

			rig_receive_fetch(&rig, &f);
			if (m == 0)
				assert_int_equal(f.nr, cases[i].in_first);
			for (uint32_t n = 0; m == 0 && n < f.nr; n++) {
				assert_int_equal(f.wants[n].nr_owners, c.wants[n].nr_owners);
				assert_int_equal(f.wants[n].as_is, c.wants[n].as_is);
				for (uint32_t k = 0; k < f.wants[n].nr_owners; k++)
					assert_memory_equal(f.ids[f.wants[n].owners[k]], c.wants[n].owners[k], 16);
			}
			say_chunks(&rig, &f);
		}
		assert_int_equal(rig_call_finish(&c), 0);
		check_wants(c.wants, c.nr);
		rig_wants_free(c.wants, c.nr);
	}
	rig_release(&rig);
}

static void answers_are_matched_by_their_numbers(void **state)
{
	struct service_stats stats;
	struct rig_fetch f[4];
	struct rig_call c[4];
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		rig_start_fetch(&rig, 6, 100, 10 * i + 1, &c[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(f); i++)
		rig_receive_fetch(&rig, &f[i]);
	RIG_SAY(&rig, chunks, 1000, NULL, NULL, 0); /* of no request */
	for (unsigned i = ARRAY_SIZE(f); i-- > 0;)
		say_chunks(&rig, &f[i]);
	for (unsigned i = 0; i < ARRAY_SIZE(c); i++) {
		assert_int_equal(rig_call_finish(&c[i]), 0);
		check_wants(c[i].wants, 6);
		rig_wants_free(c[i].wants, 6);
	}
	service_stats(rig.s, &stats);
	assert_int_equal(stats.nr_fetched, 4 * 5);
	assert_int_equal(stats.fetched_bytes, 4 * 5 * 100);
	assert_int_equal(stats.nr_not_fetched, 4);
	rig_release(&rig);
}

static void chunks_that_do_not_come_are_not_waited_for(void **state)
{
	struct rig_call c = { 0 };
	struct rig_fetch f, late;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, LONG_NS, SHORT_NS, 0 });
	c = (struct rig_call){ .rig = &rig, .nr = 3, .wants = rig_wants_of(3, 10, 1) };
	rig_run_fetch(&c);
	assert_int_equal(c.r, -ETIMEDOUT);
	for (int i = 0; i < 3; i++)
		assert_false(c.wants[i].got);
	rig_receive_fetch(&rig, &late);
	say_chunks(&rig, &late);
	rig_wants_free(c.wants, 3);
	c.wants = rig_wants_of(40, 1u << 20, 1);
	c.nr = 40;
	rig_call_start(&c, rig_run_fetch);
	rig_receive_fetch(&rig, &f);
	say_chunks(&rig, &f); /* unless that was late already, too */
	rig_go(&rig);
	rig_call_finish(&c);
	if (c.r == 0)
		check_wants(c.wants, 16);
	else
		assert_true(c.r == -ETIMEDOUT || c.r == -ENOTCONN);
	assert_false(c.wants[39].got);
	rig_wants_free(c.wants, 40);
	rig_release(&rig);
}

static void an_agent_that_goes_leaves_no_reader_waiting(void **state)
{
	struct rig_call c = { 0 };
	struct rig_fetch f;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig_start_fetch(&rig, 40, 1u << 20, 1, &c);
	rig_receive_fetch(&rig, &f);
	rig_go(&rig);
	assert_int_equal(rig_call_finish(&c), -ENOTCONN);
	rig_fetch_release(&f);
	rig_wants_free(c.wants, 40);
	rig_release(&rig);
}

static void what_cannot_be_asked_for_is_not_there(void **state)
{
	struct rig_call c = { 0 };
	struct rig_fetch f;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	c = (struct rig_call){ .rig = &rig, .nr = 3, .wants = rig_wants_of(3, 10, 1) };
	c.wants[1].len = (1u << 20) + 1;
	rig_call_start(&c, rig_run_fetch);
	for (int i = 0; i < 2; i++) {
		rig_receive_fetch(&rig, &f);
		assert_int_equal(f.nr, 1);
		say_chunks(&rig, &f);
	}
	assert_int_equal(rig_call_finish(&c), 0);
	assert_true(c.wants[0].got && !c.wants[1].got && c.wants[2].got);
	c.nr = 0;
	rig_run_fetch(&c);
	assert_int_equal(c.r, 0);
	rig_wants_free(c.wants, 3);
	rig_release(&rig);
}

static void what_comes_is_compared_if_there_is_a_key(void **state)
{
	static const uint8_t secret[FP_KEY_LEN] = { 1 };
	static const uint8_t right[4096] = { 2 }, wrong[4096] = { 3 };
	const void *chunks[] = { right, wrong, right, NULL };
	struct fp_key *key = malloc(sizeof(*key));
	struct rig rig;
	struct rig_call c = { .rig = &rig, .nr = 4, .wants = rig_wants_of(4, 4096, 1) };
	struct rig_fetch f;

	(void)state;
	fp_key_init(key, FP_CLMUL, secret);
	for (unsigned i = 0; i < 4; i++) {
		c.wants[i].fp = fp_of(key, right, sizeof(right));
		c.wants[i].key = i == 2 ? NULL : key;
		c.wants[i].matches = true;
	}
	rig_with_agent(&rig, &rig_patient);
	rig_call_start(&c, rig_run_fetch);
	rig_receive_fetch(&rig, &f);
	RIG_SAY(&rig, chunks, f.number, f.wants, chunks, f.nr);
	assert_int_equal(rig_call_finish(&c), 0);
	assert_true(c.wants[0].got && c.wants[0].matches);
	assert_true(c.wants[1].got && !c.wants[1].matches);
	assert_true(c.wants[2].got && !c.wants[2].matches);
	assert_true(!c.wants[3].got && !c.wants[3].matches);
	free(f.wants);
	buf_release(&f.b);
	rig_wants_free(c.wants, 4);
	rig_release(&rig);
	free(key);
}

static void other_nodes_get_what_is_here(void **state)
{
	static const struct link_want wants[] = {
		{ .fp = { .lo = 1 }, .len = 1 },	{ .fp = { .lo = 201 }, .len = 4096 },
		{ .fp = { .lo = 7 }, .len = 4096 },	{ .fp = { .lo = 255 }, .len = 4096, .as_is = 1 },
		{ .fp = { .lo = 9 }, .len = 1u << 20, .as_is = 1 },
	};
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const void *chunks[ARRAY_SIZE(wants)];
	struct service_stats stats;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (uint64_t n = 1; n <= 3; n++)
		RIG_SAY(&rig, get, n, wants, ARRAY_SIZE(wants));
	for (uint64_t n = 1; n <= 3; n++) {
		assert_int_equal(rig_receive(rig.agent, LINK_CHUNKS, &b), n);
		assert_int_equal(link_decode_chunks(b.data, b.len, wants, ARRAY_SIZE(wants), chunks), 0);
		assert_null(chunks[1]);
		assert_null(chunks[3]);
		assert_int_equal(*(const uint8_t *)chunks[0], 1);
		assert_int_equal(((const uint8_t *)chunks[2])[4095], 7);
		assert_int_equal(((const uint8_t *)chunks[4])[(1u << 20) - 1], 9);
	}
	service_stats(rig.s, &stats);
	assert_int_equal(rig.nr_as_is, 6);
	assert_int_equal(stats.nr_served, 9);
	assert_int_equal(stats.served_bytes, 3 * (1 + 4096 + (1u << 20)));
	rig_release(&rig);
}

static void chunks_are_pinned(void **state)
{
	static const struct fp fps[] = { { .lo = 1 }, { .lo = 7 }, { .lo = 201 }, { .lo = 255 } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const uint8_t *pinned;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	RIG_SAY(&rig, pin, 1, fps, 3);
	RIG_SAY(&rig, pin, 2, fps, 4);
	RIG_SAY(&rig, pin, 3, fps, 0);
	assert_int_equal(rig_receive(rig.agent, LINK_PINNED, &b), 1);
	assert_int_equal(link_decode_pinned(b.data, b.len, 3, &pinned), 0);
	assert_memory_equal(pinned, "\1\1\0", 3);
	assert_int_equal(rig_receive(rig.agent, LINK_PINNED, &b), 2);
	assert_int_equal(link_decode_pinned(b.data, b.len, 4, &pinned), 0);
	assert_memory_equal(pinned, "\0\0\0\0", 4);
	assert_int_equal(rig_receive(rig.agent, LINK_PINNED, &b), 3);
	assert_int_equal(b.len, 0);
	rig_release(&rig);
}

/* More than it remembers, and no thread takes the answers meanwhile. */
static void what_exceeds_the_limit_is_reported_as_missing(void **state)
{
	enum { NR = 40 };
	struct link_want *wants = calloc(LINK_CHUNKS_MAX, sizeof(*wants));
	const void **chunks = calloc(LINK_CHUNKS_MAX, sizeof(*chunks));
	bool is_answered[NR + 1] = { false };
	struct buf b = BUF_EMPTY;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (uint32_t i = 0; i < LINK_CHUNKS_MAX; i++)
		wants[i] = (struct link_want){ .fp = { .lo = 1 + i % 200 }, .len = 4096 };
	for (uint64_t n = 1; n <= NR; n++)
		RIG_SAY(&rig, get, n, wants, LINK_CHUNKS_MAX);
	for (uint64_t n = 1; n <= NR; n++) {
		uint64_t number = rig_receive(rig.agent, LINK_CHUNKS, &b);

		assert_true(number >= 1 && number <= NR && !is_answered[number]);
		is_answered[number] = true;
		assert_int_equal(link_decode_chunks(b.data, b.len, wants, LINK_CHUNKS_MAX, chunks), 0);
		for (uint32_t i = 1; i < LINK_CHUNKS_MAX; i++)
			assert_int_equal(chunks[i] != NULL, chunks[0] != NULL);
	}
	buf_release(&b);
	free(chunks);
	free(wants);
	rig_release(&rig);
}

/* --- memory that the agent shares --- */

/* It comes with some, and gets the daemon's. */
static struct arenas come_with_memory(struct rig *rig)
{
	struct arenas m = { 0 };
	struct buf b = BUF_EMPTY;
	uint8_t head[sizeof(struct link_header_wire) + sizeof(struct link_welcome_wire)];
	int passed = -1;
	ssize_t n;

	rig->agent = rig_dial(rig);
	assert_int_equal(arena_new(ARENA_LEN, &m.own), 0);
	link_encode_hello(&b);
	assert_int_equal(link_send(rig->agent, b.data, b.len, arena_fd(m.own)), b.len);
	buf_release(&b);
	while ((n = link_recv(rig->agent, head, sizeof(head), &passed)) < 0)
		sched_yield();
	assert_int_equal(n, sizeof(head));
	assert_true(passed >= 0);
	assert_int_equal(arena_open(passed, &m.theirs), 0);
	rig_say_nodes(rig, 1);
	rig_await_there(rig, true);
	return m;
}

static void memory_release(struct arenas *m)
{
	arena_put(m->own);
	arena_put(m->theirs);
}

/* Many times as much as there is memory: what is taken is used again. */
static void other_nodes_get_what_lies_in_memory(void **state)
{
	static const struct link_want wants[] = { { .fp = { .lo = 1 }, .len = 1 },
						  { .fp = { .lo = 201 }, .len = 4096 },
						  { .fp = { .lo = 9 }, .len = 1u << 20 } };
	const void *chunks[ARRAY_SIZE(wants)];
	struct arenas m;
	struct rig rig;

	(void)state;
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	m = come_with_memory(&rig);
	for (uint64_t n = 1; n <= 200; n++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		uint32_t len;
		uint64_t off;

		RIG_SAY(&rig, get, n, wants, ARRAY_SIZE(wants));
		assert_int_equal(rig_receive(rig.agent, LINK_THERE, &b), n);
		assert_int_equal(link_decode_there(b.data, b.len, arena_len(m.theirs), &off, &len), 0);
		assert_int_equal(link_decode_chunks(arena_data(m.theirs) + off, len, wants, ARRAY_SIZE(wants), chunks),
				 0);
		assert_int_equal(*(const uint8_t *)chunks[0], 1);
		assert_null(chunks[1]);
		assert_int_equal(((const uint8_t *)chunks[2])[(1u << 20) - 1], 9);
		RIG_SAY(&rig, plain, LINK_TAKEN, n);
	}
	RIG_SAY(&rig, plain, LINK_TAKEN, 1); /* once more */
	rig_receive_end(rig.agent);
	memory_release(&m);
	rig_release(&rig);
}

/* What is not taken leaves no room, and the rest goes through the socket; and so does what is short. */
static void without_room_chunks_go_through_the_socket(void **state)
{
	static const struct link_want wants[] = { { .fp = { .lo = 9 }, .len = 1u << 20 } },
				      few[] = { { .fp = { .lo = 7 }, .len = 100 } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	unsigned nr_there = 0;
	struct arenas m;
	struct rig rig;

	(void)state;
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	m = come_with_memory(&rig);
	RIG_SAY(&rig, get, 1, few, 1);
	rig_receive(rig.agent, LINK_CHUNKS, &b);
	for (uint64_t n = 1; n <= 40; n++) {
		RIG_SAY(&rig, get, n, wants, 1);
		nr_there += rig_receive_any(rig.agent, &b).type == LINK_THERE;
	}
	assert_in_range(nr_there, 20, 32); /* MiB, and a little for each */
	rig_go(&rig);
	memory_release(&m);
	rig_come(&rig); /* without any */
	RIG_SAY(&rig, get, 1, wants, 1);
	rig_receive(rig.agent, LINK_CHUNKS, &b);
	rig_release(&rig);
}

/* Chunk `lo` is of bytes `lo`; those that divide by 5 are nowhere. */
static void say_places(struct rig *rig, struct arena *own, struct rig_fetch *f)
{
	uint8_t *slot = arena_take(own, f->nr * f->wants[0].len + 1), *at = slot + 1;
	const void **chunks = calloc(f->nr, sizeof(*chunks));

	assert_non_null(slot);
	for (uint32_t i = 0; i < f->nr; i++, at += f->wants[0].len)
		if (f->wants[i].fp.lo % 5 != 0) {
			memset(at, (int)f->wants[i].fp.lo, f->wants[i].len);
			chunks[i] = at;
		}
	RIG_SAY(rig, places, f->number, arena_data(own), chunks, f->nr);
	free(chunks);
	rig_fetch_release(f);
}

/* They are waited for, or no more. */
static void chunks_are_taken_from_memory(void **state)
{
	struct arenas m;
	struct rig_fetch f;
	struct rig_call c;
	struct rig rig;

	(void)state;
	rig_init(&rig, &(struct service_limits){ LONG_NS, LONG_NS, LONG_NS, 0 });
	rig_start(&rig);
	m = come_with_memory(&rig);
	rig_start_fetch(&rig, 6, 4096, 1, &c);
	rig_receive_fetch(&rig, &f);
	say_places(&rig, m.own, &f);
	assert_int_equal(rig_call_finish(&c), 0);
	check_wants(c.wants, 6);
	rig_wants_free(c.wants, 6);
	rig_receive_plain(&rig, LINK_TAKEN, f.number);
	RIG_SAY(&rig, places, f.number + 100, NULL, NULL, 0);
	rig_receive_plain(&rig, LINK_TAKEN, f.number + 100);
	memory_release(&m);
	rig_release(&rig);
}

/* It goes with the next request, and none is left out. */
static void what_was_taken_is_reported_before_the_next_is_wanted(void **state)
{
	struct arenas m;
	struct rig_fetch f;
	struct rig rig;
	uint64_t last = 0;

	(void)state;
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	m = come_with_memory(&rig);
	for (unsigned i = 0; i < 100; i++) {
		struct rig_call c = { .rig = &rig, .nr = 6, .wants = rig_wants_of(6, 4096, 1) };

		rig_call_start(&c, rig_run_fetch);
		if (last > 0)
			rig_receive_plain(&rig, LINK_TAKEN, last);
		rig_receive_fetch(&rig, &f);
		last = f.number;
		say_places(&rig, m.own, &f);
		arena_give_back(m.own, arena_data(m.own), 6 * 4096 + 1);
		assert_int_equal(rig_call_finish(&c), 0);
		check_wants(c.wants, 6);
		rig_wants_free(c.wants, 6);
	}
	rig_receive_plain(&rig, LINK_TAKEN, last);
	memory_release(&m);
	rig_release(&rig);
}

static void places_that_cannot_be_right_end_the_connection(void **state)
{
	struct arenas m;
	struct rig_fetch f;
	struct rig_call c;
	struct rig rig;

	(void)state;
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	m = come_with_memory(&rig);
	rig_start_fetch(&rig, 1, 4096, 1, &c);
	rig_receive_fetch(&rig, &f);
	RIG_SAY(&rig, places, f.number, arena_data(m.own), ((const void *[]){ arena_data(m.own) + ARENA_LEN - 4095 }),
		1);
	assert_int_equal(rig_call_finish(&c), -ENOTCONN);
	rig_wants_free(c.wants, 1);
	rig_fetch_release(&f);
	memory_release(&m);
	rig_go(&rig);
	rig_release(&rig);
}

/* Its memory could become shorter, and this process would die of it. */
static void an_agent_with_memory_that_is_not_safe_is_hung_up_on(void **state)
{
	struct buf b = BUF_EMPTY;
	struct rig rig;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	rig.agent = rig_dial(&rig);
	link_encode_hello(&b);
	assert_int_equal(link_send(rig.agent, b.data, b.len, fd), b.len);
	buf_release(&b);
	rig_receive_end(rig.agent);
	close(fd);
	rig_release(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_come_in_messages_that_are_not_too_large),
		cmocka_unit_test(answers_are_matched_by_their_numbers),
		cmocka_unit_test(chunks_that_do_not_come_are_not_waited_for),
		cmocka_unit_test(an_agent_that_goes_leaves_no_reader_waiting),
		cmocka_unit_test(what_cannot_be_asked_for_is_not_there),
		cmocka_unit_test(what_comes_is_compared_if_there_is_a_key),
		cmocka_unit_test(other_nodes_get_what_is_here),
		cmocka_unit_test(other_nodes_get_what_lies_in_memory),
		cmocka_unit_test(without_room_chunks_go_through_the_socket),
		cmocka_unit_test(chunks_are_taken_from_memory),
		cmocka_unit_test(what_was_taken_is_reported_before_the_next_is_wanted),
		cmocka_unit_test(places_that_cannot_be_right_end_the_connection),
		cmocka_unit_test(an_agent_with_memory_that_is_not_safe_is_hung_up_on),
		cmocka_unit_test(chunks_are_pinned),
		cmocka_unit_test(what_exceeds_the_limit_is_reported_as_missing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
