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
	int passes; /* a descriptor that goes with the next bytes, borrowed; -1: none */
	int passed; /* the last that came, until it is taken; -1: none */
	struct buf in; /* whole messages, perhaps, and the beginning of another one */
	size_t in_at; /* behind the message that was given out last */
	struct buf out; /* encoders append to this; with several threads, under the caller's lock */
	size_t out_at; /* behind what is sent */
};

/* recv(2) and send(2) without waiting, of a socket between processes, with a descriptor: *passed, if one has come, in
 * place of the one that was there, which is closed; `passes`, -1: none. */
ssize_t link_recv(int fd, void *p, size_t len, int *passed);
ssize_t link_send(int fd, const void *p, size_t len, int passes);

void link_init(struct link *l, int fd); /* takes fd, a stream socket */
void link_release(struct link *l); /* closes it; once more is harmless */

/* --- receiving --- */

/* What has come so far, some MiB at most. 1: something; 0: nothing; -ECONNRESET: the other end is closed; -ENOMEM. */
int link_read(struct link *l);
/* The next message of these, of which `ret_body` is borrowed until the next call for this link. 1/0; -EBADMSG: no
 * message; nothing can come after it. */
int link_next(struct link *l, struct link_header *ret, const void **ret_body);
/* Blocks until there is one, at most until `until_ns` (monotonic_ns()): -ETIMEDOUT. */
int link_receive(struct link *l, uint64_t until_ns, struct link_header *ret, const void **ret_body);

/* --- sending --- */

static inline size_t link_unsent(const struct link *l)
{
	return l->out.len - l->out_at;
}
/* Of what is in `out`, as much as goes. 1: all of it; 0: not yet; -ECONNRESET, -EPIPE, -ENOMEM (of an encoder). */
int link_write(struct link *l);
/* Blocks until all of it is sent: 0, -ETIMEDOUT or an error. */
int link_flush(struct link *l, uint64_t until_ns);
