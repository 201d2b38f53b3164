/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What lies beside the pages of CRIU (tests/fuzz/corpus/criu, written by tests/apps/image_files.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "base/le.h"
#include "base/util.h"
#include "store/classify/format_criu.h"

#define PAGES 9u

static uint8_t bytes[4096];
static struct companion beside[3];

static int make_rig(void **state)
{
	static const char *const names[] = { "pagemap-7.img", "mm-7.img", "files.img" };
	FILE *f = fopen(TESTS_DIR "/fuzz/corpus/criu/tree", "r");
	size_t at = 12;

	(void)state;
	assert_non_null(f);
	assert_true(fread(bytes, 1, sizeof(bytes), f) > 12);
	fclose(f);
	for (size_t i = 0; i < 3; i++) {
		beside[i] = (struct companion){ names[i], bytes + at, le32_get(((struct le32 *)bytes)[i]) };
		at += beside[i].len;
	}
	return 0;
}

static void expect(const struct typed *t, size_t i, enum segment_kind kind, const char *key, uint64_t off, uint64_t len)
{
	assert_true(i < t->nr_variables);
	assert_int_equal(t->variable[i].kind, kind);
	assert_string_equal(t->variable[i].key, key);
	for (size_t k = 0; k < t->nr_extents; k++)
		if (t->extent[k].variable == i && t->extent[k].off == off) {
			assert_int_equal(t->extent[k].len, len);
			return;
		}
	fail_msg("%s: no extent at %llu", key, (unsigned long long)off);
}

/* Those in a parent are not in the file. */
static void pages_are_what_their_addresses_say(void **state)
{
	struct typed t = TYPED_EMPTY(PAGES * 4096);

	(void)state;
	assert_int_equal(format_criu("pages-3.img", t.size, beside, 3, &t), 1);
	assert_int_equal(t.nr_variables, 6);
	expect(&t, 0, SEGMENT_HEAP, "heap", 2 * 4096, 2 * 4096);
	expect(&t, 1, SEGMENT_STACK, "stack", 6 * 4096, 2 * 4096);
	expect(&t, 2, SEGMENT_CODE, "code /opt/bin/app", 0, 4096);
	expect(&t, 2, SEGMENT_CODE, "code /opt/bin/app", 4096, 4096); /* its bss, of the same run */
	expect(&t, 3, SEGMENT_LIBRARY, "library /usr/lib/libc-2.36.so.6", 4 * 4096, 4096);
	expect(&t, 4, SEGMENT_FILE, "file /data/input.h5", 5 * 4096, 4096);
	expect(&t, 5, SEGMENT_OTHER, "other", 8 * 4096, 4096);
	typed_release(&t);
}

/* Of which size a page is, no file says: all of them fill the file. */
static void pages_may_be_larger(void **state)
{
	struct typed t = TYPED_EMPTY(PAGES * 65536);

	(void)state;
	assert_int_equal(format_criu("pages-3.img", t.size, beside, 3, &t), 1);
	expect(&t, 0, SEGMENT_HEAP, "heap", 2 * 65536, 0x3000); /* as far as the area goes */
	typed_release(&t);
}

static int ask(const char *name, uint64_t len, size_t nr, struct typed *t)
{
	int r;

	*t = TYPED_EMPTY(len);
	r = format_criu(name, len, beside, nr, t);
	if (r <= 0)
		typed_release(t);
	return r;
}

static void less_beside_it_says_less(void **state)
{
	struct typed t;

	(void)state;
	/* no files.img: mappings of files have no names */
	assert_int_equal(ask("pages-3.img", PAGES * 4096, 2, &t), 1);
	expect(&t, t.nr_variables - 2, SEGMENT_FILE, "file", 4 * 4096, 4096);
	typed_release(&t);
	assert_int_equal(ask("pages-3.img", PAGES * 4096, 1, &t), 1); /* no mm: memory */
	assert_int_equal(t.nr_variables, 1);
	expect(&t, 0, SEGMENT_ANONYMOUS, "anonymous", 0, 2 * 4096);
	typed_release(&t);
	assert_int_equal(ask("pages-3.img", PAGES * 4096, 0, &t), 0);
	assert_int_equal(ask("pages-4.img", PAGES * 4096, 3, &t), 0); /* another one's */
	assert_int_equal(ask("pages-3.raw", PAGES * 4096, 3, &t), 0);
	assert_int_equal(ask("pages-3.img", PAGES * 4096 - 1, 3, &t), -EBADMSG); /* cut */
	assert_int_equal(ask("pages-3.img", PAGES * 1024, 3, &t), -EBADMSG);
	assert_int_equal(ask("pages-3.img", 0, 3, &t), -EBADMSG);
}

/* Cut anywhere, or with any byte changed: an error, or extents that are in the file. */
static void lies_are_found_or_harmless(void **state)
{
	unsigned nr_errors = 0;

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct companion whole = beside[i];

		for (size_t at = 0; at < whole.len * 3; at++) {
			size_t n = at < whole.len ? at : whole.len;
			uint8_t *copy = malloc(MAX(n, (size_t)1));
			struct typed t = TYPED_EMPTY(PAGES * 4096);
			int r;

			memcpy(copy, whole.p, n);
			if (at >= whole.len)
				copy[at % whole.len] ^= (uint8_t)(at >= 2 * whole.len ? 0x80 : 1);
			beside[i].p = copy;
			beside[i].len = n;
			r = format_criu("pages-3.img", PAGES * 4096, beside, 3, &t);
			assert_true(r == 0 || r == 1 || r == -EBADMSG);
			assert_true(r <= 0 || typed_check(&t) == 0);
			for (size_t k = 0; k < t.nr_extents; k++)
				assert_true(t.extent[k].off <= t.size && t.extent[k].len <= t.size - t.extent[k].off);
			nr_errors += r < 0;
			typed_release(&t);
			free(copy);
		}
		beside[i] = whole;
	}
	assert_in_range(nr_errors, 300, 1300);
}

static void files_are_known_by_their_names(void **state)
{
	(void)state;
	assert_true(criu_is_pages("pages-1.img") && !criu_is_pages("pages-.img") && !criu_is_pages("pages-1.img.bak"));
	assert_true(criu_is_companion("pagemap-12.img") && criu_is_companion("pagemap-shmem-5.img"));
	assert_true(criu_is_companion("mm-1.img") && criu_is_companion("files.img") && !criu_is_companion("core-1.img"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_what_their_addresses_say),
		cmocka_unit_test(pages_may_be_larger),
		cmocka_unit_test(less_beside_it_says_less),
		cmocka_unit_test(lies_are_found_or_harmless),
		cmocka_unit_test(files_are_known_by_their_names),
	};

	return cmocka_run_group_tests(tests, make_rig, NULL);
}
