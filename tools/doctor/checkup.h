/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The findings of ckptfs-doctor: printed as they are made, or as one JSON document. The report of ckptfs-stat has those
 * about its mount (`to`). One thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json/json_write.h"
#include "base/util.h"

struct json_flat;

/* As monitoring systems expect them as exit statuses. */
enum health { HEALTHY = 0, HEALTH_WARNING = 1, HEALTH_CRITICAL = 2 };

struct finding {
	enum health health;
	const char *subject, *text;
	const char *action; /* what to do; NULL: nothing */
};

struct checkup {
	void (*to)(void *user, const struct finding *f); /* takes findings instead of standard output; NULL: none */
	void *user; /* of `to` */
	bool has_json, quiet; /* quiet: findings that need nothing done are not printed */
	enum health worst;
	size_t nr[3]; /* findings by health */
	const char *about; /* machine, mount or store that findings are about; borrowed */
	bool has_heading; /* `about` has been printed */
	struct json out;
};

void checkup_begin(struct checkup *c);
/* The following findings are about this; borrowed. */
void checkup_about(struct checkup *c, const char *about);
/* One finding about one subject, in one line. `action`: what to do, if anything. */
void checkup_found(struct checkup *c, enum health health, const char *subject, const char *action, const char *fmt, ...)
	_printf_(5, 6);
void checkup_end(struct checkup *c);

void checkup_machine(struct checkup *c);
/* Free space. `freed_by`: what frees space. */
void checkup_space(struct checkup *c, uint64_t available, uint64_t size, const char *freed_by);
/* Figures of the daemon at `point`: damage, scrub, durability, replicas. */
void checkup_integrity(struct checkup *c, const struct json_flat *j, const char *point);
/* The same: garbage, slow paths, compaction. `freed_by`: as above. */
void checkup_upkeep(struct checkup *c, const struct json_flat *j, const char *freed_by);
/* A mountpoint, a store that is mounted, or one that is not. */
void checkup_path(struct checkup *c, const char *path);
/* All mounts of this mount namespace. */
void checkup_mounts(struct checkup *c);
