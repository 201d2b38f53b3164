/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Rounds: what a commit and the agent say to each other, and what either does when the other is late or gone. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/mpi-agent/daemon/service_rig.h"

static void a_round_goes_from_want_to_settled(void **state)
{
	struct service_stats stats;
	struct rig rig;
	struct rig_call c;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (uint64_t round = 1; round <= 3; round++) {
		rig_decide(&rig, round * 10, &c);
		assert_int_equal(c.d.nr_nodes, 3);
		assert_int_equal(c.d.self, 1);
		assert_string_equal(c.d.nodes[2].name, "two");
		assert_memory_equal(c.d.nodes[0].id, rig_nodes[0].store_id, CLUSTER_ID_LEN);
		assert_int_equal(c.d.nr, 2);
		assert_int_equal(c.d.owners[0].index, 1);
		assert_int_equal(c.d.owners[0].nr, 2);
		assert_int_equal(c.d.owners[0].owners[1], 1);
		assert_int_equal(c.d.owners[1].index, 2);
		assert_int_equal(c.d.owners[1].owners[0], 2);
		rig_settle(&rig, round * 10, &c);
		assert_memory_equal(c.has_stored, ((bool[]){ true, true, false }), sizeof(c.has_stored));
		cluster_decision_release(&c.d);
	}
	service_stats(rig.s, &stats);
	assert_true(stats.is_connected);
	assert_int_equal(stats.nr_nodes, 3);
	assert_int_equal(stats.nr_rounds, 3);
	assert_int_equal(stats.nr_failed, 0);
	rig_release(&rig);
}

static void a_failure_to_store_is_reported_and_not_waited_for(void **state)
{
	struct service_stats stats;
	struct rig rig;
	struct rig_call c;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig_decide(&rig, 1, &c);
	assert_int_equal(rig.calls->settle(rig.calls->userdata, &c.d, -ENOSPC, NULL), 0);
	rig_receive_stored(&rig, 1, -ENOSPC);
	service_stats(rig.s, &stats);
	assert_int_equal(stats.nr_rounds, 0);
	assert_int_equal(stats.nr_failed, 1);
	cluster_decision_release(&c.d);
	rig_decide(&rig, 2, &c);
	rig_settle(&rig, 2, &c);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void a_round_that_nothing_is_pending_for_is_answered_at_once(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (uint64_t round = 1; round <= 2; round++) {
		RIG_SAY(&rig, plain, LINK_BEGIN, round);
		rig_receive_offer(&rig, round, 0);
		RIG_SAY(&rig, decision, round, NULL, 0);
		rig_receive_stored(&rig, round, 0);
		RIG_SAY(&rig, settled, round, ((const uint8_t[]){ 1, 1, 1 }), 3);
	}
	assert_int_equal(rig.nr_commits, 0);
	rig_release(&rig);
}

static void a_round_has_what_is_pending_committed(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig.pending = rig.commit_decides = true;
	RIG_SAY(&rig, plain, LINK_BEGIN, 5);
	rig_receive_offer(&rig, 5, 2);
	assert_int_equal(rig.nr_commits, 1);
	rig_go(&rig);
	rig_release(&rig);
}

static void a_round_waits_for_a_program_that_still_writes(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig.pending = rig.commit_decides = rig.writes = true;
	RIG_SAY(&rig, plain, LINK_BEGIN, 5);
	while (rig.nr_looks < 3)
		usleep(1000);
	assert_int_equal(rig.nr_commits, 0);
	rig.writes = false;
	rig_receive_offer(&rig, 5, 2);
	assert_int_equal(rig.nr_commits, 1);
	rig_go(&rig);
	rig_release(&rig);
}

static void a_round_does_not_wait_for_ever_for_a_program(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, SHORT_NS, LONG_NS, 0 });
	rig.pending = rig.writes = true;
	RIG_SAY(&rig, plain, LINK_BEGIN, 5);
	rig_receive_offer(&rig, 5, 0); /* a commit has come to no round, or time is up */
	RIG_SAY(&rig, decision, 5, NULL, 0);
	rig_receive_stored(&rig, 5, 0);
	rig_release(&rig);
}

