/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What a hostile filesystem may answer. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>

#include <cmocka.h>

#include "base/json/json_flat.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/stat/stat_ask.h"
#include "tools/stat/stat_show.h"
#include "tools/stat/stat_variables.h"

/* ESC [ 2 J, a newline, U+202E. */
#define EVIL "\"\\u001b[2J\\n\\u202e\""

static FILE *to;
static char *text;
static size_t len;

static void begin(void)
{
	to = open_memstream(&text, &len);
	assert_non_null(to);
}

static void is_harmless(unsigned nr_expected)
{
	static const char escaped[] = "\\033[2J\\012\\342\\200\\256";
	unsigned nr = 0;

	fclose(to);
	assert_null(strstr(text, "\033"));
	assert_null(strstr(text, "\xe2"));
	for (const char *p = text; (p = strstr(p, escaped)); p++)
		nr++;
	assert_int_equal(nr, nr_expected);
	free(text);
}

/* Strings where there are to be numbers count as 0, and are not shown. */
static void strings_of_a_mount_are_escaped(void **state _unused_)
{
	static const char json[] =
		"{\"store\":" EVIL ",\"mountpoint\":" EVIL ",\"version\":" EVIL ",\"stored_chunks\":" EVIL
		",\"memory\":{\"fingerprint_entries\":" EVIL ",\"inodes\":" EVIL "},\"health\":{\"damaged\":" EVIL
		",\"repaired\":" EVIL "},\"scrub\":{\"known\":true,\"damaged\":" EVIL ",\"left\":" EVIL
		",\"unfinished\":true,\"round\":{\"damaged\":" EVIL "}},\"cluster\":{\"member\":true,\"rounds\":" EVIL
		",\"rounds_failed\":" EVIL ",\"fetch_failures\":" EVIL ",\"sealed\":1,\"sealed_protected\":" EVIL
		",\"replicas_cached\":" EVIL "},\"paths\":{\"readahead_kib\":" EVIL ",\"threads\":" EVIL
		"},\"compaction\":{\"state\":" EVIL ",\"waiting_directories\":" EVIL ",\"done_directories\":" EVIL
		",\"failed_directories\":" EVIL "},\"requests\":{" EVIL ":{\"count\":" EVIL "}}}";
	_cleanup_(json_flat_release) struct json_flat j = { 0 };

	assert_int_equal(json_flat_parse(json, strlen(json), &j), 0);
	begin();
	stat_show_head(to, &j);
	stat_show_mount(to, &j, 0, true);
	is_harmless(12);
}

static void strings_of_a_file_are_escaped(void **state _unused_)
{
	static const char json[] = "{\"kind\":\"file\",\"size_bytes\":" EVIL ",\"extents\":" EVIL ",\"frames\":" EVIL
				   ",\"fragmentation\":" EVIL ",\"fingerprint\":" EVIL "}";
	_cleanup_(json_flat_release) struct json_flat j = { 0 };

	assert_int_equal(json_flat_parse(json, strlen(json), &j), 0);
	begin();
	stat_show_file(to, "\033[2J\n\xe2\x80\xae", &j, NULL);
	is_harmless(4);
}

/* The beginning of what is shown of a mount with these figures. */
static void expect_space(const char *json, size_t nr_sealed, const char *want)
{
	_cleanup_(json_flat_release) struct json_flat j = { 0 };

	assert_int_equal(json_flat_parse(json, strlen(json), &j), 0);
	begin();
	stat_show_mount(to, &j, nr_sealed, false);
	fclose(to);
	text[strcspn(text, "W")] = '\0'; /* "Written since mount:" */
	assert_string_equal(text, want);
	free(text);
}

#define DISK "On disk:                        600 B  packs 0 B, journal 0 B, index 0 B\n"

