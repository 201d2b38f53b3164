/*
 * What a file says of its own bytes: variables, and the extents that each has in the file. What no extent covers is
 * plain. Belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/code/coding.h"

#define TYPED_KEY_MAX 1024 /* bytes; a variable with a longer name is left plain */
#define TYPED_VARIABLES_MAX 100000u
#define TYPED_EXTENTS_MAX 1000000u
#define TYPED_DIMS_MAX 32

/* What memory of a process was, in an image of it. A variable of any other file is SEGMENT_NONE. */
enum segment_kind {
	SEGMENT_NONE,
	SEGMENT_HEAP, /* of brk; what malloc() has mapped is anonymous */
	SEGMENT_STACK,
	SEGMENT_CODE, /* the program's own file, its data and bss too */
	SEGMENT_LIBRARY, /* likewise of shared libraries */
	SEGMENT_ANONYMOUS,
	SEGMENT_FILE,
	SEGMENT_OTHER,
	NR_SEGMENT_KINDS,
};
const char *segment_kind_name(enum segment_kind kind); /* "heap", ... "other"; "" of none */

struct typed_variable {
	/* Group/Variable_Datatype_Class, or "library /path": those of other files with the same key mean the same */
	char *key;
	enum segment_kind kind;
	struct coding_shape shape;
};

struct typed_extent {
	uint32_t variable;
	uint64_t off, len;
};

struct names;

struct typed {
	uint64_t size; /* of the file */
	const struct names *names; /* borrowed: what variables that are added are called instead; NULL: as they are */
	struct typed_variable *variable;
	struct typed_extent *extent; /* those of a variable in its own order, one variable after the other */
	size_t nr_variables, nr_extents, room_variables, room_extents;
};

#define TYPED_EMPTY(file_size) ((struct typed){ .size = (file_size) })
void typed_release(struct typed *t);

/* The array of a variable. An element may have parts: two of a complex number. */
struct typed_array {
	struct code_type type;
	uint32_t parts;
	unsigned nr_dims; /* 0: a single element */
	uint64_t dim[TYPED_DIMS_MAX];
};

/* Bytes of an array, or -EOVERFLOW. */
int typed_array_bytes(const struct typed_array *a, uint64_t *ret);
/* A type by what numpy, safetensors and torch have in common: kind 'i', 'u', 'f', 'c' (complex), 'b' (bool), 'B'
 * (bfloat), and bytes of an element. -EOPNOTSUPP: none of ours. */
int typed_array_set_type(struct typed_array *a, char kind, uint64_t bytes, bool big_endian);

/* Add a variable, to which typed_add_extent() then adds: 1; 0: it stays plain, as its name, or what it is mapped to, is
 * too long; -E2BIG, -ENOMEM. */
int typed_add_variable(struct typed *t, const char *name, size_t name_len, const struct typed_array *a);
/* The same for segments of a kind, all those of the file of that name if it is not empty: 1, -E2BIG, -ENOMEM. */
int typed_add_segments(struct typed *t, enum segment_kind kind, const char *name, size_t name_len);
/* To the last variable. Nothing to add of no bytes. -EBADMSG: it is not in the file; -E2BIG, -ENOMEM. */
int typed_add_extent(struct typed *t, uint64_t off, uint64_t len);
/* Both, of an array that lies in one piece; off + len must be what it says: -EBADMSG. */
int typed_add_array(struct typed *t, const char *name, size_t name_len, const struct typed_array *a, uint64_t off,
		    uint64_t len);
/* Once all are added: -EBADMSG if two extents overlap. */
int typed_check(const struct typed *t);
/* Variables with fewer bytes than that are none: coded by themselves they would take more than among plain bytes. */
void typed_drop_small(struct typed *t, uint64_t least);
