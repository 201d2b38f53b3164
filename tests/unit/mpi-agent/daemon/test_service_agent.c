/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Which process may be the agent, why it is disconnected, and its socket. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/daemon/listen.h"
#include "tests/unit/mpi-agent/daemon/dial.h"
#include "tests/unit/mpi-agent/daemon/service_rig.h"

static void no_node_is_there_before_the_agent_names_them(void **state)
{
	struct rig_call c;
	struct rig rig;

	(void)state;
	rig_init(&rig, &rig_patient);
	c = (struct rig_call){ .rig = &rig };
	assert_false(rig_is_there(&rig));
	rig_run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	rig_start(&rig);
	rig_run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	rig_greet(&rig);
	assert_false(rig_is_there(&rig));
	rig_run_fetch(&c);
	assert_int_equal(c.r, -ENOTCONN);
	rig_say_nodes(&rig, 1);
	rig_await_there(&rig, true);
	rig_go(&rig);
	rig_come(&rig);
	service_stop(rig.s);
	assert_false(rig_is_there(&rig));
	rig_run_decide(&c);
	assert_int_equal(c.r, -ENOTCONN);
	rig_release(&rig);
}

static void the_store_receives_the_nodes_and_that_there_are_none(void **state)
{
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	while (rig.nr_peers_changed < 1)
		sched_yield();
	assert_int_equal(rig.nr_present, ARRAY_SIZE(rig_nodes));
	rig_go(&rig);
	while (rig.nr_peers_changed < 2)
		sched_yield();
	assert_int_equal(rig.nr_present, 0);
	rig_greet(&rig); /* and has not named the nodes */
	rig_go(&rig);
	service_stop(rig.s);
	assert_int_equal(rig.nr_peers_changed, 2);
	rig_release(&rig);
}

static void a_second_agent_is_reported_that_there_is_one(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct rig rig;
	struct rig_call c;
	int second;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	for (int i = 0; i < 3; i++) {
		second = rig_dial(&rig);
		assert_int_equal(rig_receive(second, LINK_REFUSED, &b), EBUSY);
		assert_int_equal(send(second, "HELLO", 5, MSG_NOSIGNAL), 5); /* it need not listen first */
		rig_receive_end(second);
		close(second);
	}
	rig_decide(&rig, 1, &c); /* the first does not mind */
	rig_settle(&rig, 1, &c);
	cluster_decision_release(&c.d);
	rig_release(&rig);
}

