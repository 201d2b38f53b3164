/*
 * Files that belong together in one step, a checkpoint set: the same step of up to a number of ranks, and what is known
 * of each. And the merged bytes of them: of all ranks' files, or of one variable.
 */
#pragma once

#include "store/classify/classify.h"
#include "store/codec/merge.h"
#include "tools/analyze/analyze_files.h"

struct set_member {
	const struct file *file;
	int fd;
	struct typed typed; /* without variables if it is plain */
	struct typed_extent *rest; /* what no variable has, in the order of the file */
	size_t nr_rest;
	uint64_t rest_len;
};

struct set {
	struct set_member *member;
	size_t nr;
};

/* Opens all, and has them classified. A file that cannot be opened is left out, after a complaint; that one is plain
 * though its format is known is told. -ENOMEM, or what the classifier failed of. */
int set_open(struct set *s, const struct classify_conf *conf, struct file *const *files, size_t nr);
void set_close(struct set *s); /* an empty one is fine */

/* Bytes that a variable has in the file, and some of them: off + len is no more. A file that cannot be read has been
 * complained about: < 0. */
uint64_t variable_len(const struct set_member *m, uint32_t variable);
int variable_read(const struct set_member *m, uint32_t variable, uint64_t off, void *p, size_t len);

/* What of each member: a variable, what no variable has, or all of its file. */
enum stream_of { STREAM_VARIABLE, STREAM_REST, STREAM_FILE };

struct stream_part {
	const struct set_member *member;
	const struct typed_extent *extent; /* one behind the other */
	size_t nr_extents;
	struct typed_extent whole; /* for STREAM_FILE, and then extent points here */
	uint64_t len;
	size_t at; /* where merge_next() is: extent, and where that begins in the part */
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
	uint32_t variable; /* of STREAM_VARIABLE */
};

/* Borrows the set. block 0: one part behind the other. -ENOMEM. */
int stream_init(struct stream *s, enum stream_of of, const struct stream_source *source, size_t nr, uint64_t block);
void stream_release(struct stream *s);
/* How many bytes to read next, at most `most`, so that what has room is not cut in two: whole parts, if one has. Where
 * they take turns all. */
size_t stream_whole(const struct stream *s, size_t most);
/* The next bytes, as many as there are up to `len`: how many. A file that cannot be read has been complained about: <
 * 0. */
ssize_t stream_read(struct stream *s, void *p, size_t len);
