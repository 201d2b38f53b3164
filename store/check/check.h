/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Checks a store that is not in use, and repairs what can be repaired.
 *
 * It checks every structure: superblock, journal, index, packs, names, recipes, fingerprints; on request every byte.
 * Nothing is changed unless requested. It repairs: one copy of the superblock from the other; headers of packs; frame
 * tables from the data they list; the index from journal and packs; the journal from the index; chunks that are stored
 * twice; missing hints. Losses are reported with the files concerned.
 *
 * Memory is bounded by `cache`, whatever the size of the store; the rest is done in several passes.
 *
 * Thread rule: one thread. In a process without other threads a damaged index cannot crash the process
 * (check_index.c), so a tool calls this first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum check_area {
	CHECK_SUPERBLOCK,
	CHECK_JOURNAL,
	CHECK_INDEX, /* files of RocksDB, entries that do not decode, counters */
	CHECK_PACKS, /* headers, tables, counts */
	CHECK_NAMES, /* directories, attributes, links */
	CHECK_CONTENTS, /* sizes and recipes */
	CHECK_FINGERPRINTS, /* hints */
	CHECK_DATA, /* chunks, and files with missing bytes */
	CHECK_NR_AREAS,
};
const char *check_area_name(enum check_area area); /* one word */

struct check_finding {
	enum check_area area;
	bool repaired;
	const char *text; /* what is wrong, where, and what was done about it; no trailing newline */
	const char *path; /* of a file with missing bytes, from the root; else NULL */
	uint64_t off, len; /* the missing bytes */
};

struct check_conf {
	uint64_t cache; /* memory limit */
	bool repair; /* repair; else nothing is changed, not even a file time */
	bool read_data; /* verify every chunk against its fingerprint */
	/* with `repair`: also drop commits that cannot be applied any more, if the store is unusable otherwise */
	bool discard_commits;
	bool rebuild; /* with `repair`: rebuild the index in any case */
	/* Called for each finding, which is valid during the call only. */
	void (*finding)(void *userdata, const struct check_finding *f);
	/* Called often: `done` of `all` (0: unknown) of the current step. false: stop, check_store() returns -EINTR. */
	bool (*progress)(void *userdata, const char *what, uint64_t done, uint64_t all, bool bytes);
	void *userdata; /* of both callbacks, each of which may be NULL */
};

struct check_result {
	uint64_t nr_repaired, nr_left; /* findings */
	bool rebuilt; /* the index was rebuilt */
	uint64_t nr_lost_files, lost_bytes; /* files with missing bytes, and how many */
	/* What was checked. */
	uint64_t commit; /* the last one */
	uint64_t unapplied; /* commits in the journal only: names and recipes were checked without them */
	uint64_t nr_layers, nr_unused_layers; /* of recipes; layers that no recipe needs, until the next collection */
	uint64_t nr_groups, nr_inodes, nr_names, nr_packs, nr_frames, nr_chunks, chunk_bytes, read_bytes;
};

/*
 * 0: done, the outcome is in *ret. <0, after logging, if it could not be done: -EBUSY in use, -ENOENT no store there,
 * -EOPNOTSUPP of another version, -EINTR stopped, -EACCES, -ENOMEM ... Reporting damage takes time and memory in
 * proportion to it; nothing else grows with damage.
 */
int check_store(const char *path, const struct check_conf *conf, struct check_result *ret);
