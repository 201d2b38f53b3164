/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The address space of a process as described by its image, and the bytes of the image that belong to each area. Names
 * are borrowed from the image. Belongs to one thread.
 */
#pragma once

#include <stdbool.h>

#include "store/classify/typed.h"

struct area {
	uint64_t start, end; /* addresses */
	uint64_t off, len; /* its bytes in the image; len 0: none */
	const char *name; /* of the mapped file; not terminated */
	size_t name_len; /* 0: no file */
	enum segment_kind kind; /* SEGMENT_NONE: not determined yet */
};

struct areas {
	struct area *area;
	size_t nr, room;
};

#define AREAS_EMPTY ((struct areas){ 0 })
void areas_release(struct areas *as);

int areas_add(struct areas *as, struct area a); /* -EBADMSG: it ends before it starts; -E2BIG, -ENOMEM */
void areas_sort(struct areas *as); /* by address; required before the functions below */
/* The area that contains this address, or NULL. */
struct area *areas_find(const struct areas *as, uint64_t address);

bool area_same_file(const struct area *a, const struct area *b);
/* Assign a kind to areas that have none yet, by file name; `program` is the name of the program's own file. Areas
 * without a name are anonymous, except for one directly behind a file's data: its bss. */
void areas_name_kinds(struct areas *as, const char *program, size_t program_len);

/* Add the areas that have bytes as variables: one for each kind and file. -EBADMSG: not in the image; -E2BIG, -ENOMEM.
 * Changes the order. */
int areas_list(struct areas *as, struct typed *ret);
