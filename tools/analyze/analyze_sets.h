/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * A checkpoint set: the files of one step of one or more ranks, with their variables. And streams: the merged bytes of
 * the ranks' files, or of one variable.
 */
#pragma once

#include "store/classify/classify.h"
#include "store/codec/merge.h"
#include "tools/analyze/analyze_files.h"

struct set_member {
	const struct file *file;
	int fd;
	struct typed typed; /* without variables if the file is plain bytes */
	struct typed_extent *rest; /* bytes of no variable, by offset */
	size_t nr_rest;
	uint64_t rest_len;
};

struct set {
	struct set_member *member;
	size_t nr;
};

/* Opens and classifies all files. A file that cannot be opened is reported and skipped. A damaged file of a known
 * format is reported and treated as plain bytes. -ENOMEM, or an error of the classifier. */
int set_open(struct set *s, const struct classify_conf *conf, struct file *const *files, size_t nr);
void set_close(struct set *s); /* an empty one is fine */

/* The length of a variable in the file, and a range of its bytes, which must be within that length. Read errors are
 * reported. */
uint64_t variable_len(const struct set_member *m, uint32_t variable);
int variable_read(const struct set_member *m, uint32_t variable, uint64_t off, void *p, size_t len);

/* The bytes of each member: a variable, the bytes of no variable, or the whole file. */
enum stream_of { STREAM_VARIABLE, STREAM_REST, STREAM_FILE };

struct stream_part {
	const struct set_member *member;
	const struct typed_extent *extent; /* in order of the part */
	size_t nr_extents;
	struct typed_extent whole; /* for STREAM_FILE, where `extent` points to it */
	uint64_t len;
	size_t at; /* current extent, and its offset in the part */
	uint64_t begin;
};

struct stream {
	struct stream_part *part;
	struct merge_part *merge_part;
	struct merge merge;
	uint64_t len;
};

struct stream_source {
	const struct set_member *member;
	uint32_t variable; /* for STREAM_VARIABLE */
};

/* Borrows the set. block 0: concatenate parts, else interleave blocks of them. -ENOMEM. */
int stream_init(struct stream *s, enum stream_of of, const struct stream_source *source, size_t nr, uint64_t block);
void stream_release(struct stream *s);
/* How many bytes to read next: as many whole parts as fit into `most`, or `most` if the next part does not fit or parts
 * are interleaved. */
size_t stream_whole(const struct stream *s, size_t most);
/* Reads up to `len` of the next bytes and returns their number. Read errors are reported. */
ssize_t stream_read(struct stream *s, void *p, size_t len);
