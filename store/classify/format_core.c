/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ELF core files, of the kernel and of gdb: a segment for each mapping, and notes. NT_FILE lists the mappings of files.
 * The registers of threads and the auxiliary vector of the program show which mappings are stacks, and where its own
 * file is mapped. The heap is not indicated: it is the mapping without a file that begins behind the program, no
 * farther than the kernel places it.
 */
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "base/le.h"
#include "base/util.h"
#include "store/classify/areas.h"
#include "store/classify/formats.h"

#define HEAP_WITHIN (GiB(1) + MiB(32)) /* of the end of the program's data: arch_randomize_brk() */
#define STATUS_REGISTERS 112 /* offset of the registers in NT_PRSTATUS, 64-bit */
#define THREADS_MAX 65536u

struct core {
	const uint8_t *p;
	uint64_t len;
	uint16_t machine;
	struct areas files; /* of NT_FILE */
	/* addresses in the program's file, in the vdso, on the first stack; 0: unknown */
	uint64_t program, vdso, started_on;
	uint64_t *stack;
	size_t nr_stacks, room_stacks;
};

static uint16_t get16(const uint8_t *p)
{
	return le16_get(*(const struct le16 *)p);
}

static uint32_t get32(const uint8_t *p)
{
	return le32_get(*(const struct le32 *)p);
}

static uint64_t get64(const uint8_t *p)
{
	return le64_get(*(const struct le64 *)p);
}

static bool within(const struct core *c, uint64_t off, uint64_t len)
{
	return off <= c->len && len <= c->len - off;
}

/* count, page size, count times (start, end, page of the file), count names */
static int read_files(struct core *c, const uint8_t *p, uint64_t len)
{
	uint64_t nr = len >= 16 ? get64(p) : 0;
	const uint8_t *name, *end = p + len;

	if (nr == 0 || nr > (len - 16) / 24)
		return nr == 0 ? 0 : -EBADMSG;
	name = p + 16 + nr * 24;
	for (uint64_t i = 0; i < nr; i++) {
		const uint8_t *entry = p + 16 + i * 24, *zero = memchr(name, 0, (size_t)(end - name));
		int r;

		if (!zero)
			return -EBADMSG;
		r = areas_add(&c->files, (struct area){ .start = get64(entry),
							.end = get64(entry + 8),
							.name = (const char *)name,
							.name_len = (size_t)(zero - name) });
		if (r < 0)
			return r;
		name = zero + 1;
	}
	return 0;
}

static void read_vector(struct core *c, const uint8_t *p, uint64_t len)
{
	for (uint64_t at = 0; at + 16 <= len && get64(p + at) != AT_NULL; at += 16) {
		uint64_t value = get64(p + at + 8);

		switch (get64(p + at)) {
		case AT_PHDR:
			c->program = value;
			break;
		case AT_RANDOM:
			c->started_on = value;
			break;
		case AT_SYSINFO_EHDR:
			c->vdso = value;
			break;
		}
	}
}

