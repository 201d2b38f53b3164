/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Where pages begin: images of processes share the pages of their memory with each other and with plain files, wherever
 * it stands in them. */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/le.h"
#include "base/util.h"
#include "store/classify/image_cuts.h"
#include "tests/unit/store/rig.h"

#define PAGE 4096u
#define MEMORY MiB(3)
#define HEADER sizeof(Elf64_Ehdr)
#define BROKEN 1000u /* bytes of the last page of a file that is mapped */

struct image {
	uint8_t *p;
	size_t len;
	uint64_t memory; /* where it begins */
};

static void image_release(struct image *i)
{
	free(i->p);
}

/* A core file with a note and memory in so many segments, which begins behind the table as gdb has it. */
static struct image core_of(const uint8_t *memory, size_t len, unsigned nr)
{
	uint64_t off = HEADER + (nr + 1) * sizeof(Elf64_Phdr);
	struct image i = { .p = calloc(1, off + len + 100), .len = off + len + 100, .memory = off };
	Elf64_Phdr *entry = (Elf64_Phdr *)(i.p + HEADER);
	Elf64_Ehdr e = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
			 .e_type = ET_CORE,
			 .e_machine = EM_X86_64,
			 .e_version = 1,
			 .e_phoff = HEADER,
			 .e_phentsize = sizeof(Elf64_Phdr),
			 .e_phnum = (uint16_t)(nr + 1) };
	size_t each = round_down(len / nr, (size_t)PAGE);

	assert_non_null(i.p);
	memcpy(i.p, &e, sizeof(e));
	entry[0] = (Elf64_Phdr){ .p_type = PT_NOTE, .p_offset = off + len, .p_filesz = 100 };
	for (unsigned k = 0; k < nr; k++) {
		size_t bytes = k + 1 < nr ? each : len - each * (nr - 1);

		entry[k + 1] = (Elf64_Phdr){ .p_type = PT_LOAD,
					     .p_offset = off + k * each,
					     .p_vaddr = 0x400000 + 2 * k * each,
					     .p_filesz = bytes,
					     .p_memsz = bytes,
					     .p_align = 1 };
	}
	memcpy(i.p + off, memory, len);
	memset(i.p + off + len, 'n', 100);
	return i;
}

static void put_area(uint8_t *p, uint64_t start, uint64_t size, uint64_t file_bytes)
{
	uint64_t word[11] = { start, start + size, size, 0, 5, 2, 0, 0, 0, file_bytes, 0 };

	for (unsigned i = 0; i < ARRAY_SIZE(word); i++)
		*((struct le64 *)p + i) = le64_put(word[i]);
}

/* An image of DMTCP: an area of a file, with an incomplete last page, then the memory, in two areas. */
static struct image dmtcp_of(const uint8_t *memory, size_t len, bool is_old)
{
	uint64_t first = (is_old ? 4 : 2) * PAGE, off = first + PAGE + BROKEN;
	struct image i = { .p = calloc(1, off + len + 3 * PAGE), .len = off + len + 3 * PAGE, .memory = off + PAGE };
	size_t half = len / 2;

	assert_non_null(i.p);
	assert_int_equal(half % PAGE, 0);
	strcpy((char *)i.p, is_old ? "DMTCP_CHECKPOINT_IMAGE_v2.0\n" : "DMTCP_CHECKPOINT_IMAGE_v4.0\n");
	if (is_old)
		strcpy((char *)i.p + 3 * PAGE, "MTCP_HEADER_v2.2\n");
	put_area(i.p + first, 0x400000, PAGE, BROKEN);
	memset(i.p + first + PAGE, 'b', BROKEN);
	put_area(i.p + off, 0x10000000, half, UINT64_MAX);
	memcpy(i.p + i.memory, memory, half);
	put_area(i.p + i.memory + half, 0x20000000, half, UINT64_MAX);
	memcpy(i.p + i.memory + half + PAGE, memory + half, half);
	return i; /* ends with a page of zeros: the last header */
}

static uint64_t part_of(const struct grid *g, uint64_t off)
{
	uint64_t start, end;

	grid_part(g, off, &start, &end);
	assert_true(start <= off && off < end);
	return start;
}

