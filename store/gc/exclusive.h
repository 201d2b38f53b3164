/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Shared by exclusive*.c only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/engine.h"

struct db_iter;

/* The files to be deleted. */
struct exclusive_set {
	uint64_t *inos; /* sorted */
	size_t nr;
};
/* `it` iterates over the whole view of one snapshot, `inodes` over its inodes. Counts the files in *report. */
int exclusive_set_find(struct db_iter *it, struct db_iter *inodes, const struct exclusive_conf *conf,
		       struct exclusive_set *ret, struct exclusive_report *report);
bool exclusive_set_has(const struct exclusive_set *s, uint64_t ino);
void exclusive_set_release(struct exclusive_set *s);
