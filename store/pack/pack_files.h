/*
 * The open files of packs: descriptors with reference counts, at most so many of them, the least recently used one
 * closed first. A file is opened with O_DIRECT where the filesystem has it: pack bytes are read and written in large
 * aligned pieces and checked by us, so the page cache would only cost a copy and memory.
 *
 * Thread rule: any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/pack/pack.h"

struct pack_files;

struct pack_file {
	/* constant while referenced */
	uint32_t pack;
	int fd;
	bool direct;
	int header_error; /* 0: the header is intact; -EBADMSG, -EIO: it is not */
	enum pack_stream stream; /* of an intact header */

	/* of pack_write.c, guarded by packs.lock; a dirty file is referenced */
	bool dirty;
	struct pack_file *next_dirty;
	uint64_t disk_bytes; /* that packs.disk_bytes has counted of it */
	int sync_error; /* of the running sync: unsynced bytes may be gone for good */

	/* of pack_files.c, guarded by its lock */
	unsigned nr_refs;
	bool forgotten; /* in no bucket; the last one to put it closes it */
	struct pack_file *next_in_bucket;
	struct pack_file *lru_prev, *lru_next; /* only when not referenced */
};

/* `dirfd` and `conf` are borrowed until it is freed. */
int pack_files_new(int dirfd, const struct packs_conf *conf, struct pack_files **ret);
void pack_files_free(struct pack_files *fs); /* NULL is fine; nothing is referenced any more */

/* 1: *ret to be put; 0: there is no such file; <0: it cannot be used. */
int pack_files_get(struct pack_files *fs, uint32_t pack, struct pack_file **ret);
/* A new pack with its header, not synced. In place of a leftover of that name. On an error there is none. */
int pack_files_create(struct pack_files *fs, uint32_t pack, enum pack_stream stream, struct pack_file **ret);
struct pack_file *pack_file_ref(struct pack_files *fs, struct pack_file *f);
void pack_file_put(struct pack_files *fs, struct pack_file *f); /* NULL is fine */
/* Close it as soon as nobody uses it. Its name is gone already. */
void pack_files_forget(struct pack_files *fs, uint32_t pack);
bool pack_files_direct(struct pack_files *fs); /* false: some file had to go through the page cache */