static void receive_announced(struct rig *rig, const struct fp *fps, uint32_t nr_fps)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	_cleanup_(freep) struct fp *back = NULL;
	uint32_t nr;

	assert_int_equal(rig_receive(rig->agent, LINK_ANNOUNCE, &b), 0);
	assert_int_equal(link_decode_announce(b.data, b.len, &back, &nr), 0);
	assert_int_equal(nr, nr_fps);
	assert_memory_equal(back, fps, nr_fps * sizeof(*fps));
}

static void pages_that_no_round_was_about_are_reported(void **state)
{
	const struct fp in_any_order[] = { rig_pages[2], rig_pages[0], rig_pages[1] };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ .announce_ns = 1 });
	rig.calls->stored(rig.calls->userdata, in_any_order, 2, true);
	receive_announced(&rig, in_any_order, 2);
	RIG_SAY(&rig, plain, LINK_SHARED, 2);
	while (rig.nr_shared == 0)
		usleep(1000);
	rig_go(&rig);
	rig.calls->stored(rig.calls->userdata, in_any_order, 2, true); /* no agent is there for it: the next one is told */
	rig.calls->stored(rig.calls->userdata, in_any_order + 2, 1, true);
	rig_come(&rig);
	receive_announced(&rig, in_any_order, 3);
	rig_release(&rig);
}

static void pages_that_have_no_time_are_reported_at_once(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ .announce_ns = LONG_NS });
	rig.calls->stored(rig.calls->userdata, rig_pages, 1, true);
	rig.calls->stored(rig.calls->userdata, rig_pages + 1, 1, false);
	receive_announced(&rig, rig_pages, 2);
	rig_release(&rig);
}

static void pages_that_were_to_be_reported_later_are_reported_before_a_round(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ .announce_ns = LONG_NS });
	rig.calls->stored(rig.calls->userdata, rig_pages, 2, true);
	RIG_SAY(&rig, plain, LINK_BEGIN, 1);
	receive_announced(&rig, rig_pages, 2);
	assert_int_equal(rig_receive(rig.agent, LINK_OFFER, &b), 1); /* nothing */
	assert_int_equal(b.len, 0);
	rig_release(&rig);
}

static void more_pages_than_a_message_holds_are_reported_in_several(void **state)
{
	_cleanup_(freep) struct fp *many = calloc(LINK_ANNOUNCE_MAX, sizeof(*many));
	struct rig rig;

	(void)state;
	assert_non_null(many);
	for (uint32_t i = 0; i < LINK_ANNOUNCE_MAX; i++)
		many[i].lo = i;
	rig_with_agent(&rig, &(struct service_limits){ .announce_ns = LONG_NS });
	rig.calls->stored(rig.calls->userdata, rig_pages, 1, true);
	rig.calls->stored(rig.calls->userdata, many, LINK_ANNOUNCE_MAX, true);
	receive_announced(&rig, rig_pages, 1);
	RIG_SAY(&rig, plain, LINK_BEGIN, 1);
	receive_announced(&rig, many, LINK_ANNOUNCE_MAX);
	rig_release(&rig);
}

static void a_round_does_not_wait_for_ever_for_a_commit(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ LONG_NS, SHORT_NS, LONG_NS, 0 });
	rig.pending = rig.commit_hangs = true;
	RIG_SAY(&rig, plain, LINK_BEGIN, 5);
	rig_receive_offer(&rig, 5, 0);
	RIG_SAY(&rig, decision, 5, NULL, 0);
	rig_receive_stored(&rig, 5, 0);
	rig.commit_hangs = false;
	rig_release(&rig);
}

static void a_commit_that_comes_to_no_round_does_not_hold_it_up(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig.pending = true; /* and another thread takes it away */
	for (uint64_t round = 1; round <= 2; round++) {
		RIG_SAY(&rig, plain, LINK_BEGIN, round);
		rig_receive_offer(&rig, round, 0);
		RIG_SAY(&rig, decision, round, NULL, 0);
		rig_receive_stored(&rig, round, 0);
	}
	rig_release(&rig);
}

