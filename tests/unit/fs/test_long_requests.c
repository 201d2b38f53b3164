/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "fs/long_requests.h"
#include "fs/subuids.h"

#define MANY 100u
#define NO_PID 0x7ffffffeu /* of no process */

struct rig {
	int fds[2]; /* where requests are answered */
	struct long_requests *l;
	uint64_t unique;
};

static int setup(void **state)
{
	const struct long_requests_conf conf = { 4, 1024 };
	static struct rig rig;

	rig = (struct rig){ 0 };
	assert_int_equal(pipe2(rig.fds, O_NONBLOCK | O_CLOEXEC), 0);
	assert_int_equal(long_requests_new(rig.fds[1], &conf, &rig.l), 0);
	*state = &rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	long_requests_free(rig->l);
	close(rig->fds[0]);
	close(rig->fds[1]);
	return 0;
}

/* NULL: it waits, or was answered. */
static struct long_request *begin(struct rig *rig, uint32_t uid, uint32_t pid)
{
	struct fuse_in_header in = { .len = sizeof(in), .unique = ++rig->unique, .uid = uid, .pid = pid };
	struct long_request *r = NULL;

	long_request_begin(rig->l, &in, sizeof(in), &r);
	return r;
}

/* How many run at once of this user. */
static unsigned begin_all(struct rig *rig, uint32_t uid, struct long_request **v)
{
	unsigned nr = 0;

	while (nr < MANY && (v[nr] = begin(rig, uid, (uint32_t)getpid())))
		nr++;
	return nr;
}

static int answer_to(struct rig *rig, uint64_t *unique)
{
	struct fuse_out_header out;

	if (read(rig->fds[0], &out, sizeof(out)) != sizeof(out))
		return 0;
	*unique = out.unique;
	return out.error;
}

/* All of them, and what has waited for them. How many those were. */
static unsigned end_all(struct rig *rig, struct long_request **v, unsigned nr)
{
	unsigned waited = 0;

	for (unsigned i = 0; i < nr; i++)
		for (struct long_request *r = v[i]; (r = long_request_end(rig->l, r)); waited++)
			assert_int_equal(((const struct fuse_in_header *)r->bytes)->len, sizeof(struct fuse_in_header));
	return waited;
}

#define FIRST_OF_USERS 40u

/* With requests that run for hours: one of each runs, of as many users as a machine has at a time, and root's. */
static void the_first_request_of_a_user_does_not_wait_for_others(void **state)
{
	struct long_request *v[FIRST_OF_USERS + 2], *one[MANY], *root[MANY];
	struct rig *rig = *state;
	unsigned nr_one, nr_root;

	nr_one = begin_all(rig, 70000, one);
	for (uint32_t i = 0; i < FIRST_OF_USERS + 1; i++) {
		v[i] = begin(rig, 70001 + i, (uint32_t)getpid());
		assert_non_null(v[i]);
	}
	nr_root = begin_all(rig, 0, root);
	assert_in_range(nr_root, 2, MANY - 1);
	end_all(rig, root, nr_root);
	end_all(rig, one, nr_one);
	end_all(rig, v, FIRST_OF_USERS + 1);
}

static void users_leave_places_to_others_and_to_root(void **state)
{
	struct long_request *one[MANY], *other[MANY], *third[MANY], *root[MANY], *first[FIRST_OF_USERS][MANY];
	unsigned nr_one, nr_other, nr_third, nr_root, nr_waited = 0;
	struct rig *rig = *state;

	nr_one = begin_all(rig, 70000, one);
	nr_other = begin_all(rig, 70001, other);
	for (uint32_t i = 0; i < FIRST_OF_USERS; i++) /* whatever two of them do */
		assert_int_equal(begin_all(rig, 70010 + i, first[i]), 1);
	nr_third = begin_all(rig, 70002, third);
	nr_root = begin_all(rig, 0, root);
	assert_in_range(nr_one, 2, 8);
	assert_int_equal(nr_other, nr_one);
	assert_int_equal(nr_third, 0);
	assert_int_equal(nr_root, 2);
	/* the last request of each user waits for a place; the end of another request runs it */
	nr_waited += end_all(rig, root, nr_root) + end_all(rig, one, nr_one) + end_all(rig, other, nr_other);
	for (uint32_t i = 0; i < FIRST_OF_USERS; i++)
		nr_waited += end_all(rig, first[i], 1);
	assert_int_equal(nr_waited, 4 + FIRST_OF_USERS);
	assert_int_equal(begin_all(rig, 70002, third), nr_one);
	end_all(rig, third, nr_one);
}

