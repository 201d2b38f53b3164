/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/classify/format_criu.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"
#include "store/classify/areas.h"
#include "store/classify/protobuf.h"

#define COMMON_MAGIC 0x54564319u
#define PAGEMAP_MAGIC 0x56084025u
#define MM_MAGIC 0x57492820u
#define FILES_MAGIC 0x56303138u

/* Flags of a memory area in mm-PID.img. */
enum area_status {
	AREA_STACK = 1 << 1,
	AREA_VSYSCALL = 1 << 2,
	AREA_VDSO = 1 << 3,
	AREA_HEAP = 1 << 5,
	AREA_FILE_PRIVATE = 1 << 6,
	AREA_FILE_SHARED = 1 << 7,
	AREA_SOCKET = 1 << 11,
	AREA_VVAR = 1 << 12,
	AREA_AIO = 1 << 13,
	AREA_STRANGE = AREA_VSYSCALL | AREA_VDSO | AREA_SOCKET | AREA_VVAR | AREA_AIO,
};

enum pages_flag { IN_PARENT = 1, PRESENT = 4 };

/* Open a file of messages, each preceded by its length. */
static int open_file(const struct companion *c, uint32_t magic, struct protobuf *ret)
{
	const struct le32 *d = (const struct le32 *)c->p;

	if (c->len < 8 || le32_get(d[0]) != COMMON_MAGIC || le32_get(d[1]) != magic)
		return -EBADMSG;
	*ret = (struct protobuf){ c->p + 8, c->p + c->len };
	return 0;
}

static int next_message(struct protobuf *file, struct protobuf *ret)
{
	uint64_t left = (uint64_t)(file->end - file->at), len;

	if (left == 0)
		return 0;
	len = left >= 4 ? le32_get(*(const struct le32 *)file->at) : 0;
	if (left < 4 || len > left - 4)
		return -EBADMSG;
	*ret = (struct protobuf){ file->at + 4, file->at + 4 + len };
	file->at = ret->end;
	return 1;
}

static bool is_numbered(const char *name, const char *before)
{
	size_t n = strlen(before), digits;

	if (strncmp(name, before, n) != 0)
		return false;
	digits = strspn(name + n, "0123456789");
	return digits > 0 && strcmp(name + n + digits, ".img") == 0;
}

bool criu_is_pages(const char *name)
{
	return is_numbered(name, "pages-");
}

bool criu_is_companion(const char *name)
{
	return is_numbered(name, "pagemap-") || is_numbered(name, "pagemap-shmem-") || is_numbered(name, "mm-") ||
	       strcmp(name, "files.img") == 0;
}

struct run {
	uint64_t address, nr_pages;
	bool present;
};

static int read_run(struct protobuf m, struct run *ret)
{
	uint64_t flags = UINT64_MAX, in_parent = 0;
	struct protobuf_field f;
	int r;

	*ret = (struct run){ 0 };
	while ((r = protobuf_next(&m, &f)) > 0)
		switch (f.number) {
		case 1:
			ret->address = f.value;
			break;
		case 2: /* 32 bits; version 4 also has field 5, of 64 bits */
		case 5:
			ret->nr_pages = f.value;
			break;
		case 3:
			in_parent = f.value;
			break;
		case 4:
			flags = f.value;
			break;
		}
	ret->present = flags == UINT64_MAX ? !in_parent : flags & PRESENT;
	return r;
}

/* A pagemap belongs to a file of pages if its first message has the number in the name of that file. */
static bool is_pagemap_of(const struct companion *c, uint64_t id)
{
	struct protobuf file, m;
	struct protobuf_field f;

	if (strncmp(c->name, "pagemap-", 8) != 0 || open_file(c, PAGEMAP_MAGIC, &file) < 0 || next_message(&file, &m) <= 0)
		return false;
	while (protobuf_next(&m, &f) > 0)
		if (f.number == 1)
			return f.value == id;
	return false;
}

static const struct companion *find_companion(const struct companion *beside, size_t nr, const char *name)
{
	for (size_t i = 0; i < nr; i++)
		if (strcmp(beside[i].name, name) == 0)
			return &beside[i];
	return NULL;
}

static int file_name(struct protobuf m, uint64_t id, struct area *ret)
{
	struct protobuf_field f, inner;
	bool is_it = false;
	int r;

	while ((r = protobuf_next(&m, &f)) > 0) {
		struct protobuf reg;

		if (f.number == 2)
			is_it = f.value == id;
		if (f.number != 3 || !f.bytes || !is_it)
			continue;
		reg = (struct protobuf){ f.bytes, f.bytes + f.len };
		while ((r = protobuf_next(&reg, &inner)) > 0)
			if (inner.number == 6 && inner.bytes) {
				ret->name = (const char *)inner.bytes;
				ret->name_len = inner.len;
			}
		if (r < 0)
			return r;
	}
	return r;
}

/* Look up the name of a file by its number in files.img; no name if it is not there. */
static int find_name(const struct companion *files, uint64_t id, struct area *ret)
{
	struct protobuf file, m;
	int r;

	if (!files)
		return 0;
	r = open_file(files, FILES_MAGIC, &file);
	while (r >= 0 && ret->name_len == 0 && (r = next_message(&file, &m)) > 0)
		r = file_name(m, id, ret);
	return r;
}