static void another_users_agent_is_refused(void **state)
{
	struct rig rig;
	int status;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	assert_int_equal(chmod(rig.dir, 0755), 0);
	assert_int_equal(chmod(rig.path, 0666), 0); /* for all users, which is refused */
	pid = fork();
	if (pid == 0) {
		uint8_t head[sizeof(struct link_header_wire)];
		struct link_header h;
		struct sockaddr_un a = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);

		strcpy(a.sun_path, rig.path);
		if (setgid(65534) < 0 || setuid(65534) < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
		    !rig_receive_bytes(fd, head, sizeof(head)) || link_decode_header(head, sizeof(head), &h) < 0)
			_exit(1);
		_exit(h.type == LINK_REFUSED && h.number == EACCES ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	rig_release(&rig);
}

static void an_agent_that_breaks_the_protocol_is_disconnected(void **state)
{
	static const struct {
		enum { STRANGER, GREETED, KNOWN } when;
		const char *name;
		uint8_t bytes[40];
		size_t len;
	} cases[] = {
		{ STRANGER, "BEGIN before HELLO", { 0, 0, 0, 0, LINK_BEGIN }, 16 },
		{ STRANGER, "another version", { 4, 0, 0, 0, LINK_HELLO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 99 }, 20 },
		{ STRANGER, "garbage", "GET / HTTP/1.1\r\n\r\n", 18 },
		{ GREETED, "BEGIN before NODES", { 0, 0, 0, 0, LINK_BEGIN, 0, 0, 0, 1 }, 16 },
		{ GREETED, "HELLO again", { 4, 0, 0, 0, LINK_HELLO, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }, 20 },
		{ GREETED, "no nodes", { 8, 0, 0, 0, LINK_NODES }, 24 },
		{ KNOWN, "a daemon's message", { 0, 0, 0, 0, LINK_WANT }, 16 },
		{ KNOWN, "too much", { 255, 255, 255, 255, LINK_DECISION }, 16 },
		{ KNOWN, "a type that is none", { 0, 0, 0, 0, 99 }, 16 },
		{ KNOWN, "half a GET", { 4, 0, 0, 0, LINK_GET }, 20 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf b = BUF_EMPTY;
		struct rig rig;

		rig_init(&rig, &rig_patient);
		rig_start(&rig);
		if (cases[i].when == STRANGER)
			rig.agent = rig_dial(&rig);
		else if (cases[i].when == GREETED)
			rig_greet(&rig);
		else
			rig_come(&rig);
		buf_add(&b, cases[i].bytes, cases[i].len);
		rig_say(&rig, &b);
		rig_receive_end(rig.agent);
		rig_go(&rig);
		rig_come(&rig); /* the next is welcome */
		rig_release(&rig);
	}
}

static void answers_that_cannot_be_right_end_the_connection(void **state)
{
	static const struct link_owners beyond[] = { { .index = 7, .nr = 1, .owners = { 0 } } };
	static const uint8_t five[5];
	struct rig_call c = { 0 };
	struct rig_fetch f;
	struct rig rig;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	c = (struct rig_call){ .rig = &rig, .nr = 3 };
	rig_call_start(&c, rig_run_decide);
	rig_receive_plain(&rig, LINK_WANT, 0);
	RIG_SAY(&rig, plain, LINK_BEGIN, 1);
	rig_receive_offer(&rig, 1, 3);
	RIG_SAY(&rig, decision, 1, beyond, 1);
	assert_int_equal(rig_call_finish(&c), -ENOTCONN);
	rig_go(&rig);
	rig_come(&rig);
	rig_decide(&rig, 1, &c);
	rig_call_start(&c, rig_run_settle);
	rig_receive_stored(&rig, 1, 0);
	RIG_SAY(&rig, settled, 1, five, 5);
	assert_int_equal(rig_call_finish(&c), -ENOTCONN);
	cluster_decision_release(&c.d);
	rig_go(&rig);
	rig_come(&rig);
	rig_start_fetch(&rig, 3, 10, 1, &c);
	rig_receive_fetch(&rig, &f);
	RIG_SAY(&rig, chunks, f.number, f.wants, ((const void *[]){ NULL, NULL }), 2);
	assert_int_equal(rig_call_finish(&c), -ENOTCONN);
	rig_wants_free(c.wants, 3);
	rig_fetch_release(&f);
	rig_go(&rig);
	rig_release(&rig);
}

static void an_agent_of_another_store_is_hung_up_on(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, &rig_patient);
	rig_start(&rig);
	rig_greet(&rig);
	rig_say_nodes(&rig, 2);
	rig_receive_end(rig.agent);
	rig_release(&rig);
}

static void a_silent_process_makes_room_for_others(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig, &(struct service_limits){ SHORT_NS, LONG_NS, LONG_NS, 0 });
	rig_start(&rig);
	rig.agent = rig_dial(&rig);
	rig_receive_end(rig.agent);
	close(rig.agent);
	rig_come(&rig);
	rig_release(&rig);
}

static void stopping_leaves_no_thread_waiting(void **state)
{
	struct rig_call c[3];
	struct rig rig;
	struct rig_fetch f;

	(void)state;
	rig_with_agent(&rig, &rig_patient);
	rig_decide(&rig, 1, &c[0]);
	rig_call_start(&c[0], rig_run_settle);
	rig_receive_stored(&rig, 1, 0);
	c[1] = (struct rig_call){ .rig = &rig, .nr = 3 };
	rig_call_start(&c[1], rig_run_decide);
	rig_receive_plain(&rig, LINK_WANT, 0);
	rig_start_fetch(&rig, 1, 10, 1, &c[2]);
	rig_receive_fetch(&rig, &f);
	service_stop(rig.s);
	for (int i = 0; i < 3; i++)
		assert_int_equal(rig_call_finish(&c[i]), -ENOTCONN);
	cluster_decision_release(&c[0].d);
	rig_wants_free(c[2].wants, 1);
	rig_fetch_release(&f);
	rig_release(&rig);
}