static void a_round_that_is_wanted_has_the_store_commit(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig.commit_decides = true;
	rig.calls->want(rig.calls->userdata);
	rig_receive_plain(&rig, LINK_WANT, 0);
	RIG_SAY(&rig, plain, LINK_BEGIN, 1);
	rig_receive_offer(&rig, 1, 2);
	assert_int_equal(rig.nr_commits, 1);
	rig_go(&rig);
	rig.calls->want(rig.calls->userdata); /* no agent is there for it */
	rig_come(&rig);
	assert_int_equal(rig.nr_commits, 1);
	rig_release(&rig);
}

static void no_thread_waits_long_for_a_round_and_then_not_at_all(void **state)
{
	struct rig_call c = { 0 };
	struct service_stats stats;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	c = (struct rig_call){ .rig = &rig, .nr = 3 };
	rig_run_decide(&c);
	assert_int_equal(c.r, -ETIMEDOUT);
	assert_false(rig_is_there(&rig));
	service_stats(rig.s, &stats);
	assert_true(stats.is_silent);
	assert_int_equal(stats.nr_failed, 1);
	rig_run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	rig_receive_plain(&rig, LINK_WANT, 0);
	RIG_SAY(&rig, plain, LINK_BEGIN, 1); /* it speaks of rounds again */
	rig_receive_offer(&rig, 1, 0);
	rig_await_there(&rig, true);
	rig_release(&rig);
}

/* The next one of this type, whatever comes before. Its length. */
static size_t receive_until(struct rig *rig, enum link_type type)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	while (rig_receive_any(rig->agent, &b).type != type)
		;
	return b.len;
}

/* Begin a round that is requested within a short time; on a slow machine it may take several. Its number. */
static uint64_t begin_in_time(struct rig *rig, struct rig_call *c)
{
	for (uint64_t round = 1;; round++) {
		*c = (struct rig_call){ .rig = rig, .nr = 3 };
		if (!rig_is_there(rig)) { /* it was too slow the last time */
			RIG_SAY(rig, plain, LINK_BEGIN, round++);
			receive_until(rig, LINK_OFFER);
		}
		rig_call_start(c, rig_run_decide);
		receive_until(rig, LINK_WANT);
		RIG_SAY(rig, plain, LINK_BEGIN, round);
		if (receive_until(rig, LINK_OFFER) > 0)
			return round;
		rig_call_finish(c); /* no node was left to offer anything */
	}
}

static void a_late_decision_is_answered_by_an_error(void **state)
{
	uint64_t round;
	struct rig rig;
	struct rig_call c;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	round = begin_in_time(&rig, &c);
	assert_int_equal(rig_call_finish(&c), -ETIMEDOUT);
	assert_false(rig_is_there(&rig));
	rig_say_decision(&rig, round);
	rig_receive_stored(&rig, round, -ECANCELED);
	rig_release(&rig);
}

