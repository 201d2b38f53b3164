/*
 * Messages of peer_format.h over MPI, to and from any node. Nothing blocks. Invalid messages are dropped and logged.
 * Sent messages are kept until MPI has them; senders of much data check peers_unsent() first.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "mpi-agent/wire/peer_format.h"

struct arena;
struct peers;
struct world;

/* One that has come: header and body. */
struct message {
	uint8_t *data;
	size_t len;
	struct arena *arena; /* that it lies in; NULL: memory of its own */
	uint8_t *slot; /* there, with some bytes before it */
	size_t slot_len;
};
#define MESSAGE_NONE ((struct message){ 0 })
void message_release(struct message *m);
void message_move(struct message *to, struct message *from); /* leaves MESSAGE_NONE */

/* Borrows both. Long answers are received in `arena`, as far as there is room; NULL: in none. */
int peers_new(const struct world *w, struct arena *arena, struct peers **ret);
void peers_free(struct peers *p); /* what is on its way is left to MPI's end; NULL is fine */

/* To any node but this one. The body is copied. -ENOMEM, -EIO */
int peers_send(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body, size_t len);
/* The same without a copy: the body is borrowed until sent() is called, from peers_progress(). It is not if this
 * fails. */
typedef void peers_sent_fn(void *userdata, uint64_t id);
int peers_send_borrowed(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body,
			size_t len, peers_sent_fn *sent, void *userdata, uint64_t id);
size_t peers_unsent(const struct peers *p); /* bytes */
/* Messages are in transit, which MPI moves only when it is called; hints, which are not urgent, do not count. */
bool peers_moving(const struct peers *p);
bool peers_streaming(const struct peers *p); /* so much that it takes many pieces */
bool peers_hinting(const struct peers *p);
int peers_progress(struct peers *p); /* 0; -EIO: MPI has failed */

/*
 * The next message that has come whole. 1/0/-EIO, -ENOMEM. The body is behind the header in `ret_message`, which the
 * caller releases. `paused`: bits of lanes that are paused; their messages stay with the sender.
 */
int peers_next(struct peers *p, unsigned paused, struct peer_header *ret, struct message *ret_message);
/* How many of that lane MPI is about to bring: peers_next() will, whatever is held. */
unsigned peers_coming(const struct peers *p, enum peer_lane lane, size_t *ret_bytes);
