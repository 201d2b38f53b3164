/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages of link_format.h over a stream socket, for both ends. Functions do not block unless documented, and a closed
 * connection is an error, never a signal. Receiving and sending share no state: different threads may do them.
 *
 * In an event loop poll `fd`: call link_read() and then link_next() until it returns none, and link_write() while
 * link_unsent().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "mpi-agent/wire/link_format.h"

struct link {
	int fd;
	int passes; /* descriptor to send with the next bytes, borrowed; -1: none */
	int passed; /* last descriptor received and not taken yet; -1: none */
	struct buf in; /* received messages; the last may be incomplete */
	size_t in_at; /* end of the last message returned by link_next() */
	struct buf out; /* encoders append to it; several threads need a lock of the caller */
	size_t out_at; /* end of the bytes sent */
};

/* Non-blocking recv(2) and send(2) on a local socket, with a descriptor. A received one replaces *passed, which is
 * closed. `passes`: the one to send; -1: none. */
ssize_t link_recv(int fd, void *p, size_t len, int *passed);
ssize_t link_send(int fd, const void *p, size_t len, int passes);

void link_init(struct link *l, int fd); /* takes fd, a stream socket */
void link_release(struct link *l); /* closes it; idempotent */

/* --- receiving --- */

/* Reads available bytes, at most some MiB. 1: some; 0: none; -ECONNRESET: the other end is closed; -ENOMEM. */
int link_read(struct link *l);
/* Returns the next complete message: 1/0. ret_body is borrowed until the next call for this link. -EBADMSG: malformed;
 * the link is unusable. */
int link_next(struct link *l, struct link_header *ret, const void **ret_body);
/* Blocks until there is a message, at most until `until_ns` (monotonic_ns()): -ETIMEDOUT. */
int link_receive(struct link *l, uint64_t until_ns, struct link_header *ret, const void **ret_body);

/* --- sending --- */

static inline size_t link_unsent(const struct link *l)
{
	return l->out.len - l->out_at;
}
/* Sends as much of `out` as possible. 1: all of it; 0: not yet; -ECONNRESET, -EPIPE, -ENOMEM (of an encoder). */
int link_write(struct link *l);
/* Blocks until all of it is sent: 0, -ETIMEDOUT or an error. */
int link_flush(struct link *l, uint64_t until_ns);