static void space_is_shown_without_shares_above_one_hundred_percent(void **state _unused_)
{
	expect_space("{\"logical_bytes\":0,\"disk_bytes\":600}", 0,
		     "Nothing is stored yet.\n\n"
		     "Logical size:                     0 B  mapped bytes of all files\n"
		     "After deduplication:              0 B  0.00 % of logical\n"
		     "After compression:                0 B  0.00 % of that, 0 chunks\n" DISK);
	expect_space("{\"logical_bytes\":900,\"stored_bytes\":450,\"compressed_bytes\":225,\"disk_bytes\":600,"
		     "\"stored_chunks\":7}", 1,
		     "900 B, with 1 sealed checkpoint, kept in 600 B: 1.5 x\n\n"
		     "Logical size:                   900 B  mapped bytes of all files\n"
		     "After deduplication:            450 B  50.00 % of logical\n"
		     "After compression:              225 B  50.00 % of that, 7 chunks\n" DISK);
	/* A file that made up half of the store was deleted, and nothing was collected. */
	expect_space("{\"logical_bytes\":300,\"stored_bytes\":600,\"compressed_bytes\":600,\"disk_bytes\":600,"
		     "\"stored_chunks\":7}", 0,
		     "300 B kept in 600 B\n\n"
		     "Logical size:                   300 B  mapped bytes of all files\n"
		     "After deduplication:            300 B  100.00 % of logical\n"
		     "Garbage:                        300 B  or more; ckptfs gc --delete frees it\n"
		     "After compression:              600 B  100.00 % of that and the garbage, 7 chunks\n" DISK);
	/* The same after it was found. */
	expect_space("{\"logical_bytes\":300,\"stored_bytes\":600,\"compressed_bytes\":600,\"disk_bytes\":600,"
		     "\"stored_chunks\":7,\"garbage\":{\"known\":true,\"bytes\":400,\"age_ns\":5}}", 2,
		     "300 B, with 2 sealed checkpoints, kept in 600 B\n\n"
		     "Logical size:                   300 B  mapped bytes of all files\n"
		     "After deduplication:            200 B  66.67 % of logical\n"
		     "Garbage:                        400 B  at the last collection, 5 ns ago\n"
		     "After compression:              600 B  100.00 % of that and the garbage, 7 chunks\n" DISK);
	/* In a cluster, with replicas of other nodes. */
	expect_space("{\"logical_bytes\":300,\"stored_bytes\":600,\"compressed_bytes\":600,\"disk_bytes\":600,"
		     "\"stored_chunks\":7,\"cluster\":{\"member\":true}}", 0,
		     "300 B kept in 600 B\n\n"
		     "Logical size:                   300 B  mapped bytes of all files\n"
		     "After deduplication:            600 B  with replicas for other nodes\n"
		     "After compression:              600 B  100.00 % of that, 7 chunks\n" DISK);
}

/* Closes `to`, and expects these in the text, in this order; of no noun there are "1 ...s". */
static void expect_in_order(const char *const *wanted, size_t nr)
{
	static const char *const plurals[] = { "chunks",      "versions",    "fingerprints", "inodes",
					       "look-ups",    "commits",     "places",	     "rounds",
					       "directories", "checkpoints", "packs",	     "failures",
					       "threads",     "files",	     "frames",	     "bytes" };
	const char *at;

	fclose(to);
	at = text;
	for (size_t i = 0; i < nr; i++) {
		const char *found = strstr(at, wanted[i]);

		if (!found)
			fail_msg("'%s' is not, or not here, in:\n%s", wanted[i], text);
		at = found + strlen(wanted[i]);
	}
	for (const char *p = text; (p = strstr(p, " 1 ")); p++)
		for (size_t i = 0; i < ARRAY_SIZE(plurals); i++)
			if (strncmp(p + 3 + strspn(p + 3, " "), plurals[i], strlen(plurals[i])) == 0)
				fail_msg("plural: %.40s", p);
	free(text);
}

