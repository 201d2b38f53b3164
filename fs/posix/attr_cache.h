/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Cache of recently used inode records, in bounded memory. A directory in which files are created, and a file between
 * creation, stat and removal, are looked up over and over.
 *
 * Every change of a record updates the cache, so an entry is never older than the view. A reader that fills an entry
 * must not overwrite a concurrent change: it passes the ticket it got before reading, and any change in between
 * invalidates the ticket.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct attr_cache;
struct ns_inode;

int attr_cache_new(struct attr_cache **ret);
void attr_cache_free(struct attr_cache *c); /* NULL is fine */

bool attr_cache_get(struct attr_cache *c, uint64_t ino, struct ns_inode *ret, uint64_t *ret_ticket);
void attr_cache_fill(struct attr_cache *c, const struct ns_inode *in, uint64_t ticket);
void attr_cache_change(struct attr_cache *c, const struct ns_inode *in);
void attr_cache_drop(struct attr_cache *c, uint64_t ino);
void attr_cache_clear(struct attr_cache *c); /* after a transaction that failed */