static void a_core_reports_where_memory_begins(void **state)
{
	_cleanup_(freep) uint8_t *memory = rig_bytes(MEMORY, 1);
	_cleanup_(image_release) struct image i = core_of(memory, MEMORY, 5);
	struct grid g = GRID_OF_FILE;

	(void)state;
	grid_follow(&image_cuts, &g, i.p, PAGE, 0, 0, PAGE); /* all at once */
	assert_int_equal(part_of(&g, i.memory - 1), 0);
	assert_int_equal(part_of(&g, i.memory + MEMORY), i.memory);
	grid_follow(&image_cuts, &g, i.p + i.memory, PAGE, i.memory, i.memory, PAGE);
	assert_int_equal(part_of(&g, i.memory - 1), 0);
	assert_int_equal(part_of(&g, i.memory + MEMORY), i.memory);
	grid_follow(&image_cuts, &g, i.p, HEADER, 0, 0, PAGE); /* the header, then the table */
	assert_int_equal(part_of(&g, i.memory), 0);
	grid_follow(&image_cuts, &g, i.p + HEADER, PAGE, HEADER, HEADER, PAGE);
	assert_int_equal(part_of(&g, i.memory), i.memory);
	grid_follow(&image_cuts, &g, i.p + HEADER, PAGE, HEADER, 0, PAGE); /* the table first */
	assert_int_equal(part_of(&g, i.memory), i.memory);
	/* What is no core. */
	grid_follow(&image_cuts, &g, memory, PAGE, 0, 0, PAGE);
	assert_int_equal(part_of(&g, i.memory), 0);
	i.p[16] = ET_DYN;
	grid_follow(&image_cuts, &g, i.p, PAGE, 0, 0, PAGE);
	assert_int_equal(part_of(&g, i.memory), 0);
	grid_follow(&image_cuts, &g, i.p + HEADER, 100, HEADER, 0, PAGE); /* cut off before the first memory */
	assert_int_equal(part_of(&g, i.memory), 0);
	((Elf64_Phdr *)(i.p + HEADER))[1].p_offset = HEADER; /* it would stand in the table */
	grid_follow(&image_cuts, &g, i.p + HEADER, PAGE, HEADER, 0, PAGE);
	assert_int_equal(part_of(&g, i.memory), 0);
}

/* The hook gets the first bytes of a file and those that it asked for; without one pages start at 0. */
static uint64_t nr_calls;
static void count_calls(struct grid *g, const uint8_t *p, size_t len, uint64_t off, uint64_t size, uint32_t page)
{
	nr_calls++;
	image_cuts.move_grid(g, p, len, off, size, page);
}

static void the_hook_is_called_for_headers_only(void **state)
{
	const struct cut_hooks counting = { .move_grid = count_calls };
	_cleanup_(freep) uint8_t *memory = rig_bytes(MEMORY, 1);
	_cleanup_(image_release) struct image i = core_of(memory, MEMORY, 5);
	struct grid g = GRID_OF_FILE, none = GRID_OF_FILE;

	(void)state;
	for (uint64_t at = 0; at < i.len; at += at == 0 ? i.memory : PAGE) {
		size_t len = at == 0 ? i.memory : MIN((size_t)PAGE, i.len - at);

		grid_follow(&counting, &g, i.p + at, len, at, at, PAGE);
		grid_follow(NULL, &none, i.p + at, len, at, at, PAGE);
	}
	assert_int_equal(nr_calls, 2); /* the headers; where memory begins */
	assert_int_equal(part_of(&g, i.memory), i.memory);
	assert_int_equal(part_of(&none, i.memory), 0);
}

