/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * What is sealed goes to another node: two real stores, the thread that protects one of them and its half of the link;
 * in between, in place of agents, a thread that hands messages to the other store, loses them, or does something else
 * first. Waiting has no limit of its own here: a test that hangs has failed. That thread has assertions, too, from
 * which there is no way back into a test: a test that uses this sets CMOCKA_TEST_ABORT.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/fs.h"
#include "fs/mount_options.h"
#include "mpi-agent/wire/link_format.h"

struct service;

#define REPLICA_BYTES (MiB(5) + 123) /* more than one message of chunks */

enum { HERE, PARTNER, NR_STORES, OTHER = NR_STORES, NR_NODES }; /* OTHER is not there but for what a test has it say */

struct replica_world {
	char dir[64], path[NR_STORES][96], key[96], socket[96];
	struct options o[NR_STORES];
	struct fs *fs[NR_STORES];
	struct service *service;
	struct link_welcome welcome;
	struct link_node nodes[NR_NODES];
	uint32_t nr_nodes; /* of them that take part */
	uint8_t *bytes;
	uint64_t top;

	/* The agents. */
	pthread_t agent;
	int fd; /* -1: none */
	atomic_uint nr_peers_changed; /* worlds that were told of */
	atomic_uint nr_messages; /* requests that came, ... */
	unsigned lose_at; /* and the one at which the connection ends; 0: none */
	/* from which on they are answered with an error, so that trying again at once does no better; 0: none */
	unsigned fail_at;
	int error;
	int other_says; /* of all it is asked for: enum link_kept, or why not */
	atomic_uint nr_asked; /* chunks that it was */
	atomic_bool no_node_serves; /* what is to be fetched */
	atomic_bool collect_at_copy; /* nodes collect together before the first REPLICATE, and only the catalog is left */
};

extern const struct cred replica_owner;

/* Of cmocka. After the last stores are checked. */
int replica_set_up(void **state); /* with a partner, and "step" with a file at the first store */
int replica_set_up_parity(void **state);
int replica_tear_down(void **state);

void replica_write_bytes(struct fs *fs, uint64_t dir, const char *name, const void *bytes, size_t len);
void replica_write_file(struct replica_world *w, uint64_t dir, const char *name, size_t from); /* of w->bytes */
void replica_seal(struct replica_world *w);
void replica_unseal(struct replica_world *w);
int replica_add(void *userdata, const void *p, size_t len); /* to a struct buf */

unsigned replica_nr_copies(struct replica_world *w); /* that the partner has */
/* The partner has one copy, which tells the same as the directory itself, and all chunks of it. */
void replica_expect_copy(struct replica_world *w);

void replica_agent_comes(struct replica_world *w);
void replica_agent_goes(struct replica_world *w);
int replica_state_of(struct replica_world *w);
/* What has come of it while this agent is there: an error is told until the next attempt has ended, so -ENOTCONN and
 * `before` may be of the time before it. */
int replica_await_state_after(struct replica_world *w, int before);
int replica_await_state(struct replica_world *w);
bool replica_await_end(struct replica_world *w); /* is it protected, or is the agent lost before? */