static int read_status(struct core *c, const uint8_t *p, uint64_t len)
{
	unsigned pointer = c->machine == EM_X86_64 ? 19 : c->machine == EM_AARCH64 ? 31 : 0;
	uint64_t at = STATUS_REGISTERS + pointer * UINT64_C(8);

	if (pointer == 0 || at + 8 > len || c->nr_stacks == THREADS_MAX)
		return 0;
	if (c->nr_stacks == c->room_stacks) {
		size_t room = MAX(2 * c->room_stacks, (size_t)16);
		uint64_t *more = reallocarray(c->stack, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		c->stack = more;
		c->room_stacks = room;
	}
	c->stack[c->nr_stacks++] = get64(p + at);
	return 0;
}

/* Notes are padded to 4 bytes. */
static int read_notes(struct core *c, uint64_t off, uint64_t len)
{
	while (len >= 12) {
		const uint8_t *p = c->p + off;
		uint64_t name_len = get32(p), data_len = get32(p + 4), data = 12 + round_up(name_len, 4);
		uint64_t whole = data + round_up(data_len, 4);
		int r = 0;

		if (data + data_len > len)
			return -EBADMSG;
		if (name_len == 5 && memcmp(p + 12, "CORE", 5) == 0)
			switch (get32(p + 8)) {
			case NT_FILE:
				r = read_files(c, p + data, data_len);
				break;
			case NT_AUXV:
				read_vector(c, p + data, data_len);
				break;
			case NT_PRSTATUS:
				r = read_status(c, p + data, data_len);
				break;
			}
		if (r < 0)
			return r;
		off += MIN(whole, len);
		len -= MIN(whole, len);
	}
	return 0;
}

static int read_segments(struct core *c, struct areas *as)
{
	uint64_t table = get64(c->p + 32), nr = get16(c->p + 56), sections = get64(c->p + 40);

	if (get16(c->p + 54) != sizeof(Elf64_Phdr))
		return -EBADMSG;
	if (nr == PN_XNUM) { /* then the header of the first section has the number */
		if (!within(c, sections, sizeof(Elf64_Shdr)))
			return -EBADMSG;
		nr = get32(c->p + sections + 44);
	}
	if (!within(c, table, nr * sizeof(Elf64_Phdr)))
		return -EBADMSG;
	for (uint64_t i = 0; i < nr; i++) {
		const uint8_t *h = c->p + table + i * sizeof(Elf64_Phdr);
		uint64_t off = get64(h + 8), start = get64(h + 16), len = get64(h + 32), memory = get64(h + 40);
		int r = 0;

		if (!within(c, off, len))
			return -EBADMSG;
		if (get32(h) == PT_NOTE)
			r = read_notes(c, off, len);
		else if (get32(h) == PT_LOAD)
			r = areas_add(as, (struct area){ .start = start, .end = start + memory, .off = off, .len = len });
		if (r < 0)
			return r;
	}
	return 0;
}

/* The mapping without a file behind the program's file: bss if it begins where that ends, unless it is the only one. */
static void find_heap(struct areas *as, const struct area *program)
{
	struct area *bss = NULL;
	bool found = false;
	uint64_t end = 0;

	for (size_t i = 0; i < as->nr; i++) {
		struct area *a = &as->area[i];

		if (a->name_len > 0 && area_same_file(a, program))
			end = a->end;
		else if (end > 0 && (a->name_len > 0 || a->start - end > HEAP_WITHIN))
			break;
		else if (end > 0 && a->kind == SEGMENT_NONE && a->start == end)
			bss = a;
		else if (end > 0 && a->kind == SEGMENT_NONE) {
			a->kind = SEGMENT_HEAP;
			found = true;
		}
	}
	if (bss && !found)
		bss->kind = SEGMENT_HEAP;
}

static void mark_area(const struct areas *as, uint64_t address, enum segment_kind kind)
{
	struct area *a = address > 0 ? areas_find(as, address) : NULL;

	if (a && a->name_len == 0 && a->kind == SEGMENT_NONE)
		a->kind = kind;
}

static void find_kinds(struct core *c, struct areas *as)
{
	static const struct area none = { 0 };
	const struct area *program;

	areas_sort(&c->files);
	areas_sort(as);
	for (size_t i = 0; i < as->nr; i++) {
		const struct area *file = areas_find(&c->files, as->area[i].start);

		if (file) {
			as->area[i].name = file->name;
			as->area[i].name_len = file->name_len;
		}
	}
	program = areas_find(&c->files, c->program);
	program = program ? program : &none;
	mark_area(as, c->vdso, SEGMENT_OTHER);
	mark_area(as, c->started_on, SEGMENT_STACK);
	for (size_t i = 0; i < c->nr_stacks; i++)
		mark_area(as, c->stack[i], SEGMENT_STACK);
	if (program->name_len > 0)
		find_heap(as, program);
	areas_name_kinds(as, program->name, program->name_len);
}

int format_core(const uint8_t *p, uint64_t len, struct typed *ret)
{
	struct core c = { .p = p, .len = len };
	struct areas as = AREAS_EMPTY;
	int r;

	if (len < sizeof(Elf64_Ehdr) || memcmp(p, ELFMAG, SELFMAG) != 0 || p[EI_CLASS] != ELFCLASS64 ||
	    p[EI_DATA] != ELFDATA2LSB || get16(p + 16) != ET_CORE)
		return 0;
	c.machine = get16(p + 18);
	r = read_segments(&c, &as);
	if (r == 0) {
		find_kinds(&c, &as);
		r = areas_list(&as, ret);
	}
	areas_release(&c.files);
	areas_release(&as);
	free(c.stack);
	return r < 0 ? r : 1;
}
