/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Questions to the mounts of other nodes (question_format.h), and which nodes are unresponsive. A node that does not
 * answer in time is skipped, for 2 s at first and for up to a minute if it stays unresponsive: otherwise each look-up
 * would wait for it, though other nodes may have the same directories.
 *
 * Thread rule: any thread, holding no lock.
 */
#pragma once

#include <stdint.h>

struct buf;
struct cluster;
struct peer_query;
struct question;

int peer_query_new(struct cluster *cluster, struct peer_query **ret); /* borrows cluster */
void peer_query_free(struct peer_query *o); /* NULL is fine */

/* Repeats the question while the node replies that it is working on it or overloaded. -ETIMEDOUT: unresponsive. */
int peer_query_ask(struct peer_query *o, const uint8_t *id, const struct question *what, struct buf *ret);