static void write_step(struct rig *rig, uint64_t ino, const struct image *i, size_t step, uint64_t header)
{
	struct content *c = rig_content(rig, ino);

	for (size_t at = header; at < i->len; at += step)
		assert_int_equal(content_write(c, i->p + at, MIN(step, i->len - at), at), 0);
	if (header > 0)
		assert_int_equal(content_write(c, i->p, header, 0), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
	rig_check_bytes(rig, ino, i->p, i->len);
}

static uint64_t fresh_of(struct rig *rig, uint64_t ino, const struct image *i, size_t step, uint64_t header)
{
	uint64_t before = rig_stats(rig).fresh;

	write_step(rig, ino, i, step, header);
	return rig_stats(rig).fresh - before;
}

/* What an image stores where its memory is a plain file already. */
static void shares(struct rig *rig, uint64_t ino, struct image i, uint64_t header, uint64_t most)
{
	static const size_t steps[] = { 1000, 4096, 65536, 1048576, 3000001 };
	_cleanup_(image_release) struct image own = i;

	for (unsigned s = 0; s < ARRAY_SIZE(steps); s++)
		assert_in_range(fresh_of(rig, ino + s, &own, steps[s], header), s == 0, s == 0 ? most : 0);
}

static void images_share_pages_with_files(void **state)
{
	_cleanup_(freep) uint8_t *memory = rig_bytes(MEMORY, 1);
	struct rig *rig = *state;

	rig_write_bytes(rig, 100, memory, MEMORY);
	shares(rig, 110, core_of(memory, MEMORY, 5), 0, 2 * PAGE); /* what is before the memory, and behind */
	shares(rig, 120, core_of(memory, MEMORY, 5), HEADER, PAGE); /* that once more, as it was without the header */
	shares(rig, 130, core_of(memory, MEMORY, 100), HEADER, 6 * PAGE);
	shares(rig, 140, dmtcp_of(memory, MEMORY, false), 0, 6 * PAGE);
	shares(rig, 150, dmtcp_of(memory, MEMORY, true), 0, 8 * PAGE);
	rig_fsck(rig);
}

/* Many writes anywhere in any order, over what was told before: bytes are right, now and later. */
static void bytes_are_right(void **state)
{
	_cleanup_(freep) uint8_t *memory = rig_bytes(MEMORY, 1);
	struct rig *rig = *state;

	for (unsigned round = 0; round < 4; round++) {
		_cleanup_(image_release) struct image i =
			round < 2 ? core_of(memory, MEMORY, 9) : dmtcp_of(memory, MEMORY, round == 2);
		uint64_t ino = 200 + round, seed = round;
		struct content *c;

		write_step(rig, ino, &i, KiB(300), round % 2 ? HEADER : 0);
		c = rig_content(rig, ino);
		for (unsigned n = 0; n < 400; n++) {
			size_t at, len;

			seed = seed * 6364136223846793005u + 1442695040888963407u;
			at = (seed >> 20) % i.len;
			len = MIN(n % 7 == 0 ? KiB(200) : (size_t)(seed >> 50) + 1, i.len - at);
			rig_pattern(i.p + at, len, seed);
			assert_int_equal(content_write(c, i.p + at, len, at), 0);
		}
		assert_int_equal(content_flush(c), 0);
		content_close(c);
		rig_check_bytes(rig, ino, i.p, i.len);
		rig_reopen(rig);
		rig_check_bytes(rig, ino, i.p, i.len);
	}
	rig_fsck(rig);
}

/* A file that was an image, and is written again as something else. */
static void what_was_reported_ends_with_the_file(void **state)
{
	_cleanup_(freep) uint8_t *memory = rig_bytes(MEMORY, 1);
	_cleanup_(image_release) struct image i = core_of(memory, MEMORY, 5);
	struct rig *rig = *state;
	struct content *c = rig_content(rig, 300);
	uint64_t before;

	write_step(rig, 300, &i, MiB(1), 0);
	before = rig_stats(rig).fresh;
	assert_int_equal(content_truncate(c, 0), 0);
	assert_int_equal(content_write(c, memory, MEMORY, PAGE), 0); /* the same pages, counted from 0 */
	assert_int_equal(content_flush(c), 0);
	assert_int_equal(rig_stats(rig).fresh, before);
	content_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_core_reports_where_memory_begins),
		cmocka_unit_test(the_hook_is_called_for_headers_only),
		rig_test(images_share_pages_with_files),
		rig_test(bytes_are_right),
		rig_test(what_was_reported_ends_with_the_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