/* However many user IDs a user has, they count as one. */
static void ids_of_one_user_count_together(void **state)
{
	struct long_request *v[MANY], *own[MANY], *other[MANY];
	struct rig *rig = *state;
	unsigned nr = 0, nr_own;
	char path[] = "/tmp/ckptfs-subuid.XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_true(dprintf(fd, "1000:300000:65536\n") > 0);
	close(fd);
	subuids_read_from(path, "/dev/null");
	nr_own = begin_all(rig, 1000, own);
	for (uint32_t uid = 300000; uid < 300000 + MANY; uid++)
		if ((v[nr] = begin(rig, uid, (uint32_t)getpid())))
			nr++;
	assert_int_equal(nr, 0);
	assert_int_equal(begin_all(rig, 70000, other), nr_own);
	subuids_read_from(NULL, NULL);
	unlink(path);
	end_all(rig, other, nr_own);
	end_all(rig, own, nr_own);
}

static void a_killed_client_is_answered_while_it_waits(void **state)
{
	struct long_request *v[MANY];
	struct rig *rig = *state;
	unsigned nr = begin_all(rig, 70000, v); /* one waits; its client is alive */
	uint64_t lives = rig->unique, dies, unique;

	assert_null(begin(rig, 70000, NO_PID));
	dies = rig->unique;
	assert_false(long_requests_interrupt(rig->l, dies + 1));
	assert_true(long_requests_interrupt(rig->l, lives)); /* a signal that does not end it */
	assert_int_equal(answer_to(rig, &unique), 0);
	assert_true(long_requests_interrupt(rig->l, dies));
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	assert_int_equal(unique, dies);
	assert_int_equal(end_all(rig, v, nr), 1);
}

static void a_killed_client_is_given_up_while_it_runs(void **state)
{
	struct rig *rig = *state;
	struct long_request *lives = begin(rig, 70000, (uint32_t)getpid()), *dies = begin(rig, 70000, NO_PID);

	cancel_set(&lives->cancel);
	assert_true(long_requests_interrupt(rig->l, rig->unique - 1));
	assert_int_equal(cancel_check(), 0);
	cancel_set(&dies->cancel);
	assert_int_equal(cancel_check(), 0);
	assert_true(long_requests_interrupt(rig->l, rig->unique));
	assert_int_equal(cancel_check(), -EINTR);
	cancel_set(NULL);
	assert_int_equal(cancel_check(), 0);
	assert_int_equal(end_all(rig, (struct long_request *[]){ lives, dies }, 2), 0);
}

static void nothing_waits_for_an_end(void **state)
{
	struct long_request *v[MANY];
	struct rig *rig = *state;
	unsigned nr = begin_all(rig, 70000, v);
	uint64_t unique;

	long_requests_stop(rig->l);
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	assert_int_equal(unique, rig->unique);
	assert_null(begin(rig, 70001, (uint32_t)getpid()));
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	cancel_set(&v[0]->cancel);
	assert_int_equal(cancel_check(), -EINTR);
	cancel_set(NULL);
	assert_int_equal(end_all(rig, v, nr), 0);
}

static void waiting_has_a_limit(void **state)
{
	struct long_request *v[MANY];
	struct rig *rig = *state;
	unsigned nr = begin_all(rig, 70000, v), nr_waiting = 1;
	uint64_t unique;

	for (; answer_to(rig, &unique) == 0; nr_waiting++)
		assert_null(begin(rig, 70000, (uint32_t)getpid()));
	assert_int_equal(nr_waiting, 1025); /* the last was refused */
	assert_int_equal(end_all(rig, v, nr), 1024);
}

static uint32_t uid_of(const struct long_request *r)
{
	return ((const struct fuse_in_header *)r->bytes)->uid;
}