static void one_of_everything_is_singular(void **state _unused_)
{
	static const char json[] =
		"{\"logical_bytes\":2,\"stored_bytes\":1,\"compressed_bytes\":1,\"disk_bytes\":1,\"stored_chunks\":1,"
		"\"deltas\":{\"versions\":1,\"bytes\":1,\"payload_bytes\":1},"
		"\"memory\":{\"fingerprint_entries\":1,\"inodes\":1},\"tables\":{\"hits\":1,\"misses\":0},"
		"\"durability\":{\"commits\":1,\"commit_ns_sum\":1},\"health\":{\"damaged\":1,\"repaired\":1},"
		"\"scrub\":{\"known\":true,\"age_ns\":1,\"damaged\":1,\"left\":1,\"unfinished\":true,"
		"\"round\":{\"damaged\":1}},"
		"\"compaction\":{\"state\":\"idle\",\"waiting_directories\":1,\"done_directories\":1,"
		"\"failed_directories\":1},"
		"\"cluster\":{\"member\":true,\"agent\":true,\"agent_answers\":true,\"nodes\":1,\"rounds\":1,"
		"\"rounds_failed\":1,\"fetch_failures\":1,\"sealed\":1,\"sealed_protected\":1,\"replicas\":1,"
		"\"replicas_cached\":1},"
		"\"tier\":{\"state\":\"idle\",\"where\":\"dir:/t\",\"known\":true,\"in_tier\":1,\"sealed\":1,"
		"\"waiting\":1,\"sent_packs\":1,\"flushed\":1,\"failures\":1},"
		"\"paths\":{\"readahead_kib\":1,\"threads\":1}}";
	static const char *const wanted[] = {
		"2 B, with 1 sealed checkpoint, kept in 1 B: 2.0 x\n",
		" of that, 1 chunk\n",
		"  in 1 version; payload 1 B, ",
		" (cache=), 1 fingerprint, 1 inode in use\n",
		"  of 1 look-up in pack tables\n",
		"  0 s  1 commit, 1 ns on average\n",
		"  1 ns ago, 1 damaged place, 1 left\n",
		"  so far, 1 damaged place\n",
		"  1 sealed directory waiting, 1 done since the mount, 1 failed\n",
		"  with an agent, 1 round, 1 commit without one\n",
		" fetched since the mount, 1 chunk unavailable\n",
		"  1 of 1 sealed directory is replicated on another node\n",
		"; 1 more is cached for reading\n",
		"  dir:/t, 1 of 1 sealed checkpoint is there\n",
		"  in 1 pack, for 1 checkpoint; 1 failure\n",
		", read-ahead 1 KiB, 1 thread\n",
	};
	static const char file[] = "{\"kind\":\"file\",\"size_bytes\":1,\"extents\":1,\"frames\":1}";
	static const char *const of_file[] = { "  1 byte\n", "  in 1 place, ", "  file has other names and would stay\n",
					       "  frame cannot be read and is not counted: " };
	static const char *const of_sums[] = { "  in 1 directory\n", "  1 byte\n", "  in 1 place, ", "  1 file is not\n" };
	static const struct ckptfs_exclusive x = { .linked_files = 1, .damaged = 1 };
	static const struct stat_sums sums = {
		.files = 1, .directories = 1, .size = 1, .extents = 1, .frames = 1, .not_durable = 1
	};
	_cleanup_(json_flat_release) struct json_flat j = { 0 }, f = { 0 };

	assert_int_equal(json_flat_parse(json, strlen(json), &j), 0);
	begin();
	stat_show_mount(to, &j, 1, true);
	expect_in_order(wanted, ARRAY_SIZE(wanted));
	assert_int_equal(json_flat_parse(file, strlen(file), &f), 0);
	begin();
	stat_show_file(to, "file", &f, &x);
	expect_in_order(of_file, ARRAY_SIZE(of_file));
	begin();
	stat_show_sums(to, "dir", &sums, NULL);
	expect_in_order(of_sums, ARRAY_SIZE(of_sums));
}

/* The daemon's, for stat_variables(): it answers at all. */
ssize_t lgetxattr(const char *path _unused_, const char *name _unused_, void *value, size_t size)
{
	assert_true(size >= 2);
	memcpy(value, "{}", 2);
	return 2;
}

int ioctl(int fd _unused_, unsigned long request, ...)
{
	struct ckptfs_variable *v;
	va_list args;

	va_start(args, request);
	v = va_arg(args, struct ckptfs_variable *);
	va_end(args);
	if (request != CKPTFS_IOC_VARIABLE || v->number++ > 0) {
		errno = ENOENT;
		return -1;
	}
	strcpy(v->type, "\033[2J");
	memset(v->coder, 'x', sizeof(v->coder)); /* without a NUL */
	memset(v->key, '\x9b', sizeof(v->key));
	return 0;
}

static void strings_of_variables_are_escaped_and_end(void **state _unused_)
{
	begin();
	assert_int_equal(stat_variables("/", false, to), 0);
	fflush(to);
	assert_null(strchr(text, '\033'));
	assert_non_null(strstr(text, "\\033[2J "));
	assert_null(strchr(text, '\x9b'));
	assert_int_equal(strspn(strstr(text, "xxxx"), "x"), sizeof(((struct ckptfs_variable *)NULL)->coder) - 1);
	is_harmless(0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_of_a_mount_are_escaped),
		cmocka_unit_test(one_of_everything_is_singular),
		cmocka_unit_test(space_is_shown_without_shares_above_one_hundred_percent),
		cmocka_unit_test(strings_of_a_file_are_escaped),
		cmocka_unit_test(strings_of_variables_are_escaped_and_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