static void no_thread_waits_long_for_the_end_of_a_round(void **state)
{
	uint64_t round;
	struct rig rig;
	struct rig_call c;

	(void)state;
	rig_with_agent(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	do {
		round = begin_in_time(&rig, &c);
		rig_say_decision(&rig, round);
	} while (rig_call_finish(&c) != 0);
	rig_run_settle(&c);
	assert_int_equal(c.r, -ETIMEDOUT);
	assert_false(rig_is_there(&rig));
	rig_receive_stored(&rig, round, 0);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void an_agent_that_goes_leaves_no_thread_waiting(void **state)
{
	(void)state;
	for (int step = 0; step < 4; step++) {
		struct rig_call c = { 0 };
		struct rig rig;

		rig_with_agent(&rig, &rig_patient);
		c = (struct rig_call){ .rig = &rig, .nr = 3 };
		if (step < 2)
			rig_call_start(&c, rig_run_decide);
		else
			rig_decide(&rig, 1, &c);
		if (step < 2)
			rig_receive_plain(&rig, LINK_WANT, 0);
		if (step == 1) {
			RIG_SAY(&rig, plain, LINK_BEGIN, 1);
			rig_receive_offer(&rig, 1, 3);
		}
		if (step == 3) {
			rig_call_start(&c, rig_run_settle);
			rig_receive_stored(&rig, 1, 0);
		}
		rig_go(&rig);
		if (step == 2)
			rig_run_settle(&c);
		else
			rig_call_finish(&c);
		assert_int_equal(c.r, -ENOTCONN);
		cluster_decision_release(&c.d);
		rig_come(&rig); /* and the next one finds everything as it should be */
		rig_decide(&rig, 1, &c);
		rig_settle(&rig, 1, &c);
		cluster_decision_release(&c.d);
		rig_release(&rig);
	}
}

static void a_new_agent_does_not_end_the_round_of_the_last(void **state)
{
	struct rig_call old, new;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig_decide(&rig, 1, &old);
	rig_go(&rig);
	rig_come(&rig);
	rig_run_settle(&old);
	assert_int_equal(old.r, -ECANCELED);
	rig_decide(&rig, 1, &new); /* by the same number */
	rig_run_settle(&old);
	assert_int_equal(old.r, -ECANCELED);
	rig_settle(&rig, 1, &new);
	cluster_decision_release(&old.d);
	cluster_decision_release(&new.d);
	rig_release(&rig);
}

static void what_is_late_is_thrown_away(void **state)
{
	static const uint8_t all[] = { 1, 1, 1 }, settled[] = { 0, 1, 0 };
	struct rig_call c = { 0 };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	c = (struct rig_call){ .rig = &rig, .nr = 3 };
	rig_call_start(&c, rig_run_decide);
	rig_receive_plain(&rig, LINK_WANT, 0);
	rig_say_decision(&rig, 0);
	RIG_SAY(&rig, plain, LINK_BEGIN, 2);
	rig_receive_offer(&rig, 2, 3);
	rig_say_decision(&rig, 1);
	RIG_SAY(&rig, settled, 2, all, 3);
	RIG_SAY(&rig, decision, 2, NULL, 0);
	assert_int_equal(rig_call_finish(&c), 0);
	assert_int_equal(c.d.nr, 0);
	rig_say_decision(&rig, 2);
	rig_call_start(&c, rig_run_settle);
	rig_receive_stored(&rig, 2, 0);
	RIG_SAY(&rig, settled, 1, all, 3);
	RIG_SAY(&rig, settled, 2, settled, 3);
	assert_int_equal(rig_call_finish(&c), 0);
	assert_memory_equal(c.has_stored, ((bool[]){ false, true, false }), sizeof(c.has_stored));
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void a_round_that_begins_ends_the_one_before(void **state)
{
	struct rig_call c = { 0 };
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	c = (struct rig_call){ .rig = &rig, .nr = 3 };
	rig_call_start(&c, rig_run_decide);
	rig_receive_plain(&rig, LINK_WANT, 0);
	RIG_SAY(&rig, plain, LINK_BEGIN, 1);
	rig_receive_offer(&rig, 1, 3);
	RIG_SAY(&rig, plain, LINK_BEGIN, 2);
	assert_int_equal(rig_call_finish(&c), -ECANCELED);
	rig_receive_offer(&rig, 2, 0);
	rig_decide(&rig, 3, &c);
	rig_call_start(&c, rig_run_settle);
	rig_receive_stored(&rig, 3, 0);
	rig_say_nodes(&rig, 1); /* and so does another world */
	assert_int_equal(rig_call_finish(&c), -ECANCELED);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

/* One behind the other, in one piece, as an agent sends them where the next round is wanted already. */
static void an_answer_is_received_though_the_next_round_begins(void **state)
{
	static const uint8_t settled[] = { 1, 1, 0 };

	(void)state;
	for (int i = 0; i < 50; i++) {
		struct buf b = BUF_EMPTY;
		struct rig rig;
		struct rig_call c;

		rig_with_agent(&rig, &rig_patient);
		rig_decide(&rig, 1, &c);
		rig_call_start(&c, rig_run_settle);
		rig_receive_stored(&rig, 1, 0);
		link_encode_settled(1, settled, 3, &b);
		link_encode_plain(LINK_BEGIN, 2, &b);
		rig_say(&rig, &b);
		assert_int_equal(rig_call_finish(&c), 0);
		assert_memory_equal(c.has_stored, ((bool[]){ true, true, false }), sizeof(c.has_stored));
		cluster_decision_release(&c.d);
		rig_receive_offer(&rig, 2, 0);
		c = (struct rig_call){ .rig = &rig, .nr = 3 };
		rig_call_start(&c, rig_run_decide);
		rig_receive_plain(&rig, LINK_WANT, 0);
		RIG_SAY(&rig, plain, LINK_BEGIN, 3);
		rig_receive_offer(&rig, 3, 3);
		link_encode_decision(3, NULL, 0, &b);
		link_encode_plain(LINK_BEGIN, 4, &b);
		rig_say(&rig, &b);
		assert_int_equal(rig_call_finish(&c), 0);
		rig_receive_offer(&rig, 4, 0);
		rig_run_settle(&c);
		assert_int_equal(c.r, -ECANCELED);
		cluster_decision_release(&c.d);
		rig_release(&rig);
	}
}

static void two_commits_take_a_round_each(void **state)
{
	struct rig_call c[2];
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (int i = 0; i < 2; i++) {
		c[i] = (struct rig_call){ .rig = &rig, .nr = 3 };
		rig_call_start(&c[i], rig_run_decide);
	}
	rig_receive_plain(&rig, LINK_WANT, 0);
	RIG_SAY(&rig, plain, LINK_BEGIN, 1);
	for (int i = 0; i < 2; i++) { /* an offer, and WANT by the other, in some order */
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		struct link_header h = rig_receive_any(rig.agent, &b);

		assert_true(h.type == LINK_OFFER || h.type == LINK_WANT);
	}
	rig_say_decision(&rig, 1);
	RIG_SAY(&rig, plain, LINK_BEGIN, 2);
	rig_receive_offer(&rig, 2, 3);
	rig_say_decision(&rig, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(rig_call_finish(&c[i]), 0);
		cluster_decision_release(&c[i].d);
	}
	rig_release(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_round_goes_from_want_to_settled),
		cmocka_unit_test(a_failure_to_store_is_reported_and_not_waited_for),
		cmocka_unit_test(a_round_that_nothing_is_pending_for_is_answered_at_once),
		cmocka_unit_test(a_round_has_what_is_pending_committed),
		cmocka_unit_test(a_round_waits_for_a_program_that_still_writes),
		cmocka_unit_test(a_round_does_not_wait_for_ever_for_a_program),
		cmocka_unit_test(pages_that_no_round_was_about_are_reported),
		cmocka_unit_test(pages_that_have_no_time_are_reported_at_once),
		cmocka_unit_test(pages_that_were_to_be_reported_later_are_reported_before_a_round),
		cmocka_unit_test(more_pages_than_a_message_holds_are_reported_in_several),
		cmocka_unit_test(a_round_does_not_wait_for_ever_for_a_commit),
		cmocka_unit_test(a_commit_that_comes_to_no_round_does_not_hold_it_up),
		cmocka_unit_test(a_round_that_is_wanted_has_the_store_commit),
		cmocka_unit_test(no_thread_waits_long_for_a_round_and_then_not_at_all),
		cmocka_unit_test(a_late_decision_is_answered_by_an_error),
		cmocka_unit_test(no_thread_waits_long_for_the_end_of_a_round),
		cmocka_unit_test(an_agent_that_goes_leaves_no_thread_waiting),
		cmocka_unit_test(a_new_agent_does_not_end_the_round_of_the_last),
		cmocka_unit_test(what_is_late_is_thrown_away),
		cmocka_unit_test(a_round_that_begins_ends_the_one_before),
		cmocka_unit_test(an_answer_is_received_though_the_next_round_begins),
		cmocka_unit_test(two_commits_take_a_round_each),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
