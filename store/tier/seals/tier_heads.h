/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Lists sealed checkpoints: reads the heads of their manifests, 16 at a time. */
#pragma once

#include <stdbool.h>

struct buf;
struct tier;
struct tier_manifest;

struct tier_heads_sink {
	/*
	 * r: 0 with *m, without packs and catalog; -EBADMSG: damaged, or that of another checkpoint; -EOPNOTSUPP: written
	 * by a newer version; -ENODATA: the fence of a collection; others: cannot be read. Called in any order. A negative
	 * result ends the list.
	 */
	int (*head)(void *userdata, const char *name, int r, const struct tier_manifest *m);
	bool (*is_stopping)(void *userdata); /* true ends the list; NULL: never */
	void *userdata;
};

/* `names`: of manifests, each with a zero byte. Skips those that are gone. */
int tier_heads_read(struct tier *t, const struct buf *names, const struct tier_heads_sink *to);
