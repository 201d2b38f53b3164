/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Messages over a socket that gives them in pieces, or ends in the middle of one. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/wire/link.h"

#define SECOND UINT64_C(1000000000)

static void pair(struct link *a, struct link *b)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	link_init(a, fds[0]);
	link_init(b, fds[1]);
}

static void messages_arrive_in_order(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;
	struct link_header h;
	const void *body;

	pair(&a, &b);
	for (uint64_t number = 1; number <= 100; number++)
		link_encode_plain(LINK_BEGIN, number, &a.out);
	assert_int_equal(link_write(&a), 1);
	assert_int_equal(link_unsent(&a), 0);
	assert_int_equal(link_read(&b), 1);
	for (uint64_t number = 1; number <= 100; number++) {
		assert_int_equal(link_next(&b, &h, &body), 1);
		assert_int_equal(h.type, LINK_BEGIN);
		assert_int_equal(h.number, number);
	}
	assert_int_equal(link_next(&b, &h, &body), 0);
	assert_int_equal(link_read(&b), 0);
}

static void a_message_in_single_bytes_arrives(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;
	_cleanup_(buf_release) struct buf message = BUF_EMPTY;
	struct link_header h;
	const void *body;

	pair(&a, &b);
	link_encode_hello(&message);
	for (size_t i = 0; i < message.len; i++) {
		assert_int_equal(link_next(&b, &h, &body), 0);
		assert_int_equal(send(a.fd, message.data + i, 1, 0), 1);
		assert_int_equal(link_read(&b), 1);
	}
	assert_int_equal(link_next(&b, &h, &body), 1);
	assert_int_equal(link_decode_hello(body, h.len), 0);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* One at a time: another one takes its place. */
static void a_descriptor_comes_along(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;
	int fds[2], first;

	pair(&a, &b);
	assert_int_equal(pipe(fds), 0);
	link_encode_hello(&a.out);
	a.passes = fds[1];
	assert_int_equal(link_write(&a), 1);
	assert_int_equal(a.passes, -1);
	assert_int_equal(link_read(&b), 1);
	first = b.passed;
	assert_int_equal(write(first, "x", 1), 1);
	link_encode_hello(&a.out);
	assert_int_equal(link_write(&a), 1);
	assert_int_equal(link_read(&b), 1);
	assert_int_equal(b.passed, first); /* no other came with this one */
	assert_int_equal(link_send(a.fd, "y", 1, fds[0]), 1);
	assert_int_equal(link_read(&b), 1);
	assert_true(is_open(b.passed));
	assert_true(b.passed == first || !is_open(first));
	first = b.passed;
	link_release(&b);
	assert_false(is_open(first));
	close(fds[0]);
	close(fds[1]);
}

/* More than a socket takes at once: both ends have to be at it. */
static void a_large_message_goes_in_pieces(void **state _unused_)
{
	const uint32_t nr = 20;
	struct link_want wants[20] = { 0 };
	const void *chunks[20], *back[20];
	_cleanup_(freep) uint8_t *bytes = malloc(MiB(1));
	_cleanup_(link_release) struct link a, b;
	struct link_header h;
	const void *body;
	int sent = 0;

	pair(&a, &b);
	assert_non_null(bytes);
	for (size_t i = 0; i < MiB(1); i++)
		bytes[i] = (uint8_t)(i * 31 >> 3);
	for (uint32_t i = 0; i < nr; i++) {
		wants[i].len = (uint32_t)MiB(1) - i;
		chunks[i] = bytes + i;
	}
	link_encode_chunks(7, wants, chunks, nr, &a.out);
	while (link_next(&b, &h, &body) == 0) {
		if (!sent)
			sent = link_write(&a);
		assert_true(sent >= 0);
		assert_true(link_read(&b) >= 0);
	}
	assert_int_equal(sent, 1);
	assert_int_equal(h.number, 7);
	assert_int_equal(link_decode_chunks(body, h.len, wants, nr, back), 0);
	for (uint32_t i = 0; i < nr; i++)
		assert_memory_equal(back[i], chunks[i], wants[i].len);
}

static void an_end_is_reported_behind_the_last_message(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;
	struct link_header h;
	const void *body;

	pair(&a, &b);
	link_encode_plain(LINK_WANT, 0, &a.out);
	assert_int_equal(link_flush(&a, monotonic_ns() + SECOND), 0);
	link_release(&a);
	assert_int_equal(link_receive(&b, monotonic_ns() + SECOND, &h, &body), 1);
	assert_int_equal(h.type, LINK_WANT);
	assert_int_equal(link_receive(&b, monotonic_ns() + SECOND, &h, &body), -ECONNRESET);
}

static void an_end_within_a_message_is_reported(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;
	struct link_header h;
	const void *body;

	pair(&a, &b);
	link_encode_hello(&a.out);
	assert_int_equal(send(a.fd, a.out.data, a.out.len - 1, 0), (int)a.out.len - 1);
	link_release(&a);
	assert_int_equal(link_receive(&b, monotonic_ns() + SECOND, &h, &body), -ECONNRESET);
}

static void waiting_for_nothing_ends(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;
	struct link_header h;
	const void *body;

	pair(&a, &b);
	assert_int_equal(link_receive(&b, monotonic_ns() + SECOND / 100, &h, &body), -ETIMEDOUT);
}

static void a_peer_that_does_not_read_is_not_waited_for(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;

	pair(&a, &b);
	for (int i = 0; i < 100000; i++)
		link_encode_plain(LINK_WANT, 0, &a.out);
	assert_int_equal(link_write(&a), 0);
	assert_int_equal(link_flush(&a, monotonic_ns() + SECOND / 100), -ETIMEDOUT);
	assert_true(link_unsent(&a) > 0);
}

static void a_closed_peer_is_an_error_and_no_signal(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;

	pair(&a, &b);
	link_release(&b);
	link_encode_plain(LINK_WANT, 0, &a.out);
	assert_int_equal(link_write(&a), -EPIPE);
}

static void garbage_is_reported(void **state _unused_)
{
	_cleanup_(link_release) struct link a, b;
	struct link_header h;
	const void *body;

	pair(&a, &b);
	assert_int_equal(send(a.fd, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
	assert_int_equal(link_receive(&b, monotonic_ns() + SECOND, &h, &body), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive_in_order),
		cmocka_unit_test(a_message_in_single_bytes_arrives),
		cmocka_unit_test(a_descriptor_comes_along),
		cmocka_unit_test(a_large_message_goes_in_pieces),
		cmocka_unit_test(an_end_is_reported_behind_the_last_message),
		cmocka_unit_test(an_end_within_a_message_is_reported),
		cmocka_unit_test(waiting_for_nothing_ends),
		cmocka_unit_test(a_peer_that_does_not_read_is_not_waited_for),
		cmocka_unit_test(a_closed_peer_is_an_error_and_no_signal),
		cmocka_unit_test(garbage_is_reported),
	};

	return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
