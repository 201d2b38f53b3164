/*
 * Messages of peer_format.h over MPI, to and from any node, none of which blocks. A message that is not what it should be is dropped, and told.
 * What is sent is kept until MPI has it; whoever sends much looks at peers_unsent() first.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "mpi-agent/peer_format.h"

struct peers;
struct world;

int peers_new(const struct world *w, struct peers **ret); /* borrows it */
void peers_free(struct peers *p); /* what is on its way is left to MPI's end; NULL is fine */

/* To any node but this one. The body is copied. -ENOMEM, -EIO */
int peers_send(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body, size_t len);
size_t peers_unsent(const struct peers *p); /* bytes */
bool peers_moving(const struct peers *p); /* messages, which MPI moves only when it is called */
int peers_progress(struct peers *p); /* 0; -EIO: MPI has failed */

/*
 * The next message that has come whole. 1/0/-EIO, -ENOMEM. The body is behind the header in `ret_bytes`, which the caller releases. GETs only if they are wanted: they
 * wait with whoever sent them.
 */
int peers_next(struct peers *p, bool with_requests, struct peer_header *ret, struct buf *ret_bytes);
