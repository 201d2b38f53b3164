/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Messages of peer_format.h over MPI, to and from any node. Nothing blocks. Invalid messages are dropped and logged.
 * Messages are kept until MPI has sent them; senders of much data check peers_unsent() first.
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

/* A received message: header and body. */
struct message {
	uint8_t *data;
	size_t len;
	struct arena *arena; /* that contains it; NULL: malloc() */
	uint8_t *slot; /* its memory in the arena; the message is at the end */
	size_t slot_len;
};
#define MESSAGE_NONE ((struct message){ 0 })
void message_release(struct message *m);
void message_move(struct message *to, struct message *from); /* leaves MESSAGE_NONE */

/* Borrows both. Long answers are received in `arena` if it has room; NULL: none. */
int peers_new(const struct world *w, struct arena *arena, struct peers **ret);
void peers_free(struct peers *p); /* does not wait for messages in transit; NULL is fine */

/* Sends to another node. The body is copied. -ENOMEM, -EIO */
int peers_send(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body, size_t len);
/* The same without a copy: the body is borrowed until peers_progress() calls sent(), or not at all if this fails. */
typedef void peers_sent_fn(void *userdata, uint64_t id);
int peers_send_borrowed(struct peers *p, uint32_t to, enum peer_type type, uint64_t number, const void *body,
			size_t len, peers_sent_fn *sent, void *userdata, uint64_t id);
size_t peers_unsent(const struct peers *p); /* bytes */
/* Messages are in transit, which MPI moves only when it is called. Hints do not count: they are not urgent. */
bool peers_moving(const struct peers *p);
bool peers_streaming(const struct peers *p); /* long messages, which MPI transfers in many pieces */
bool peers_hinting(const struct peers *p);
int peers_progress(struct peers *p); /* 0; -EIO: MPI has failed */

/*
 * Returns the next complete message: 1/0/-EIO, -ENOMEM. The body follows the header in `ret_message`, which the caller
 * releases. `paused`: bit mask of lanes that are paused; their messages stay with the sender.
 */
int peers_next(struct peers *p, unsigned paused, struct peer_header *ret, struct message *ret_message);
/* Number of messages of that lane that MPI is receiving: peers_next() returns them even if the lane is paused. */
unsigned peers_coming(const struct peers *p, enum peer_lane lane, size_t *ret_bytes);
