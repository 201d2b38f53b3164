/*
 * The address space of a process, as an image of it tells, and which bytes of the image are which part of it. Names are
 * borrowed from the image. Belongs to one thread.
 */
#pragma once

#include <stdbool.h>

#include "store/classify/typed.h"

struct area {
	uint64_t start, end; /* addresses */
	uint64_t off, len; /* its bytes in the image; len 0: it has none there */
	const char *name; /* of the file that is mapped; not terminated */
	size_t name_len; /* 0: of no file */
	enum segment_kind kind; /* SEGMENT_NONE: to be found out */
};

struct areas {
	struct area *area;
	size_t nr, room;
};

#define AREAS_EMPTY ((struct areas){ 0 })
void areas_release(struct areas *as);

int areas_add(struct areas *as, struct area a); /* -EBADMSG: it ends before it starts; -E2BIG, -ENOMEM */
void areas_sort(struct areas *as); /* by address, before any of those below */
/* The one that has this address, or NULL. */
struct area *areas_find(const struct areas *as, uint64_t address);

bool area_same_file(const struct area *a, const struct area *b);
/* Gives those of no kind yet one, by the names of files; `program` is that of the program's own file. What has no name
 * is anonymous, but for what lies right behind a file's data: its bss. */
void areas_name_kinds(struct areas *as, const char *program, size_t program_len);

/* Those that have bytes, as variables: one for each kind and file. -EBADMSG: not in the image; -E2BIG, -ENOMEM. Changes
 * the order. */
int areas_tell(struct areas *as, struct typed *ret);
