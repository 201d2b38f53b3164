/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The sealed checkpoints of a tier. Other machines have chosen the paths: print them escaped. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/tier/tier_format.h"
#include "tools/tier/tier_access.h"

struct json;

struct tier_checkpoint {
	uint8_t store[TIER_ID_LEN], root[SHA256_LEN];
	uint64_t number, ino;
	int64_t sealed_ns;
	uint64_t files, directories, bytes;
	uint32_t uid; /* owner of the directory */
	struct tier_object_name name; /* of the manifest */
	bool is_newest; /* of its owner in its directory, of all stores */
	char *path; /* in its store; "": the root of the store */
};

struct tier_checkpoints {
	struct tier_checkpoint *v; /* by time of sealing, oldest first */
	size_t nr, room;
	/* Manifests that cannot be listed: */
	struct tier_unlisted {
		struct tier_object_name name;
		int error; /* -EBADMSG: damaged; -EOPNOTSUPP: written by a newer version; others: cannot be read */
	} * unlisted;
	size_t nr_unlisted, unlisted_room;
};

/* Reports failures, except manifests that cannot be listed. */
int tier_checkpoints_get(struct tier_access *a, struct tier_checkpoints *ret);
void tier_checkpoints_release(struct tier_checkpoints *c);
/*
 * The checkpoint that a user names: the newest one of a PATH among those of the owner of the oldest one; the only one
 * with a NUMBER; or a name of a mounted tier, .ckptfs/stores/STORE/PATH or .ckptfs/sealed/STORE/NUMBER. NULL, with a
 * message: there is none, or several.
 */
const struct tier_checkpoint *tier_checkpoints_find(struct tier_access *a, const struct tier_checkpoints *c,
						    const char *what);
const char *tier_checkpoint_path(const struct tier_checkpoint *c); /* "." for the root of the store */
const char *tier_unlisted_reason(int error);

struct tier_store_id {
	char s[2 * TIER_ID_LEN + 1];
};
struct tier_store_id tier_store_id(const uint8_t store[TIER_ID_LEN]);

/* Members of an open JSON object: path, store, number, name. */
void tier_checkpoint_json(struct json *j, const struct tier_checkpoint *c);
/* Prints the list. -EBADMSG: a manifest is damaged. */
int tier_list(struct tier_access *a, bool json);
