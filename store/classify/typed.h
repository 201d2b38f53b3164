/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The typed contents of a file: variables, and the extents of each in the file. Bytes outside all extents are untyped.
 * Belongs to one thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/codec/coding.h"

#define TYPED_KEY_MAX 1024 /* bytes; a variable with a longer name is left untyped */
#define TYPED_VARIABLES_MAX 100000u
#define TYPED_EXTENTS_MAX 1000000u
#define TYPED_DIMS_MAX 32

/* Kind of a memory segment in a process image. Variables of other files are SEGMENT_NONE. */
enum segment_kind {
	SEGMENT_NONE,
	SEGMENT_HEAP, /* of brk; memory mapped by malloc() is anonymous */
	SEGMENT_STACK,
	SEGMENT_CODE, /* the program's own file, including its data and bss */
	SEGMENT_LIBRARY, /* likewise for shared libraries */
	SEGMENT_ANONYMOUS,
	SEGMENT_FILE,
	SEGMENT_OTHER,
	NR_SEGMENT_KINDS,
};
const char *segment_kind_name(enum segment_kind kind); /* "heap", ... "other"; "" for SEGMENT_NONE */

struct typed_variable {
	/* Group/Variable_Datatype_Class, or "library /path": variables of other files with the same key correspond to
	 * it */
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
	const struct names *names; /* borrowed: maps the names of variables that are added; NULL: unchanged */
	struct typed_variable *variable;
	struct typed_extent *extent; /* grouped by variable; the extents of one variable in its own order */
	size_t nr_variables, nr_extents, room_variables, room_extents;
};

#define TYPED_EMPTY(file_size) ((struct typed){ .size = (file_size) })
void typed_release(struct typed *t);

/* The array of a variable. An element may have parts: two in a complex number. */
struct typed_array {
	struct code_type type;
	uint32_t parts;
	unsigned nr_dims; /* 0: a single element */
	uint64_t dim[TYPED_DIMS_MAX];
};

/* Size of an array in bytes, or -EOVERFLOW. */
int typed_array_bytes(const struct typed_array *a, uint64_t *ret);
/* Set a type in the common notation of numpy, safetensors and torch: kind 'i', 'u', 'f', 'c' (complex), 'b' (bool), 'B'
 * (bfloat), and bytes of an element. -EOPNOTSUPP: not supported. */
int typed_array_set_type(struct typed_array *a, char kind, uint64_t bytes, bool big_endian);

/* Add a variable; typed_add_extent() then adds its extents. 1; 0: it stays untyped, as its name, or the mapped name, is
 * too long; -E2BIG, -ENOMEM. */
int typed_add_variable(struct typed *t, const char *name, size_t name_len, const struct typed_array *a);
/* The same for segments of a kind and, unless `name` is empty, of the file of that name: 1, -E2BIG, -ENOMEM. */
int typed_add_segments(struct typed *t, enum segment_kind kind, const char *name, size_t name_len);
/* Add an extent to the last variable. Length 0 is ignored. -EBADMSG: it is not within the file; -E2BIG, -ENOMEM. */
int typed_add_extent(struct typed *t, uint64_t off, uint64_t len);
/* Both, for a contiguous array; len must match the size of the array: -EBADMSG. */
int typed_add_array(struct typed *t, const char *name, size_t name_len, const struct typed_array *a, uint64_t off,
		    uint64_t len);
/* Call after all have been added: -EBADMSG if two extents overlap. */
int typed_check(const struct typed *t);
/* Drop variables smaller than `least` bytes: coded separately they would take more space than among untyped bytes. */
void typed_drop_small(struct typed *t, uint64_t least);