/* --- the socket --- */

static void the_socket_is_private_and_goes_with_the_service(void **state)
{
	struct stat st;
	struct rig rig;

	(void)state;
	rig_init(&rig, NULL);
	rig_start(&rig);
	assert_int_equal(lstat(rig.path, &st), 0);
	assert_true(S_ISSOCK(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0600);
	service_stop(rig.s);
	assert_int_equal(lstat(rig.path, &st), -1);
	rig_release(&rig);
}

static void a_socket_is_taken_over_from_the_dead_alone(void **state)
{
	struct listener first = LISTENER_NONE, second = LISTENER_NONE;
	char dir[] = "/tmp/ckptfs-listen.XXXXXX", path[64], link[80];
	struct stat st;
	FILE *f;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(link, sizeof(link), "%s/kept", dir);
	assert_int_equal(listener_open(&first, path), 0);
	assert_int_equal(listener_open(&second, path), -EADDRINUSE);
	close(first.fd); /* dead: its name is still there */
	first.fd = -1;
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(listener_open(&second, path), 0);
	listener_close(&first); /* and does not take the other's name along */
	assert_int_equal(lstat(path, &st), 0);
	listener_close(&second);
	assert_int_equal(lstat(path, &st), -1);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(listener_open(&first, path), -EEXIST);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/none/s", dir);
	assert_int_equal(listener_open(&first, path), -ENOENT);
	snprintf(path, sizeof(path), "%s/", dir);
	assert_int_equal(listener_open(&first, path), -EISDIR);
	assert_int_equal(rmdir(dir), 0);
}

/* Any user that may read the directory can lock it. */
static void a_locked_directory_does_not_stop_a_daemon(void **state)
{
	char dir[] = "/tmp/ckptfs-listen.XXXXXX", path[64];
	struct listener l = LISTENER_NONE;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(listener_open(&l, path), 0);
	listener_close(&l);
	close(fd);
	assert_int_equal(rmdir(dir), 0);
}

static void a_path_may_be_long(void **state)
{
	char dir[] = "/tmp/ckptfs-listen.XXXXXX", deep[200], path[220];
	struct listener l = LISTENER_NONE;
	struct stat st;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(deep, sizeof(deep), "%s/%0150d", dir, 0);
	assert_int_equal(mkdir(deep, 0700), 0);
	snprintf(path, sizeof(path), "%s/agent.sock", deep);
	assert_int_equal(listener_open(&l, path), 0);
	assert_int_equal(lstat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	fd = dial(path);
	assert_true(fd >= 0);
	close(fd);
	listener_close(&l);
	assert_int_equal(rmdir(deep), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_node_is_there_before_the_agent_names_them),
		cmocka_unit_test(the_store_receives_the_nodes_and_that_there_are_none),
		cmocka_unit_test(a_second_agent_is_reported_that_there_is_one),
		cmocka_unit_test(another_users_agent_is_refused),
		cmocka_unit_test(an_agent_that_breaks_the_protocol_is_disconnected),
		cmocka_unit_test(answers_that_cannot_be_right_end_the_connection),
		cmocka_unit_test(an_agent_of_another_store_is_hung_up_on),
		cmocka_unit_test(a_silent_process_makes_room_for_others),
		cmocka_unit_test(stopping_leaves_no_thread_waiting),
		cmocka_unit_test(the_socket_is_private_and_goes_with_the_service),
		cmocka_unit_test(a_socket_is_taken_over_from_the_dead_alone),
		cmocka_unit_test(a_locked_directory_does_not_stop_a_daemon),
		cmocka_unit_test(a_path_may_be_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