static void waiting_users_take_turns(void **state)
{
	static const uint32_t turns[] = { 70002, 70003, 70002, 70003, 70002 };
	struct long_request *one[MANY], *other[MANY], *first[FIRST_OF_USERS][MANY], *r;
	struct rig *rig = *state;
	unsigned nr_one = begin_all(rig, 70000, one), nr_other = begin_all(rig, 70001, other);

	for (uint32_t i = 0; i < FIRST_OF_USERS; i++)
		assert_int_equal(begin_all(rig, 69000 + i, first[i]), 1);
	for (uint32_t uid = 70002; uid < 70004; uid++)
		for (unsigned i = 0; i < (uid == 70002 ? 3u : 2u); i++)
			assert_null(begin(rig, uid, (uint32_t)getpid()));
	r = one[0];
	for (size_t i = 0; i < ARRAY_SIZE(turns); i++) {
		r = long_request_end(rig->l, r);
		while (r && uid_of(r) < 70002)
			r = long_request_end(rig->l, r);
		assert_non_null(r);
		assert_int_equal(uid_of(r), turns[i]);
	}
	assert_null(long_request_end(rig->l, r));
	end_all(rig, one + 1, nr_one - 1);
	end_all(rig, other, nr_other);
	for (uint32_t i = 0; i < FIRST_OF_USERS; i++)
		end_all(rig, first[i], 1);
}

static void park(struct rig *rig, uint64_t nr_thaws, uint32_t pid, bool is_interrupted)
{
	struct fuse_in_header in = { .len = sizeof(in), .unique = ++rig->unique, .uid = 70000, .pid = pid };

	long_request_park(rig->l, &in, sizeof(in), nr_thaws, is_interrupted);
}

static void parked_requests_are_served_after_a_thaw(void **state)
{
	struct long_request *v[MANY], *r;
	struct rig *rig = *state;
	unsigned nr = begin_all(rig, 70000, v); /* they need no place */
	uint64_t before = long_requests_nr_thaws(rig->l), dies, unique;

	park(rig, before, (uint32_t)getpid(), false);
	park(rig, before, NO_PID, false);
	dies = rig->unique;
	assert_true(long_requests_interrupt(rig->l, dies));
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	assert_int_equal(unique, dies);
	long_requests_thaw(rig->l);
	r = long_request_take_thawed(rig->l);
	assert_int_equal(((const struct fuse_in_header *)r->bytes)->unique, dies - 1);
	assert_null(long_request_end(rig->l, r));
	park(rig, before, (uint32_t)getpid(), false); /* the thaw came while it was served */
	r = long_request_take_thawed(rig->l);
	assert_int_equal(((const struct fuse_in_header *)r->bytes)->unique, rig->unique);
	assert_null(long_request_end(rig->l, r));
	park(rig, before + 1, (uint32_t)getpid(), false);
	long_requests_stop(rig->l);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(answer_to(rig, &unique), -EINTR); /* that one, and the one that waits for a place */
	assert_null(long_request_take_thawed(rig->l));
	end_all(rig, v, nr);
}

static struct long_request *hold(struct rig *rig, uint32_t pid)
{
	struct fuse_in_header in = { .len = sizeof(in), .unique = ++rig->unique, .uid = 70000, .pid = pid };

	return long_request_hold(rig->l, &in);
}

static void a_killed_client_is_answered_while_the_kernel_is_waited_for(void **state)
{
	struct long_request *v[MANY], *lives, *dies;
	struct rig *rig = *state;
	unsigned nr = begin_all(rig, 70000, v); /* they need no place */
	uint64_t unique;

	lives = hold(rig, (uint32_t)getpid());
	dies = hold(rig, NO_PID);
	assert_true(long_requests_interrupt(rig->l, rig->unique - 1));
	assert_int_equal(answer_to(rig, &unique), 0);
	assert_true(long_requests_interrupt(rig->l, rig->unique));
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	assert_int_equal(unique, rig->unique);
	assert_true(long_request_release(rig->l, dies));
	dies = hold(rig, NO_PID);
	long_requests_stop(rig->l); /* the one that waits for a place; the holders answer these */
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	assert_int_equal(answer_to(rig, &unique), 0);
	assert_false(long_request_release(rig->l, lives));
	assert_false(long_request_release(rig->l, dies));
	end_all(rig, v, nr);
}

static struct rig *held_rig;
static struct long_request *held;

static void release_held(int signal)
{
	(void)signal;
	if (held)
		assert_true(long_request_release(held_rig->l, TAKE(held)));
}

