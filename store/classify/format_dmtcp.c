/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Uncompressed images of DMTCP 3 and 4: one or two headers, then a header of 4096 bytes for each area of
 * /proc/self/maps, usually followed by its bytes. A mapping of a file is followed by as many bytes as the file has
 * there, so the next header may begin at any offset.
 */
#include <errno.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"
#include "store/classify/areas.h"
#include "store/classify/formats.h"

#define BLOCK 4096u
#define NAME_ROOM 1024u
#define SIGNATURE_3 "DMTCP_CHECKPOINT_IMAGE_v2.0\n"
#define SIGNATURE_4 "DMTCP_CHECKPOINT_IMAGE_v4.0\n"
#define MEMORY_SIGNATURE "MTCP_HEADER_v2.2\n" /* version 3: in a block of its own after the first header */
#define HEADER_BLOCKS_MAX 256u

enum property { ZERO_PAGES = 1, PARENT = 2, CHILD = 4, PROPERTIES_KNOWN = 7 };

struct area_disk {
	struct le64 start, end, size, file_off, prot, flags, major, minor, inode, file_bytes, properties;
	uint8_t name[NAME_ROOM];
};
static_assert(sizeof(struct area_disk) <= BLOCK && offsetof(struct area_disk, name) == 88, "in images");

static bool begins(const uint8_t *p, const char *text)
{
	return memcmp(p, text, strlen(text)) == 0;
}

/* Offset of the first area; 0: not found. */
static uint64_t first_area(const uint8_t *p, uint64_t len)
{
	if (begins(p, SIGNATURE_4))
		return 2 * BLOCK;
	for (uint64_t at = BLOCK; at <= HEADER_BLOCKS_MAX * BLOCK && at + BLOCK <= len; at += BLOCK)
		if (begins(p + at, MEMORY_SIGNATURE))
			return at + BLOCK;
	return 0;
}

static void set_kind(struct area *a, const char *name, size_t len)
{
	if (len == 0)
		return;
	if (len == 6 && memcmp(name, "[heap]", 6) == 0)
		a->kind = SEGMENT_HEAP;
	else if (len >= 6 && memcmp(name, "[stack", 6) == 0)
		a->kind = SEGMENT_STACK;
	else if (name[0] == '[')
		a->kind = SEGMENT_OTHER;
	else {
		a->name = name;
		a->name_len = len;
	}
}

/* Read the area header at `at`: 1; 0: it is the terminator; -EBADMSG. An area without addresses is ignored, too. */
static int read_area(const uint8_t *p, uint64_t len, uint64_t at, struct area *ret)
{
	const struct area_disk *d = (const struct area_disk *)(p + at);
	uint64_t properties, bytes, size;

	if (at > len || len - at < BLOCK)
		return -EBADMSG;
	size = le64_get(d->size);
	properties = le64_get(d->properties);
	*ret = (struct area){ .start = le64_get(d->start), .end = le64_get(d->end), .off = at + BLOCK };
	if (ret->start == 0)
		return 0;
	if (ret->end - ret->start != size || ret->end < ret->start || (properties & ~(uint64_t)PROPERTIES_KNOWN))
		return -EBADMSG;
	/* -1: no file */
	bytes = (int64_t)le64_get(d->file_bytes) > 0 && !(properties & CHILD) ? le64_get(d->file_bytes) : size;
	if (bytes > size)
		return -EBADMSG;
	ret->len = properties & (ZERO_PAGES | PARENT) ? 0 : bytes;
	if (properties & PARENT)
		ret->end = ret->start; /* its children cover all of it */
	if (ret->len > len - ret->off)
		return -EBADMSG;
	set_kind(ret, (const char *)d->name, strnlen((const char *)d->name, NAME_ROOM));
	return 1;
}

/* The kernel places the mappings of the program's file first in the address space. */
static const struct area *program_of(const struct areas *as)
{
	static const struct area none = { 0 };

	for (size_t i = 0; i < as->nr; i++)
		if (as->area[i].name_len > 0)
			return &as->area[i];
	return &none;
}

int format_dmtcp(const uint8_t *p, uint64_t len, struct typed *ret)
{
	struct areas as = AREAS_EMPTY;
	const struct area *program;
	struct area a;
	uint64_t at;
	int r;

	if (len < 2 * BLOCK || (!begins(p, SIGNATURE_3) && !begins(p, SIGNATURE_4)))
		return 0;
	at = first_area(p, len);
	r = at > 0 ? 1 : -EBADMSG;
	while (r > 0) {
		r = read_area(p, len, at, &a);
		if (r <= 0)
			break;
		at = a.off + a.len;
		if (a.end > a.start)
			r = areas_add(&as, a);
		r = r < 0 ? r : 1;
	}
	if (r == 0) {
		areas_sort(&as);
		program = program_of(&as);
		areas_name_kinds(&as, program->name, program->name_len);
		r = areas_list(&as, ret);
	}
	areas_release(&as);
	return r < 0 ? r : 1;
}
