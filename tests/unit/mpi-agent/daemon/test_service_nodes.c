/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What nodes do together besides rounds: they collect, ask each other, and keep things for each other. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/mpi-agent/daemon/service_rig.h"

/* --- collecting together --- */

static struct link_done receive_done(struct rig *rig, uint64_t number, struct buf *b)
{
	struct link_done d;

	assert_int_equal(rig_receive(rig->agent, LINK_DONE, b), number);
	assert_int_equal(link_decode_done(b->data, b->len, &d), 0);
	return d;
}

static void await_over(struct rig *rig, unsigned nr)
{
	while (rig->nr_over < nr)
		sched_yield();
}

static void all_steps(struct rig *rig, uint64_t number)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	static uint8_t filter[LINK_FILTER_MIN] = { 0, 9 };
	struct link_step step = { .kind = LINK_PREPARE };
	struct link_done d;

	RIG_SAY(rig, step, number, &step);
	d = receive_done(rig, number, &b);
	assert_int_equal(d.kind, LINK_PREPARE);
	assert_int_equal(d.error, 0);
	assert_int_equal(d.nr_referred, ARRAY_SIZE(rig_nodes));
	assert_string_equal(d.missing, "two");
	step = (struct link_step){ .kind = LINK_MARK, .window = 3, .nr_windows = 5, .len = LINK_FILTER_MIN, .seed = 1 };
	RIG_SAY(rig, step, number, &step);
	d = receive_done(rig, number, &b);
	assert_int_equal(d.kind, LINK_MARK);
	assert_int_equal(d.window, 3);
	assert_int_equal(d.len, LINK_FILTER_MIN);
	assert_int_equal(d.filter[3], 8);
	step.kind = LINK_UNPIN;
	step.filter = filter;
	RIG_SAY(rig, step, number, &step);
	d = receive_done(rig, number, &b);
	assert_int_equal(d.kind, LINK_UNPIN);
	assert_int_equal(d.error, 0);
	assert_int_equal(d.nr_dropped, 2);
}

static void a_collection_of_all_nodes_has_this_one_take_part(void **state)
{
	_cleanup_(rig_release) struct rig rig;

	(void)state;
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	rig_come(&rig);
	all_steps(&rig, 4);
	assert_false(rig.was_ours);
	RIG_SAY(&rig, done, LINK_COLLECTED, 4, &(struct link_done){ .nr_dropped = 2 });
	await_over(&rig, 1);
	assert_int_equal(rig.nr_freed, 1);
	/* Without an end nothing is freed. */
	all_steps(&rig, 5);
	closep(&rig.agent);
	await_over(&rig, 2);
	assert_int_equal(rig.nr_freed, 1);
}

static bool always(void *userdata)
{
	(void)userdata;
	return true;
}

static bool never(void *userdata)
{
	(void)userdata;
	return false;
}

static void *collect_with_all(void *rig)
{
	struct link_done d;
	int r = service_collect(((struct rig *)rig)->s, always, NULL, &d);

	return (void *)(intptr_t)(r < 0 ? r : (int)d.nr_dropped);
}

static void the_caller_of_a_collection_receives_its_end(void **state)
{
	_cleanup_(rig_release) struct rig rig;
	struct link_done d;
	pthread_t thread;
	void *result;

	(void)state;
	rig_init(&rig, &rig_patient);
	assert_int_equal(service_collect(rig.s, always, NULL, &d), -ENOTCONN);
	rig_start(&rig);
	rig_come(&rig);
	assert_int_equal(service_collect(rig.s, never, NULL, &d), -ECANCELED);
	rig_receive_plain(&rig, LINK_WANT_COLLECT, 0);
	assert_int_equal(pthread_create(&thread, NULL, collect_with_all, &rig), 0);
	rig_receive_plain(&rig, LINK_WANT_COLLECT, 0);
	all_steps(&rig, 4);
	assert_true(rig.was_ours);
	RIG_SAY(&rig, done, LINK_COLLECTED, 4, &(struct link_done){ .nr_dropped = 7 });
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, 7);
	await_over(&rig, 1);
	assert_int_equal(rig.nr_freed, 0); /* the node that has asked for it does that */
	assert_int_equal(pthread_create(&thread, NULL, collect_with_all, &rig), 0);
	rig_receive_plain(&rig, LINK_WANT_COLLECT, 0);
	closep(&rig.agent);
	pthread_join(thread, &result);
	assert_int_equal((intptr_t)result, -ENOTCONN);
}

