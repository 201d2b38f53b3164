/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Places of chunks that were added are found, after any end of the process; damaged and foreign files are made again. */
#include "store/tier/index/tier_index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/util.h"
#include "tests/unit/place.h"

#define LEN 4096u
#define PACKS 8u
#define PIN_LIST 0xb9534cca
#define PIN_BLOCK 0xdd93f085
#define PIN_FILTER 0x55a4f424

static char logged[1000];

static void note(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	snprintf(logged, sizeof(logged), "%s", line);
}

struct rig {
	char dir[64];
	int fd;
	struct tier_index_owner owner;
	struct tier_index *ix;
	bool is_gone[PACKS];
	struct tier_pack_ref_disk packs[PACKS];
};

static void open_index(struct rig *g)
{
	assert_int_equal(tier_index_open(g->fd, &g->owner, MiB(1), &g->ix), 0);
}

static void rig_init(struct rig *g)
{
	*g = (struct rig){ .owner = { .store = "store", .key_id = "key", .where = "where" } };
	snprintf(g->dir, sizeof(g->dir), "%s/ckptfs-test-index-XXXXXX", test_place());
	assert_non_null(mkdtemp(g->dir));
	g->fd = open(g->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(g->fd >= 0);
	for (unsigned i = 0; i < PACKS; i++) {
		g->packs[i] = (struct tier_pack_ref_disk){ .data_len = le64_put(100), .nr_frames = le32_put(1) };
		g->packs[i].id[0] = (uint8_t)i;
	}
	open_index(g);
}

static void rig_release(struct rig *g)
{
	char command[100];

	tier_index_close(g->ix);
	close(g->fd);
	snprintf(command, sizeof(command), "rm -r '%s'", g->dir);
	assert_int_equal(system(command), 0);
}

static void commit(struct rig *g)
{
	assert_int_equal(tier_index_commit(g->ix, g->packs, PACKS, g->is_gone, UINT64_MAX), 0);
}

static void reopen(struct rig *g)
{
	tier_index_close(g->ix);
	open_index(g);
}

/* Each third one has the same lower half as two others. */
static struct fp fp_number(unsigned i)
{
	return (struct fp){ .lo = (i % 3 == 0 ? i / 9 : i) * UINT64_C(0x9e3779b97f4a7c15), .hi = i + 1 };
}

static void add(struct rig *g, unsigned from, unsigned to, bool is_own)
{
	struct tier_index_entry *v = calloc(to - from, sizeof(*v));

	assert_non_null(v);
	for (unsigned i = from; i < to; i++) /* not in order */
		v[to - 1 - i] = (struct tier_index_entry){ fp_number(i), LEN, { i % PACKS, i } };
	assert_int_equal(tier_index_add(g->ix, v, to - from, is_own), 0);
	free(v);
}

static int find(struct rig *g, unsigned i)
{
	struct tier_place place;
	bool is_own;
	int r = tier_index_find(g->ix, fp_number(i), LEN, g->is_gone, PACKS, &place, &is_own);

	if (r > 0) {
		assert_int_equal(place.pack, i % PACKS);
		assert_int_equal(place.chunk, i);
	}
	return r;
}

static unsigned nr_found(struct rig *g, unsigned to)
{
	unsigned nr = 0;

	for (unsigned i = 0; i < to; i++) {
		int r = find(g, i);

		assert_true(r >= 0);
		nr += (unsigned)r;
	}
	return nr;
}

static unsigned nr_files(const struct rig *g)
{
	char path[100];
	struct dirent *e;
	unsigned nr = 0;
	DIR *d;

	snprintf(path, sizeof(path), "%s/%s", g->dir, TIER_INDEX_FOLDER);
	d = opendir(path);
	assert_non_null(d);
	while ((e = readdir(d)))
		nr += e->d_name[0] != '.';
	closedir(d);
	return nr;
}

static void what_was_added_is_found(void **state _unused_)
{
	struct rig g;

	rig_init(&g);
	assert_int_equal(nr_found(&g, 100), 0);
	for (unsigned i = 0; i < 40; i++) /* many runs, which are merged */
		add(&g, 500 * i, 500 * (i + 1), true);
	assert_int_equal(nr_found(&g, 30000), 20000);
	assert_int_equal(tier_index_find(g.ix, fp_number(5), LEN / 2, g.is_gone, PACKS, &(struct tier_place){ 0 }, &(bool){ 0 }), 0);
	assert_int_equal(find(&g, 20000), 0);
	commit(&g);
	assert_int_equal(nr_files(&g), 2); /* the list, and one run */
	for (unsigned i = 0; i < 50; i++) {
		add(&g, 20000 + 10 * i, 20000 + 10 * (i + 1), true);
		commit(&g);
		assert_in_range(nr_files(&g), 2, 6);
	}
	assert_int_equal(nr_found(&g, 30000), 20500);
	reopen(&g);
	assert_int_equal(tier_index_nr_packs(g.ix), PACKS);
	assert_int_equal(tier_index_nr_entries(g.ix, true), 20500);
	assert_int_equal(nr_found(&g, 30000), 20500);
	rig_release(&g);
}

/* It is right without filters, and slower. */
static void memory_for_filters_is_bounded(void **state _unused_)
{
	struct rig g;

	rig_init(&g);
	add(&g, 0, 20000, true);
	commit(&g);
	tier_index_close(g.ix);
	assert_int_equal(tier_index_open(g.fd, &g.owner, 0, &g.ix), 0);
	assert_int_equal(nr_found(&g, 30000), 20000);
	rig_release(&g);
}

static void truncate_runs(const struct rig *g)
{
	char command[200];

	snprintf(command, sizeof(command), "truncate -s 0 '%s'/" TIER_INDEX_FOLDER "/*.run", g->dir);
	assert_int_equal(system(command), 0);
}

/* There is memory for the filter of the merged run, or for those of the runs in it. The run cannot be read then, and need
 * not be, to find that a chunk is not there. */
static void a_merged_run_has_a_filter(void **state _unused_)
{
	enum { RUN = 10150 };
	uint64_t len = tier_filter_len(2 * RUN);
	uint8_t *filter = calloc(1, len);
	unsigned absent = 2 * RUN;
	struct rig g;

	assert_non_null(filter);
	rig_init(&g);
	tier_index_close(g.ix);
	assert_int_equal(tier_index_open(g.fd, &g.owner, len + len / 5, &g.ix), 0);
	add(&g, 0, RUN, true);
	add(&g, RUN, 2 * RUN, true);
	commit(&g);
	for (unsigned i = 0; i < 2 * RUN; i++)
		tier_filter_add(filter, len, fp_number(i));
	while (tier_filter_passes(filter, len, fp_number(absent)))
		absent++;
	assert_int_equal(find(&g, 0), 1);
	truncate_runs(&g);
	assert_int_equal(find(&g, absent), 0);
	assert_int_equal(find(&g, 0), -EIO); /* it cannot be read indeed */
	free(filter);
	rig_release(&g);
}

static void places_in_packs_that_are_gone_are_not_found(void **state _unused_)
{
	struct rig g;

	rig_init(&g);
	add(&g, 0, 1000, true);
	commit(&g);
	g.is_gone[3] = g.is_gone[7] = true;
	assert_int_equal(nr_found(&g, 1000), 750);
	add(&g, 1000, 2000, true);
	commit(&g); /* merges, and leaves them out */
	assert_int_equal(tier_index_nr_entries(g.ix, true), 1500);
	memset(g.is_gone, 0, sizeof(g.is_gone));
	assert_int_equal(nr_found(&g, 2000), 1500);
	memset(g.is_gone, 1, sizeof(g.is_gone));
	add(&g, 2000, 3000, true);
	commit(&g); /* nothing is left */
	assert_int_equal(tier_index_nr_entries(g.ix, true), 0);
	reopen(&g);
	assert_int_equal(nr_found(&g, 3000), 0);
	rig_release(&g);
}

/* A pack with places that no list names is not of a flush that ended. */
static void what_was_not_committed_is_gone_after_a_crash(void **state _unused_)
{
	struct rig g;

	rig_init(&g);
	add(&g, 0, 1000, true);
	commit(&g);
	add(&g, 1000, 2000, true);
	add(&g, 2000, 3000, false);
	assert_int_equal(nr_files(&g), 4);
	/* a crash leaves the files; one that is being written, too */
	for (unsigned i = 0; i < 2; i++) {
		struct tier_index *other;
		char path[100];

		assert_int_equal(tier_index_open(g.fd, &g.owner, MiB(1), &other), 0);
		assert_int_equal(tier_index_nr_entries(other, true), 1000);
		assert_int_equal(tier_index_nr_entries(other, false), 0);
		tier_index_close(other);
		assert_int_equal(nr_files(&g), 2);
		snprintf(path, sizeof(path), "%s/%s/0123456789abcdef.run", g.dir, TIER_INDEX_FOLDER);
		close(open(path, O_CREAT | O_WRONLY, 0600));
		snprintf(path, sizeof(path), "%s/%s/list.tmp", g.dir, TIER_INDEX_FOLDER);
		close(open(path, O_CREAT | O_WRONLY, 0600));
	}
	commit(&g); /* of files that the other one has removed: the next opening finds that out */
	tier_index_close(g.ix);
	logged[0] = '\0';
	open_index(&g);
	assert_non_null(strstr(logged, "is damaged"));
	assert_int_equal(nr_found(&g, 3000), 0);
	assert_int_equal(nr_files(&g), 0);
	rig_release(&g);
}

static void chunks_of_others_are_bounded(void **state _unused_)
{
	struct rig g;

	rig_init(&g);
	add(&g, 0, 1000, true);
	for (unsigned i = 1; i < 6; i++) {
		add(&g, 1000 * i, 1000 * (i + 1), false);
		assert_int_equal(tier_index_commit(g.ix, g.packs, PACKS, g.is_gone, 2500), 0);
		assert_int_equal(tier_index_nr_entries(g.ix, false), MIN(i, 2u) * 1000);
	}
	assert_int_equal(find(&g, 5), 1);
	assert_int_equal(find(&g, 3500), 0);
	assert_int_equal(find(&g, 5500), 1); /* the newest ones stay */
	reopen(&g);
	assert_int_equal(nr_found(&g, 6000), 3000);
	rig_release(&g);
}

static void copy_file(const char *from, const char *to)
{
	char command[1000];

	snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
	assert_int_equal(system(command), 0);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 4;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* No place is wrong: each chunk is found where it is, or the index is empty, and a line is logged. */
static void damage_is_noticed(void **state _unused_)
{
	for (unsigned which = 0; which < 2; which++) {
		char folder[100], saved[100], command[500];
		struct rig g;
		struct stat st;
		off_t size;

		rig_init(&g);
		add(&g, 0, 2000, true);
		commit(&g);
		tier_index_close(g.ix);
		snprintf(folder, sizeof(folder), "%s/%s", g.dir, TIER_INDEX_FOLDER);
		snprintf(saved, sizeof(saved), "%s/saved", g.dir);
		snprintf(command, sizeof(command), "cp -r '%s' '%s'", folder, saved);
		assert_int_equal(system(command), 0);
		snprintf(command, sizeof(command), "mv '%s'/%s '%s'/it", saved, which == 0 ? "list" : "*.run", g.dir);
		assert_int_equal(system(command), 0);
		snprintf(command, sizeof(command), "%s/it", g.dir);
		assert_int_equal(stat(command, &st), 0);
		size = st.st_size;
		for (off_t at = 0; at < size; at += 1 + size / 150) {
			char it[100], path[200];
			struct dirent *e;
			bool is_removed = false;
			DIR *d;

			snprintf(it, sizeof(it), "%s/it", g.dir);
			snprintf(command, sizeof(command), "rm -rf '%s'; cp -r '%s' '%s'", folder, saved, folder);
			assert_int_equal(system(command), 0);
			if (which == 0) {
				snprintf(path, sizeof(path), "%s/list", folder);
			} else { /* its name is in the list */
				struct tier_index_list l;
				uint8_t bytes[1000];
				int fd;

				snprintf(path, sizeof(path), "%s/list", folder);
				fd = open(path, O_RDONLY);
				assert_int_equal(tier_index_list_decode(bytes, (size_t)read(fd, bytes, sizeof(bytes)), &l), 0);
				close(fd);
				assert_int_equal(l.nr_runs, 1);
				snprintf(path, sizeof(path), "%s/%s", folder, tier_index_run_name(l.runs[0].id).s);
			}
			copy_file(it, path);
			flip(path, at);
			logged[0] = '\0';
			open_index(&g);
			for (unsigned i = 0; i < 2000 && !is_removed; i++) {
				int r = find(&g, i);

				is_removed = r <= 0;
				assert_true(r == 1 || logged[0]);
			}
			assert_true(is_removed);
			assert_non_null(strstr(logged, "made again"));
			assert_int_equal(nr_found(&g, 2000), 0);
			tier_index_close(g.ix);
			d = opendir(folder);
			while ((e = readdir(d)))
				assert_int_equal(e->d_name[0], '.');
			closedir(d);
		}
		open_index(&g);
		rig_release(&g);
	}
}

static void an_index_of_another_tier_is_not_used(void **state _unused_)
{
	struct rig g;

	rig_init(&g);
	for (unsigned i = 0; i < 3; i++) {
		add(&g, 0, 100, true);
		commit(&g);
		(i == 0 ? g.owner.store : i == 1 ? g.owner.key_id : g.owner.where)[3] ^= 1;
		logged[0] = '\0';
		reopen(&g);
		assert_non_null(strstr(logged, "belongs to another store or tier"));
		assert_int_equal(tier_index_nr_packs(g.ix), 0);
		assert_int_equal(nr_found(&g, 100), 0);
		assert_int_equal(nr_files(&g), 0);
	}
	rig_release(&g);
}

static void a_folder_that_cannot_be_used_is_an_error(void **state _unused_)
{
	struct rig g;
	char path[100];

	rig_init(&g);
	tier_index_close(g.ix);
	g.ix = NULL;
	snprintf(path, sizeof(path), "%s/%s", g.dir, TIER_INDEX_FOLDER);
	assert_int_equal(rmdir(path), 0);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(tier_index_open(g.fd, &g.owner, MiB(1), &g.ix), -ENOTDIR);
	assert_non_null(strstr(logged, "cannot open the index"));
	rig_release(&g);
}

/* docs/format.md, section 17 */
static void the_format_is_pinned(void **state _unused_)
{
	struct tier_pack_ref_disk pack = { .id = "pack", .data_len = le64_put(1000), .nr_frames = le32_put(3) };
	struct tier_index_list l = {
		.owner = { .store = "store", .key_id = "key", .where = "where" },
		.packs = (const uint8_t *)&pack,
		.nr_packs = 1,
		.nr_runs = 2,
		.runs = { { 0x0123456789abcdef, 5, 64, true }, { 7, 1, 128, false } },
	};
	struct tier_index_entry e = { { .lo = 0x1122334455667788, .hi = 0x99aabbccddeeff }, LEN, { 3, 7 } };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct tier_index_block_disk block = { 0 };
	uint8_t filter[256] = { 0 };

	tier_index_list_encode(&l, &b);
	assert_int_equal(b.len, 72 + 28 + 2 * 32 + 4);
	assert_int_equal(crc32c(b.data, b.len - 4), PIN_LIST);
	assert_string_equal(tier_index_run_name(l.runs[0].id).s, "0123456789abcdef.run");
	tier_index_entry_encode(&e, &block.entries[0]);
	tier_index_block_seal(&block, 1, 2, 1);
	assert_int_equal(le32_get(block.crc32c), PIN_BLOCK);
	assert_int_equal(tier_filter_len(0), 64);
	assert_int_equal(tier_filter_len(65), 128);
	tier_filter_add(filter, sizeof(filter), e.fp);
	assert_int_equal(crc32c(filter, sizeof(filter)), PIN_FILTER);
}

/* A filter never loses a chunk, and refuses most others. */
static void filters_pass_what_was_added(void **state _unused_)
{
	uint64_t len = tier_filter_len(10000);
	uint8_t *filter = calloc(1, len);
	unsigned nr = 0;

	assert_non_null(filter);
	for (unsigned i = 0; i < 10000; i++)
		tier_filter_add(filter, len, fp_number(i));
	for (unsigned i = 0; i < 10000; i++)
		assert_true(tier_filter_passes(filter, len, fp_number(i)));
	for (unsigned i = 10000; i < 20000; i++)
		nr += tier_filter_passes(filter, len, fp_number(i));
	assert_in_range(nr, 0, 500);
	free(filter);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_format_is_pinned),
		cmocka_unit_test(filters_pass_what_was_added),
		cmocka_unit_test(what_was_added_is_found),
		cmocka_unit_test(memory_for_filters_is_bounded),
		cmocka_unit_test(a_merged_run_has_a_filter),
		cmocka_unit_test(places_in_packs_that_are_gone_are_not_found),
		cmocka_unit_test(what_was_not_committed_is_gone_after_a_crash),
		cmocka_unit_test(chunks_of_others_are_bounded),
		cmocka_unit_test(damage_is_noticed),
		cmocka_unit_test(an_index_of_another_tier_is_not_used),
		cmocka_unit_test(a_folder_that_cannot_be_used_is_an_error),
	};

	log_to_function(note, NULL);
	return cmocka_run_group_tests_name("tier_index", tests, NULL, NULL);
}