/* The holder ends the request while its client is answered: here as soon as the answer can be read. */
static void a_held_request_ends_while_it_is_answered(void **state)
{
	struct sigaction before, action = { .sa_handler = release_held };
	struct rig *rig = *state;
	uint64_t unique;

	assert_int_equal(sigaction(SIGIO, &action, &before), 0);
	assert_int_equal(fcntl(rig->fds[0], F_SETOWN, getpid()), 0);
	assert_int_equal(fcntl(rig->fds[0], F_SETFL, O_NONBLOCK | O_ASYNC), 0);
	held_rig = rig;
	held = hold(rig, NO_PID);
	assert_true(long_requests_interrupt(rig->l, rig->unique));
	assert_null(held);
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	assert_int_equal(unique, rig->unique);
	assert_int_equal(fcntl(rig->fds[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(sigaction(SIGIO, &before, NULL), 0);
}

/* The signal came while its work was still under way: the kernel sends no other INTERRUPT. */
static void a_held_request_has_the_signals_of_its_work(void **state)
{
	struct rig *rig = *state;
	struct fuse_in_header in = { .len = sizeof(in), .unique = 1, .uid = 70000, .pid = NO_PID };
	struct long_request *r, *done;
	uint64_t unique;

	assert_true(long_request_begin(rig->l, &in, sizeof(in), &r));
	assert_true(long_requests_interrupt(rig->l, 1));
	done = long_request_hold(rig->l, &in);
	assert_null(long_request_end(rig->l, r));
	r = begin(rig, 70001, (uint32_t)getpid());
	cancel_set(&r->cancel);
	assert_int_equal(cancel_check(), 0);
	cancel_set(NULL);
	assert_int_equal(answer_to(rig, &unique), -EINTR);
	assert_int_equal(unique, 1);
	assert_true(long_request_release(rig->l, done));
	assert_null(long_request_end(rig->l, r));
}

/* As each check of a client reads a file of /proc, the number of checks per call is limited, and all have their turn. */
static void clients_that_received_a_signal_are_checked_in_turn(void **state)
{
	struct long_request *v[MANY];
	struct rig *rig = *state;
	unsigned nr = begin_all(rig, 70000, v), nr_max = 0;
	uint64_t before = long_requests_nr_thaws(rig->l), unique;

	for (unsigned i = 0; i < 200; i++)
		park(rig, before, NO_PID, true); /* killed after the first signal */
	for (unsigned nr_answered = 0; nr_answered < 200;) {
		unsigned nr_now = 0;

		cancel_set(&v[0]->cancel);
		assert_int_equal(cancel_check(), 0);
		cancel_set(NULL);
		while (answer_to(rig, &unique) == -EINTR)
			nr_now++;
		nr_answered += nr_now;
		nr_max = MAX(nr_max, nr_now);
	}
	assert_in_range(nr_max, 1, 16);
	assert_int_equal(end_all(rig, v, nr), 1);
}

static void clients_that_live_do_not_keep_others_from_being_checked(void **state)
{
	struct long_request *v[MANY];
	struct rig *rig = *state;
	unsigned nr = begin_all(rig, 70000, v);
	uint64_t before = long_requests_nr_thaws(rig->l), unique;

	for (unsigned i = 0; i < 200; i++)
		park(rig, before, (uint32_t)getpid(), true);
	park(rig, before, NO_PID, true);
	cancel_set(&v[0]->cancel);
	while (answer_to(rig, &unique) == 0)
		assert_int_equal(cancel_check(), 0);
	cancel_set(NULL);
	assert_int_equal(unique, rig->unique);
	long_requests_stop(rig->l);
	end_all(rig, v, nr);
}

#define rig_test(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		rig_test(the_first_request_of_a_user_does_not_wait_for_others),
		rig_test(users_leave_places_to_others_and_to_root),
		rig_test(ids_of_one_user_count_together),
		rig_test(a_killed_client_is_answered_while_it_waits),
		rig_test(a_killed_client_is_given_up_while_it_runs),
		rig_test(nothing_waits_for_an_end),
		rig_test(waiting_has_a_limit),
		rig_test(waiting_users_take_turns),
		rig_test(parked_requests_are_served_after_a_thaw),
		rig_test(a_killed_client_is_answered_while_the_kernel_is_waited_for),
		rig_test(a_held_request_ends_while_it_is_answered),
		rig_test(a_held_request_has_the_signals_of_its_work),
		rig_test(clients_that_received_a_signal_are_checked_in_turn),
		rig_test(clients_that_live_do_not_keep_others_from_being_checked),
	};

	return cmocka_run_group_tests_name("long_requests", tests, NULL, NULL);
}