/* --- questions --- */

static void receive_answer(struct rig *rig, uint64_t number, int error, const char *text)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const void *p;
	size_t len;
	int said;

	assert_int_equal(rig_receive(rig->agent, LINK_ANSWER, &b), number);
	assert_int_equal(link_decode_answer(b.data, b.len, &said, &p, &len), 0);
	assert_int_equal(said, error);
	assert_int_equal(len, strlen(text));
	if (len > 0)
		assert_memory_equal(p, text, len);
}

static void other_daemons_are_answered(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	RIG_SAY(&rig, body, LINK_QUESTION, 5, "ask", 3);
	RIG_SAY(&rig, body, LINK_QUESTION, 6, "no", 2);
	receive_answer(&rig, 5, 0, "askask");
	receive_answer(&rig, 6, -ENODATA, "");
	rig_release(&rig);
}

static void too_long_a_question_is_refused(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig.holds_answers = true;
	for (uint64_t i = 0; i < 66; i++) /* one is being answered, or about to be, and 64 wait */
		RIG_SAY(&rig, body, LINK_QUESTION, i, "x", 1);
	{
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		const void *p;
		size_t len;
		int error;

		assert_in_range(rig_receive(rig.agent, LINK_ANSWER, &b), 64, 65);
		assert_int_equal(link_decode_answer(b.data, b.len, &error, &p, &len), 0);
		assert_int_equal(error, -EBUSY);
	}
	rig.holds_answers = false;
	rig_release(&rig);
}

struct asking {
	struct rig *rig;
	uint8_t id[16];
	struct buf answer;
};

static void *ask(void *userdata)
{
	struct asking *a = userdata;

	return (void *)(intptr_t)service_ask(a->rig->s, a->id, "what", 4, &a->answer);
}

static intptr_t finish_asking(pthread_t thread)
{
	void *result;

	pthread_join(thread, &result);
	return (intptr_t)result;
}

static uint64_t receive_query(struct rig *rig, uint8_t id)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	uint64_t number = rig_receive(rig->agent, LINK_QUERY, &b);
	const uint8_t *target;
	const void *p;
	size_t len;

	assert_int_equal(link_decode_query(b.data, b.len, &target, &p, &len), 0);
	assert_int_equal(target[0], id);
	assert_int_equal(len, 4);
	assert_memory_equal(p, "what", 4);
	return number;
}

static void another_daemon_is_asked(void **state)
{
	struct asking a = { .id = { 12 } }, b = { .id = { 10 } };
	struct rig rig;
	pthread_t one, two;
	uint64_t number;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	a.rig = b.rig = &rig;
	assert_int_equal(pthread_create(&one, NULL, ask, &a), 0);
	number = receive_query(&rig, 12);
	assert_int_equal(pthread_create(&two, NULL, ask, &b), 0);
	RIG_SAY(&rig, answer, receive_query(&rig, 10), -ENODATA, NULL, 0);
	RIG_SAY(&rig, chunks, number, NULL, NULL, 0); /* is no answer to it, ... */
	RIG_SAY(&rig, answer, number + 7, 0, "none", 4); /* nor is this */
	RIG_SAY(&rig, answer, number, 0, "that", 4);
	assert_int_equal(finish_asking(two), -ENODATA);
	assert_int_equal(finish_asking(one), 0);
	assert_int_equal(a.answer.len, 4);
	assert_memory_equal(a.answer.data, "that", 4);
	buf_release(&a.answer);
	assert_int_equal(pthread_create(&one, NULL, ask, &a), 0);
	receive_query(&rig, 12);
	rig_go(&rig);
	assert_int_equal(finish_asking(one), -ENOTCONN);
	assert_int_equal((intptr_t)ask(&a), -ENOTCONN); /* no agent is there */
	rig_come(&rig);
	assert_int_equal(pthread_create(&one, NULL, ask, &a), 0);
	number = receive_query(&rig, 12);
	RIG_SAY(&rig, settled, 1, (const uint8_t *)"", 0); /* of no round: thrown away */
	{
		struct buf bad = BUF_EMPTY;

		link_encode_answer(number, 0, "that", 4, &bad);
		bad.data[sizeof(struct link_header_wire)] = 5; /* an error, with bytes */
		rig_say(&rig, &bad);
	}
	assert_int_equal(finish_asking(one), -ENOTCONN);
	rig_go(&rig);
	rig_release(&rig);
}

