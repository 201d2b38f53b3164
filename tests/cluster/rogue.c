/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: a rank among agents: rogue ID NAME KEY
 *
 * A node that is one of the world, and then sends rank 0 what no node should accept: with MACs that are wrong, or
 * right ones around lies. It takes part in no round, and leaves when the others do.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/peer_format.h"
#include "mpi-agent/agent/world.h"

static struct world w;
static uint64_t sent[NR_PEER_LANES];

static void send_bytes(enum peer_lane lane, const void *p, size_t len)
{
	MPI_Send(p, (int)len, MPI_BYTE, 0, (int)lane, w.messages);
	sent[lane]++;
}

/* As it should be, or with a header that is another one. */
static void send_message(enum peer_lane lane, struct peer_header h, const char *body, size_t len,
			 const struct mac_key *key)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	peer_encode(key, &h, body, len, &b);
	send_bytes(lane, b.data, b.len);
}

static struct peer_header header(enum peer_type type, uint64_t number)
{
	return (struct peer_header){
		.type = type, .from = w.rank, .to = 0, .sequence = sent[peer_lane(type)], .number = number
	};
}

/* To be dropped: as if it were rank 1 that wants it. */
static void send_in_anothers_name(void)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct link_drop d = { .name = "n1", .ino = 1 };

	memcpy(d.node, w.nodes[1].store_id, sizeof(d.node));
	link_encode_drop(0, &d, &b);
	send_message(PEER_LANE_KEEPS, header(PEER_DROP, 2), (const char *)b.data + sizeof(struct link_header_wire),
		     b.len - sizeof(struct link_header_wire), &w.message_key);
}

static void misbehave(void)
{
	static const struct mac_key wrong = { { 9 } };
	static const uint8_t garbage[100] = { 1, 2, 3 };
	struct peer_header h;

	send_bytes(PEER_LANE_ANSWERS, garbage, 3);
	send_bytes(PEER_LANE_ANSWERS, garbage, sizeof(garbage));
	send_bytes(PEER_LANE_GETS, garbage, 0);
	send_message(PEER_LANE_ANSWERS, header(PEER_END, 0), NULL, 0, &wrong);
	h = header(PEER_END, 0);
	h.from = 1; /* of another node */
	send_message(PEER_LANE_ANSWERS, h, NULL, 0, &w.message_key);
	h = header(PEER_END, 0);
	h.to = 1; /* for another one */
	send_message(PEER_LANE_ANSWERS, h, NULL, 0, &w.message_key);
	h = header(PEER_END, 0);
	h.sequence--; /* once more */
	send_message(PEER_LANE_ANSWERS, h, NULL, 0, &w.message_key);
	send_message(PEER_LANE_GETS, header(PEER_END, 0), NULL, 0, &w.message_key); /* not where it belongs */
	/* What is authenticated, and is believed to be said, and still nothing comes of it: */
	send_message(PEER_LANE_ANSWERS, header(PEER_BEGIN, 99), NULL, 0, &w.message_key);
	send_message(PEER_LANE_ANSWERS, header(PEER_WANT, 99), NULL, 0, &w.message_key);
	send_message(PEER_LANE_ANSWERS, header(PEER_CHUNKS, 1), "\2\2\2", 3, &w.message_key);
	send_message(PEER_LANE_GETS, header(PEER_GET, 1), "\2\2\2", 3, &w.message_key);
	send_message(PEER_LANE_ANSWERS, header(PEER_ASK, 1), "\2\2\2", 3, &w.message_key);
	send_message(PEER_LANE_HINTS, header(PEER_ANNOUNCE, 1), "\2\2\2", 3, &w.message_key);
	send_message(PEER_LANE_ANSWERS, header(PEER_PIN, 1), "\2\2\2", 3, &w.message_key);
	send_message(PEER_LANE_ANSWERS, header(PEER_FOUND, 1), "\2\2\2", 3, &w.message_key);
	send_message(PEER_LANE_ANSWERS, header(PEER_PINNED, 1), "\1\1\1", 3, &w.message_key);
	for (enum peer_type type = PEER_PUT; type <= PEER_DROP; type += 2) {
		send_message(PEER_LANE_KEEPS, header(type, 1), "\2\2\2", 3, &w.message_key);
		/* which no node waits for */
		send_message(PEER_LANE_ANSWERS, header(type + 1, 1), "\2\2\2", 3, &w.message_key);
	}
	send_in_anothers_name();
	send_message(PEER_LANE_ANSWERS, header(PEER_ALIVE, 0), NULL, 0, &w.message_key);
}

/* Until this world is ended. A request for chunks gets no answer. */
static void await_end(void)
{
	struct peer_header h = { 0 };
	MPI_Request leaving;

	while (h.type != PEER_END) {
		static uint8_t bytes[sizeof(struct peer_header_wire) + PEER_BODY_MAX];
		MPI_Status status;
		int len;

		MPI_Recv(bytes, sizeof(bytes), MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, w.messages, &status);
		MPI_Get_count(&status, MPI_BYTE, &len);
		if (peer_decode(&w.message_key, bytes, (size_t)len, &h) < 0)
			h.type = 0;
	}
	MPI_Ibarrier(w.messages, &leaving); /* as they do: another kind of barrier would not be the same */
	MPI_Wait(&leaving, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	struct link_welcome welcome = { .hash = FP_CLMUL, .replicas = 1, .popular_max = 100000 };

	if (argc != 4 || MPI_Init(&argc, &argv) != MPI_SUCCESS)
		return 1;
	memset(welcome.store_id, atoi(argv[1]), sizeof(welcome.store_id));
	snprintf(welcome.name, sizeof(welcome.name), "%s", argv[2]);
	memset(welcome.proof_key, atoi(argv[3]), sizeof(welcome.proof_key));
	if (world_enter(&welcome, 0, &w) < 0)
		MPI_Abort(MPI_COMM_WORLD, 1);
	misbehave();
	await_end();
	world_release(&w);
	MPI_Finalize();
	return 0;
}
