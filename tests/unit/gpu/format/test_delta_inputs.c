/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Stored objects: golden/delta pins the bytes of version 1, should-fail/delta has one damaged object per file. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "gpu/format/delta_encode.h"
#include "tests/unit/gpu/format/rig.h"
#include "tests/unit/gpu/format/whole_object.h"

static void check_damaged(const char *path)
{
	_cleanup_(rig_input_release) struct rig_input in;
	_cleanup_(freep) uint8_t *copy = NULL;
	struct delta_tables t;
	int r;

	rig_input_load(&in, path);
	copy = malloc(in.object.len); /* of its exact length, so that a sanitizer sees a read past the end */
	assert_non_null(copy);
	memcpy(copy, in.object.data, in.object.len);
	r = delta_decode(copy, in.object.len, &t);
	if (strcmp(r == 0 ? "ok" : strerrorname_np(-r), in.expect) != 0)
		fail_msg("%s: %s", path, r == 0 ? "ok" : strerrorname_np(-r));
}

/* Calls `check` for every input of a folder; returns their number. */
static unsigned each_input(const char *folder, void (*check)(const char *path))
{
	DIR *d = opendir(folder);
	struct dirent *e;
	unsigned nr = 0;

	assert_non_null(d);
	while ((e = readdir(d))) {
		char path[512];

		if (!strstr(e->d_name, ".txt"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		check(path);
		nr++;
	}
	closedir(d);
	return nr;
}

static void damaged_objects_are_distinguished(void **state _unused_)
{
	assert_true(each_input(TESTS_DIR "/should-fail/delta", check_damaged) >= 85);
}

static void check_regions(const char *path)
{
	_cleanup_(rig_input_release) struct rig_input in;
	_cleanup_(buf_release) struct buf lines = BUF_EMPTY;
	struct delta_region region;
	struct delta_tables t;
	struct delta_iter it;
	int r;

	rig_input_load(&in, path);
	assert_int_equal(delta_decode(in.object.data, in.object.len, &t), 0);
	it = delta_iter(&t);
	while ((r = delta_iter_next(&it, &region)) > 0)
		rig_region(&lines, &region);
	assert_int_equal(r, 0);
	buf_add_u8(&lines, 0);
	buf_add_u8(&in.regions, 0);
	assert_string_equal((char *)lines.data, (char *)in.regions.data);
}

static void golden_objects_have_these_regions(void **state _unused_)
{
	assert_int_equal(each_input(TESTS_DIR "/golden/delta", check_regions), 8);
}

/* A stretch with whole pages comes in pieces. */
static void add_run(struct buf *runs, struct delta_run run)
{
	struct delta_run *last = runs->len > 0 ? (struct delta_run *)(runs->data + runs->len) - 1 : NULL;

	if (last && last->chunk + last->count == run.chunk)
		last->count += run.count;
	else
		buf_add(runs, &run, sizeof(run));
}

/* The chunks that the tables of an object name, as an encoder takes them. */
static void plan_of(const struct delta_tables *t, struct buf *first, struct buf *shifted, struct buf *literals)
{
	struct delta_iter it = delta_iter(t);
	uint32_t chunk_len = t->header.chunk_len;
	struct delta_region r;

	while (delta_iter_next(&it, &r) > 0) {
		struct delta_span span = { r.off, r.len };
		struct delta_run run = { (uint32_t)(r.off / chunk_len), (uint32_t)chunks_of(r.len, chunk_len) };
		struct delta_shift shift = { run.chunk, run.count, r.version, (uint32_t)(r.src_off / chunk_len),
					     r.kind == DELTA_REPEATED };

		if (r.kind == DELTA_FIRST)
			add_run(first, run);
		else if (r.kind == DELTA_LITERAL)
			buf_add(literals, &span, sizeof(span));
		else
			buf_add(shifted, &shift, sizeof(shift));
	}
}

static void check_same_bytes(const char *path)
{
	_cleanup_(buf_release) struct buf first = BUF_EMPTY, shifted = BUF_EMPTY, literals = BUF_EMPTY,
					  tables = BUF_EMPTY;
	_cleanup_(rig_input_release) struct rig_input in;
	struct delta_header_disk disk;
	struct delta_header h;
	struct delta_tables t;
	struct delta_plan plan;

	rig_input_load(&in, path);
	assert_int_equal(delta_decode(in.object.data, in.object.len, &t), 0);
	plan_of(&t, &first, &shifted, &literals);
	h = t.header;
	plan = (struct delta_plan){
		.first = (const struct delta_run *)first.data,
		.shifted = (const struct delta_shift *)shifted.data,
		.literals = (const struct delta_span *)literals.data,
		.nr_first = first.len / sizeof(struct delta_run),
		.nr_shifted = shifted.len / sizeof(struct delta_shift),
		.nr_literals = literals.len / sizeof(struct delta_span),
		.first_as = DELTA_AS(h.first_encoding),
		.shifted_as = DELTA_AS(h.shifted_encoding),
	};
	h.tables_crc = 0;
	delta_tables_encode(&h, &plan, &tables);
	assert_int_equal(tables.len, delta_tables_len(&t.header));
	if (tables.len > 0)
		assert_memory_equal(tables.data, in.object.data + delta_tables_off(&h), tables.len);
	delta_header_encode(&h, &disk);
	assert_memory_equal(&disk, in.object.data, sizeof(disk));
}

static void golden_objects_are_what_is_encoded_today(void **state _unused_)
{
	assert_int_equal(each_input(TESTS_DIR "/golden/delta", check_same_bytes), 8);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(damaged_objects_are_distinguished),
		cmocka_unit_test(golden_objects_have_these_regions),
		cmocka_unit_test(golden_objects_are_what_is_encoded_today),
	};

	return cmocka_run_group_tests_name("delta_inputs", tests, NULL, NULL);
}