static void an_answer_that_does_not_come_is_not_waited_for(void **state)
{
	struct asking a = { .id = { 12 } };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, LONG_NS, SHORT_NS, 0 });
	a.rig = &rig;
	assert_int_equal((intptr_t)ask(&a), -ETIMEDOUT);
	RIG_SAY(&rig, answer, receive_query(&rig, 12), 0, "late", 4);
	rig_release(&rig);
}

static void the_nodes_are_reported(void **state)
{
	struct cluster_node *nodes;
	uint32_t nr, self;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	assert_int_equal(service_nodes(rig.s, &nodes, &nr, &self), 0);
	assert_int_equal(nr, 3);
	assert_int_equal(self, 1);
	assert_string_equal(nodes[2].name, "two");
	free(nodes);
	rig_go(&rig);
	assert_int_equal(service_nodes(rig.s, &nodes, &nr, &self), 0);
	assert_int_equal(nr, 0);
	free(nodes);
	rig_release(&rig);
}

/* --- what they keep --- */

static void peers_have_their_chunks_kept(void **state)
{
	static const struct link_want wants[] = { { .fp = { .lo = 1 }, .len = 4 },
						  { .fp = { .lo = 201 }, .len = 4 },
						  { .fp = { .lo = 251 }, .len = 4 },
						  { .fp = { .lo = 252 }, .len = 4 } };
	const void *const some[] = { NULL, NULL, NULL, "abcd" }, *const bad[] = { "xxxx", NULL, NULL, NULL };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct service_stats st;
	const uint8_t *kept;
	struct rig rig;
	int error;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	RIG_SAY(&rig, put, 1, rig_nodes[2].store_id, wants, some, 4);
	RIG_SAY(&rig, put, 2, rig_nodes[2].store_id, wants, bad, 4);
	assert_int_equal(rig_receive(rig.agent, LINK_KEPT, &b), 1);
	assert_int_equal(rig.nr_peers_changed, 1);
	assert_int_equal(link_decode_kept(b.data, b.len, 4, &error, &kept), 0);
	assert_int_equal(error, 0);
	assert_memory_equal(kept, "\1\2\0\1", 4);
	assert_int_equal(rig_receive(rig.agent, LINK_KEPT, &b), 2);
	assert_int_equal(link_decode_kept(b.data, b.len, 4, &error, &kept), 0);
	assert_int_equal(error, -ENOSPC);
	service_stats(rig.s, &st);
	assert_int_equal(st.nr_kept, 1);
	assert_int_equal(st.kept_bytes, 4);
	rig_release(&rig);
}

static void say_replicate(struct rig *rig, uint64_t number, const char *path)
{
	struct link_want chunk = { .fp = { .lo = 1 }, .len = 4 };
	struct link_replica c = { .name = "two", .ino = 5, .chunks = &chunk, .nr_chunks = 1 };

	strcpy(c.path, path);
	RIG_SAY(rig, replica, number, &c);
}

static void receive_error(struct rig *rig, enum link_type type, uint64_t number, int error)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	int got;

	assert_int_equal(rig_receive(rig->agent, type, &b), number);
	assert_int_equal(link_decode_error(b.data, b.len, &got), 0);
	assert_int_equal(got, error);
}

static void peers_have_their_directories_copied(void **state)
{
	struct link_drop d = { .name = "two", .ino = 5 };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	say_replicate(&rig, 1, "job/1");
	say_replicate(&rig, 2, "stale");
	RIG_SAY(&rig, drop, 3, &d);
	d.ino = 13;
	RIG_SAY(&rig, drop, 4, &d);
	receive_error(&rig, LINK_REPLICATED, 1, 0);
	receive_error(&rig, LINK_REPLICATED, 2, -ESTALE);
	receive_error(&rig, LINK_DROPPED, 3, 0);
	receive_error(&rig, LINK_DROPPED, 4, -EROFS);
	rig_release(&rig);
}

