/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Joint commits: what is left when a crash or a failure takes a part of one. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/check/check.h"
#include "store/engine_state.h"
#include "store/journal/journal.h"
#include "store/log/commit.h"
#include "store/log/view.h"
#include "tests/unit/store/rig.h"

#define LEN KiB(64)
#define STRIDE ((off_t)257 * 4096)

/* --- losses --- */

enum loss { NOTHING, TABLE, FIRST_BLOCK, LAST_BLOCK, END_OF_FILE, NR_LOSSES };

/* Take a part of the newest frame, as if its write had not reached the disk. */
static void lose(struct rig *rig, enum loss what)
{
	static const uint8_t zeros[4096];
	char path[RIG_PATH_MAX];
	struct stat st;
	off_t table;
	int fd;

	rig_path_of(rig, "packs/*.pack", path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	table = 4096 + (st.st_size - 4096) / STRIDE * STRIDE;
	if (what == TABLE)
		assert_int_equal(pwrite(fd, zeros, sizeof(zeros), table), sizeof(zeros));
	if (what == FIRST_BLOCK)
		assert_int_equal(pwrite(fd, zeros, sizeof(zeros), table + 4096), sizeof(zeros));
	if (what == LAST_BLOCK)
		assert_int_equal(pwrite(fd, zeros, sizeof(zeros), st.st_size - 4096), sizeof(zeros));
	if (what == END_OF_FILE)
		assert_int_equal(ftruncate(fd, table), 0);
	close(fd);
}

/* A file in a commit of its own, and a name. */
static void commit_file(struct rig *rig, const char *name, uint64_t ino)
{
	rig_write(rig, ino, LEN, ino);
	rig_name(rig, name, ino);
	assert_int_equal(engine_sync(rig->e), 0);
}

/* The last of three commits is a joint one, and a crash takes a part of its frame: *ret_number is its number. */
static void crash_in_the_last(struct rig *rig, enum loss what, uint64_t *ret_number)
{
	commit_file(rig, "first", 101); /* creates the pack */
	commit_file(rig, "before", 102);
	commit_file(rig, "last", 103);
	assert_true(journal_last_is_joint(rig->e->journal));
	*ret_number = journal_last(rig->e->journal);
	rig_copy_as_it_is(rig);
	rig_close_to_copy(rig);
	lose(rig, what);
}

static void check_what_is_left(struct rig *rig, bool has_last)
{
	assert_int_equal(rig_find(rig, "first"), 101);
	rig_check(rig, 101, LEN, 101);
	assert_int_equal(rig_find(rig, "before"), 102);
	rig_check(rig, 102, LEN, 102);
	assert_int_equal(rig_find(rig, "last"), has_last ? 103 : 0);
	if (has_last)
		rig_check(rig, 103, LEN, 103);
	else
		rig_check_absent(rig, 103);
}

static void a_commit_without_all_of_its_frames_is_not_there(void **state)
{
	for (enum loss what = NOTHING; what < NR_LOSSES; what++) {
		uint64_t number;

		crash_in_the_last(*state, what, &number);
		rig_open(*state);
		check_what_is_left(*state, what == NOTHING);
		assert_int_equal(journal_last(((struct rig *)*state)->e->journal), what == NOTHING ? number : number - 1);
		rig_teardown(state);
		rig_setup(state);
	}
}

/* Its number and its place in the packs are used again, and nothing of it comes back. */
static void after_a_commit_that_was_dropped_others_survive(void **state)
{
	for (enum loss what = TABLE; what < NR_LOSSES; what++) {
		uint64_t number;
		struct rig *rig = *state;

		crash_in_the_last(rig, what, &number);
		rig_open(rig);
		rig_crash(rig); /* again, with nothing written */
		check_what_is_left(rig, false);
		commit_file(rig, "next", 104);
		assert_int_equal(journal_last(rig->e->journal), number);
		rig_crash(rig);
		check_what_is_left(rig, false);
		assert_int_equal(rig_find(rig, "next"), 104);
		rig_check(rig, 104, LEN, 104);
		rig_fsck(rig);
		rig_teardown(state);
		rig_setup(state);
	}
}

static void fsck_takes_such_a_commit_for_missing(void **state)
{
	for (enum loss what = NOTHING; what < NR_LOSSES; what++) {
		struct check_conf conf = { .cache = MiB(64), .read_data = true };
		struct rig *rig = *state;
		struct check_result res;
		uint64_t number;

		crash_in_the_last(rig, what, &number);
		assert_int_equal(check_store(rig->path, &conf, &res), 0);
		assert_int_equal(res.commit, what == NOTHING ? number : number - 1);
		assert_int_equal(res.nr_left + res.nr_repaired, 0);
		rig_open(rig); /* it has changed nothing */
		check_what_is_left(rig, what == NOTHING);
		rig_teardown(state);
		rig_setup(state);
	}
}

static void a_rebuilt_index_leaves_it_out(void **state)
{
	struct rig *rig = *state;
	uint64_t number;

	crash_in_the_last(rig, LAST_BLOCK, &number);
	rig_remove_index(rig);
	assert_int_equal(engine_rebuild(rig->path, &rig->conf), 0);
	rig_open(rig);
	check_what_is_left(rig, false);
}

/* The view proves that it was acknowledged: the frame is damaged since. */
static void a_commit_in_the_view_is_not_dropped(void **state)
{
	struct rig *rig = *state;
	uint8_t bytes[4096];
	struct content *c;

	commit_file(rig, "first", 101);
	commit_file(rig, "last", 103);
	assert_true(journal_last_is_joint(rig->e->journal));
	assert_int_equal(view_flush(rig->e, false), 0);
	rig_copy_as_it_is(rig);
	rig_close_to_copy(rig);
	lose(rig, LAST_BLOCK);
	rig_open(rig);
	assert_int_equal(rig_find(rig, "last"), 103);
	c = rig_content(rig, 103);
	assert_int_equal(content_read(c, bytes, sizeof(bytes), LEN - sizeof(bytes)), -EIO);
	content_close(c);
}

/* A group behind it proves as much. */
static void an_idle_store_confirms_its_last_commit(void **state)
{
	struct rig *rig = *state;
	uint64_t number;

	commit_file(rig, "first", 101);
	commit_file(rig, "last", 103);
	number = journal_last(rig->e->journal);
	commit_confirm(rig->e);
	assert_false(journal_last_is_joint(rig->e->journal));
	assert_int_equal(journal_last(rig->e->journal), number + 1);
	commit_confirm(rig->e); /* once */
	assert_int_equal(journal_last(rig->e->journal), number + 1);
	rig_copy_as_it_is(rig);
	rig_close_to_copy(rig);
	lose(rig, LAST_BLOCK);
	rig_open(rig);
	assert_int_equal(rig_find(rig, "last"), 103);
}

/* --- order, and failures --- */

/* Events of packs and of the journal, in the order in which they begin. */
struct watch {
	pthread_mutex_t lock;
	char events[64]; /* of "wWsS": write, sync; large letters are the journal's */
	size_t nr;
	char fails; /* the next event of this kind does, once it is not 0 */
};

static char kind_of(const struct io_event *ev)
{
	char link[64], path[4096];
	ssize_t n;

	if (ev->op != IO_WRITE && ev->op != IO_SYNC)
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", ev->fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n < 0)
		return 0;
	path[n] = 0;
	if (strstr(path, "/packs/"))
		return ev->op == IO_WRITE ? 'w' : 's';
	if (strstr(path, "/journal/") && strstr(path, ".log"))
		return ev->op == IO_WRITE ? 'W' : 'S';
	return 0;
}

static int watch_before(void *userdata, const struct io_event *ev)
{
	struct watch *w = userdata;
	char kind = kind_of(ev);
	int r = 0;

	if (!kind)
		return 0;
	pthread_mutex_lock(&w->lock);
	if (w->nr < sizeof(w->events) - 1)
		w->events[w->nr++] = kind;
	if (w->fails == kind) {
		w->fails = 0;
		r = -EIO;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static void open_watched(struct rig *rig, struct watch *w)
{
	const struct io_hook hook = { .before = watch_before, .userdata = w };

	rig_close(rig);
	io_set_hook(&hook);
	rig_open(rig);
	commit_file(rig, "first", 101);
	commit_file(rig, "before", 102);
	pthread_mutex_lock(&w->lock);
	memset(w->events, 0, sizeof(w->events));
	w->nr = 0;
	pthread_mutex_unlock(&w->lock);
}

static void close_watched(struct rig *rig)
{
	rig_close(rig);
	io_set_hook(NULL);
	rig_open(rig);
}

static void the_group_is_written_before_the_packs_are_synced(void **state)
{
	struct watch w = { .lock = PTHREAD_MUTEX_INITIALIZER };
	struct rig *rig = *state;

	open_watched(rig, &w);
	commit_file(rig, "last", 103);
	if (strcmp(w.events, "wWsS") != 0)
		assert_string_equal(w.events, "wWSs");
	close_watched(rig);
}

/* The caller gets the error of the packs' sync, unless a worker began that: then the leader repeats it. */
static void a_sync_that_fails_is_made_good(void **state)
{
	static const char syncs[] = { 's', 'S' };

	for (size_t i = 0; i < sizeof(syncs); i++) {
		struct watch w = { .lock = PTHREAD_MUTEX_INITIALIZER };
		struct rig *rig = *state;
		int r;

		open_watched(rig, &w);
		rig_write(rig, 103, LEN, 103);
		rig_name(rig, "last", 103);
		w.fails = syncs[i];
		r = engine_sync(rig->e);
		assert_int_equal(w.fails, 0);
		assert_true(r == 0 || (r == -EIO && syncs[i] == 's'));
		assert_int_equal(engine_sync(rig->e), 0);
		rig_crash(rig);
		check_what_is_left(rig, true);
		commit_file(rig, "next", 104);
		rig_crash(rig);
		check_what_is_left(rig, true);
		rig_check(rig, 104, LEN, 104);
		close_watched(rig);
		rig_fsck(rig);
		rig_teardown(state);
		rig_setup(state);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		rig_test(a_commit_without_all_of_its_frames_is_not_there),
		rig_test(after_a_commit_that_was_dropped_others_survive),
		rig_test(fsck_takes_such_a_commit_for_missing),
		rig_test(a_rebuilt_index_leaves_it_out),
		rig_test(a_commit_in_the_view_is_not_dropped),
		rig_test(an_idle_store_confirms_its_last_commit),
		rig_test(the_group_is_written_before_the_packs_are_synced),
		rig_test(a_sync_that_fails_is_made_good),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
