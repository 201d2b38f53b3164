/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The open files of packs: reference-counted descriptors. The number of unused open files is limited; the least
 * recently used one is closed first. Files are opened with O_DIRECT where the filesystem supports it: pack data is read
 * and written in large aligned pieces and verified here, so the page cache would only cost a copy and memory.
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
	int header_error; /* 0: the header is intact; -EBADMSG, -EIO: it is not */
	enum pack_stream stream; /* of an intact header */

	/* used by pack_write.c, guarded by packs.lock; a dirty file is referenced */
	bool dirty;
	struct pack_file *next_dirty;
	uint64_t disk_bytes; /* counted for it in packs.disk_bytes */

	/* used by pack_files.c, guarded by its lock */
	unsigned nr_refs;
	bool forgotten; /* in no bucket; the last put closes it */
	struct pack_file *next_in_bucket;
	struct pack_file *lru_prev, *lru_next; /* only when not referenced */
};

/* `dirfd` and `conf` are borrowed until pack_files_free(). */
int pack_files_new(int dirfd, const struct packs_conf *conf, struct pack_files **ret);
void pack_files_free(struct pack_files *fs); /* NULL is fine; no file may be referenced */

/* 1: the caller puts *ret; 0: no such file; <0: it cannot be used. */
int pack_files_get(struct pack_files *fs, uint32_t pack, struct pack_file **ret);
/* Create a pack with its header, not synced. Replaces a left-over file of that name. On an error there is no file. */
int pack_files_create(struct pack_files *fs, uint32_t pack, enum pack_stream stream, struct pack_file **ret);
int pack_file_write_header(struct pack_files *fs, const struct pack_file *f); /* does not log */
struct pack_file *pack_file_ref(struct pack_files *fs, struct pack_file *f);
void pack_file_put(struct pack_files *fs, struct pack_file *f); /* NULL is fine */
/* Close it as soon as it is unused. Its name has already been removed. */
void pack_files_forget(struct pack_files *fs, uint32_t pack);
bool pack_files_direct(struct pack_files *fs); /* false: some file has to go through the page cache */