static void what_cannot_be_kept_ends_the_connection(void **state)
{
	static const enum link_type types[] = { LINK_PUT, LINK_REPLICATE, LINK_DROP };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
		struct rig rig;

		rig_with_agent(&rig, &rig_patient);
		RIG_SAY(&rig, body, types[i], 1, "too short", 9);
		rig_receive_end(rig.agent);
		assert_int_equal(rig.nr_keeps, 0);
		rig_release(&rig);
	}
}

static struct service_call *call_other(struct rig *rig, int expected)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	const struct link_drop d = { .name = "two", .ino = 5 };
	struct service_call *c;

	assert_int_equal(service_call_new(rig->s, LINK_DROPPED, &c), 0);
	link_encode_drop(service_call_number(c), &d, &b);
	assert_int_equal(service_call_send(c, &b), expected);
	return c;
}

static void calls_to_other_nodes_are_answered_in_any_order(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY, answer = BUF_EMPTY;
	struct service_call *calls[3];
	uint64_t numbers[3];
	struct rig rig;
	int error;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (unsigned i = 0; i < 3; i++)
		calls[i] = call_other(&rig, 0);
	for (unsigned i = 0; i < 3; i++)
		numbers[i] = rig_receive(rig.agent, LINK_DROP, &b);
	for (unsigned i = 3; i-- > 1;)
		RIG_SAY(&rig, error, LINK_DROPPED, numbers[i], -(int)i);
	RIG_SAY(&rig, error, LINK_DROPPED, numbers[2], -77); /* once more */
	for (unsigned i = 1; i < 3; i++) {
		assert_int_equal(service_call_wait(calls[i], always, NULL, &answer), 0);
		assert_int_equal(link_decode_error(answer.data, answer.len, &error), 0);
		assert_int_equal(error, -(int)i);
		buf_release(&answer);
		service_call_free(calls[i]);
	}
	assert_int_equal(service_call_wait(calls[0], never, NULL, &answer), -ECANCELED);
	service_call_free(calls[0]);
	RIG_SAY(&rig, error, LINK_DROPPED, numbers[0], 0); /* no thread waits for it any more */
	rig_release(&rig);
}

static void an_agent_that_goes_leaves_no_caller_waiting(void **state)
{
	_cleanup_(buf_release) struct buf answer = BUF_EMPTY;
	struct service_world w;
	struct service_call *c;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	assert_int_equal(service_world(rig.s, &w), 0);
	assert_int_equal(w.nr, 3);
	assert_int_equal(w.self, 1);
	assert_int_equal(w.hosts[2], 2);
	assert_string_equal(w.nodes[2].name, "two");
	service_world_release(&w);
	c = call_other(&rig, 0);
	closep(&rig.agent);
	assert_int_equal(service_call_wait(c, always, NULL, &answer), -ENOTCONN);
	service_call_free(c);
	rig_await_there(&rig, false);
	service_call_free(call_other(&rig, -ENOTCONN));
	assert_int_equal(service_world(rig.s, &w), -ENOTCONN);
	rig_release(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_collection_of_all_nodes_has_this_one_take_part),
		cmocka_unit_test(the_caller_of_a_collection_receives_its_end),
		cmocka_unit_test(other_daemons_are_answered),
		cmocka_unit_test(too_long_a_question_is_refused),
		cmocka_unit_test(another_daemon_is_asked),
		cmocka_unit_test(an_answer_that_does_not_come_is_not_waited_for),
		cmocka_unit_test(the_nodes_are_reported),
		cmocka_unit_test(peers_have_their_chunks_kept),
		cmocka_unit_test(peers_have_their_directories_copied),
		cmocka_unit_test(what_cannot_be_kept_ends_the_connection),
		cmocka_unit_test(calls_to_other_nodes_are_answered_in_any_order),
		cmocka_unit_test(an_agent_that_goes_leaves_no_caller_waiting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