static int read_area(struct protobuf m, const struct companion *files, struct areas *as)
{
	uint64_t status = 0, file = 0;
	struct protobuf_field f;
	struct area a = { 0 };
	int r;

	while ((r = protobuf_next(&m, &f)) > 0)
		switch (f.number) {
		case 1:
			a.start = f.value;
			break;
		case 2:
			a.end = f.value;
			break;
		case 4:
			file = f.value;
			break;
		case 7:
			status = f.value;
			break;
		}
	if (r < 0)
		return r;
	if (status & AREA_HEAP)
		a.kind = SEGMENT_HEAP;
	else if (status & AREA_STACK)
		a.kind = SEGMENT_STACK;
	else if (status & AREA_STRANGE)
		a.kind = SEGMENT_OTHER;
	else if (status & (AREA_FILE_PRIVATE | AREA_FILE_SHARED)) {
		r = find_name(files, file, &a);
		if (r < 0)
			return r;
		if (a.name_len == 0)
			a.kind = SEGMENT_FILE;
	}
	return areas_add(as, a);
}

static int read_memory(const struct companion *mm, const struct companion *files, struct areas *ret)
{
	struct area program = { 0 }, *stack;
	uint64_t started_on = 0;
	struct protobuf file, m;
	struct protobuf_field f;
	int r;

	r = open_file(mm, MM_MAGIC, &file);
	if (r == 0)
		r = next_message(&file, &m);
	if (r <= 0)
		return -EBADMSG;
	while ((r = protobuf_next(&m, &f)) > 0) {
		if (f.number == 5)
			started_on = f.value;
		else if (f.number == 12)
			r = find_name(files, f.value, &program);
		else if (f.number == 14 && f.bytes)
			r = read_area((struct protobuf){ f.bytes, f.bytes + f.len }, files, ret);
		if (r < 0)
			return r;
	}
	if (r < 0)
		return r;
	areas_sort(ret);
	stack = areas_find(ret, started_on); /* areas are not always flagged */
	if (stack && stack->kind == SEGMENT_NONE && stack->name_len == 0)
		stack->kind = SEGMENT_STACK;
	areas_name_kinds(ret, program.name, program.name_len);
	return 0;
}

/* A run of pages may cross areas. Pages in no area are shared memory, which has a pagemap of its own. */
static int add_run(const struct areas *memory, uint64_t address, uint64_t off, uint64_t len, struct areas *ret)
{
	while (len > 0) {
		const struct area *in = areas_find(memory, address);
		uint64_t n = in ? MIN(in->end - address, len) : len;
		struct area a = { .start = address, .end = address + n, .off = off, .len = n, .kind = SEGMENT_ANONYMOUS };
		int r;

		if (in) {
			a.kind = in->kind;
			a.name = in->name;
			a.name_len = in->name_len;
		}
		r = areas_add(ret, a);
		if (r < 0)
			return r;
		address += n;
		off += n;
		len -= n;
	}
	return 0;
}

/* Derive the page size from the number of pages: CRIU does not store it. */
static int page_size(struct protobuf file, uint64_t len, uint64_t *ret)
{
	uint64_t nr = 0;
	struct protobuf m;
	struct run run;
	int r;

	while ((r = next_message(&file, &m)) > 0) {
		if (read_run(m, &run) < 0 || (run.present && __builtin_add_overflow(nr, run.nr_pages, &nr)))
			return -EBADMSG;
	}
	if (r < 0)
		return r;
	*ret = nr > 0 ? len / nr : 4096;
	return (nr > 0 && len % nr != 0) || (nr == 0 && len > 0) || *ret < 4096 || *ret > 65536 ||
			       (*ret & (*ret - 1)) != 0 ?
		       -EBADMSG :
		       0;
}

static int read_pages(const struct companion *map, uint64_t len, const struct areas *memory, struct areas *ret)
{
	uint64_t off = 0, page;
	struct protobuf file, m;
	struct run run;
	int r;

	r = open_file(map, PAGEMAP_MAGIC, &file);
	if (r == 0)
		r = next_message(&file, &m); /* the head message */
	if (r < 0)
		return r;
	r = page_size(file, len, &page);
	while (r >= 0 && (r = next_message(&file, &m)) > 0) {
		r = read_run(m, &run);
		if (r == 0 && run.present) {
			r = add_run(memory, run.address, off, run.nr_pages * page, ret);
			off += run.nr_pages * page;
		}
	}
	return r;
}

int format_criu(const char *name, uint64_t len, const struct companion *beside, size_t nr, struct typed *ret)
{
	const struct companion *map = NULL, *mm;
	struct areas memory = AREAS_EMPTY, pages = AREAS_EMPTY;
	char mm_name[64];
	uint64_t id;
	int r = 0;

	if (!criu_is_pages(name))
		return 0;
	id = strtoull(name + strlen("pages-"), NULL, 10);
	for (size_t i = 0; i < nr && !map; i++)
		map = is_pagemap_of(&beside[i], id) ? &beside[i] : NULL;
	if (!map)
		return 0;
	snprintf(mm_name, sizeof(mm_name), "mm-%s", map->name + strlen("pagemap-"));
	mm = find_companion(beside, nr, mm_name);
	if (mm)
		r = read_memory(mm, find_companion(beside, nr, "files.img"), &memory);
	if (r == 0)
		r = read_pages(map, len, &memory, &pages);
	if (r == 0)
		r = areas_list(&pages, ret);
	if (r == 0)
		r = typed_check(ret);
	areas_release(&memory);
	areas_release(&pages);
	return r < 0 ? r : 1;
}
