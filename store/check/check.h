/*
 * Checking a store that nobody has open, and mending what can be mended.
 *
 * Every structure is looked at: superblock, journal, index, packs, names, recipes, fingerprints; on request every
 * byte. Nothing is changed unless asked for. What is mended: one copy of the superblock from the other; headers of
 * packs; tables of frames from the bytes they list; the index from journal and packs; the journal from the index;
 * chunks that are stored a second time; missing hints. What is lost is told with the files that it is lost from.
 *
 * Memory is bounded by `cache`, whatever the store holds; what does not fit is done in several passes.
 *
 * Thread rule: one thread. In a process that has no others a damaged index cannot bring it down (check_index.c): so a
 * tool calls this first.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum check_area {
	CHECK_SUPERBLOCK,
	CHECK_JOURNAL,
	CHECK_INDEX, /* RocksDB's files, entries that do not decode, counters */
	CHECK_PACKS, /* headers, tables, counts */
	CHECK_NAMES, /* directories, attributes, links */
	CHECK_CONTENTS, /* sizes and recipes */
	CHECK_FINGERPRINTS, /* hints */
	CHECK_DATA, /* chunks, and files that miss bytes */
	CHECK_NR_AREAS,
};
const char *check_area_name(enum check_area area); /* one word */

struct check_finding {
	enum check_area area;
	bool mended;
	const char *text; /* what is wrong, where, and what was done about it; no final newline */
	const char *path; /* of a file that misses bytes, from the root; else NULL */
	uint64_t off, len; /* these bytes of it */
};

struct check_conf {
	uint64_t cache; /* memory to work with */
	bool mend; /* else nothing is changed, not even the time of a file */
	bool read_data; /* every chunk against its fingerprint */
	/* with `mend`: also commits that cannot be applied any more, if the store cannot be used otherwise */
	bool give_up;
	bool rebuild; /* with `mend`: make the index anew in any case */
	/* Called for each finding; what it points to is gone afterwards. */
	void (*finding)(void *userdata, const struct check_finding *f);
	/* Called often: `done` of `all` (0: nobody knows) of what is being done. false: stop, check_store() says
	 * -EINTR. */
	bool (*progress)(void *userdata, const char *what, uint64_t done, uint64_t all, bool bytes);
	void *userdata; /* of both, each of which may be NULL */
};

struct check_result {
	uint64_t nr_mended, nr_left; /* findings */
	bool rebuilt; /* the index was made anew */
	uint64_t nr_lost_files, lost_bytes; /* files that miss bytes, and how many */
	/* What was looked at. */
	uint64_t commit; /* the last one */
	uint64_t unapplied; /* commits that only the journal has yet: names and recipes were checked without them */
	uint64_t nr_layers, nr_unused_layers; /* of recipes; those that no recipe needs, until the next collection */
	uint64_t nr_groups, nr_inodes, nr_names, nr_packs, nr_frames, nr_chunks, chunk_bytes, read_bytes;
};

/*
 * 0: done, *ret says how it went. <0, after logging: it could not be done: -EBUSY in use, -ENOENT no store there,
 * -EOPNOTSUPP of another version, -EINTR stopped, -EACCES, -ENOMEM ... Memory and time grow with what is damaged only
 * to tell it.
 */
int check_store(const char *path, const struct check_conf *conf, struct check_result *ret);
