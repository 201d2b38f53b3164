/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Objects in a directory: whole and durable, or not there, wherever a writer ends. */
#include "store/tier/tier_dir.h"

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

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/tier/tier.h"
#include "tests/unit/place.h"

static char dir[64];
static struct tier *t;

static void ignore(void *userdata _unused_, enum log_level level _unused_, const char *line _unused_)
{
}

static int begin(void **state _unused_)
{
	log_to_function(ignore, NULL); /* failures are asked for here */
	snprintf(dir, sizeof(dir), "%s/ckptfs-test-tier-XXXXXX", test_place());
	return !mkdtemp(dir) || tier_dir_open(dir, &(struct tier_dir_conf){ .nr_threads = 1 }, &t) < 0 ? -1 : 0;
}

static int end(void **state _unused_)
{
	char command[100];

	io_set_hook(NULL);
	tier_close(t);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	return system(command);
}

/* --- what is done, in order; and ending it there --- */

static struct {
	char seen[1000];
	unsigned nr, kill_at; /* this event and all later ones fail */
	enum io_op fail_op; /* all of these fail */
	int fail_with;
} hook;

static int before(void *userdata _unused_, const struct io_event *ev)
{
	static const char *const names[] = { [IO_OPEN] = "create",   [IO_READ] = "read",	[IO_WRITE] = "write",
					     [IO_SYNC] = "sync",     [IO_SYNC_DIR] = "syncdir", [IO_RENAME] = "rename",
					     [IO_UNLINK] = "unlink", [IO_MKDIR] = "mkdir",	[IO_LINK] = "link" };
	const char *name = ev->op == IO_RENAME || ev->op == IO_LINK ? ev->new_name : ev->name;

	hook.nr++;
	if (hook.kill_at > 0 && hook.nr >= hook.kill_at)
		return -EIO;
	strcat(hook.seen, names[ev->op]);
	strcat(hook.seen, name && name[0] != '.' ? " " : "");
	strcat(hook.seen, name && name[0] != '.' ? name : "");
	strcat(hook.seen, "; ");
	return hook.fail_with != 0 && ev->op == hook.fail_op ? hook.fail_with : 0;
}

static void hook_install(unsigned kill_at)
{
	static const struct io_hook h = { .before = before };

	memset(&hook, 0, sizeof(hook));
	hook.kill_at = kill_at;
	io_set_hook(&h);
}

static int put(enum tier_op op, const char *name, const char *s)
{
	return tier_call(t, &(struct tier_request){ .op = op, .name = name, .data = s, .len = strlen(s) });
}

static void expect(const char *name, const char *s)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	assert_int_equal(tier_get_all(t, name, 100, &b), 0);
	assert_int_equal(b.len, strlen(s));
	assert_memory_equal(b.data, s, b.len);
}

static void bytes_are_durable_before_the_name_and_that_before_the_answer(void **state _unused_)
{
	hook_install(0);
	assert_int_equal(put(TIER_PUT_NEW, "a/b/o", "hello"), 0);
	assert_string_equal(hook.seen,
			    "mkdir a; mkdir b; create; write; sync; link o; syncdir; syncdir; syncdir; unlink; ");
	hook_install(0);
	assert_int_equal(put(TIER_PUT, "a/b/o", "world"), 0);
	assert_string_equal(hook.seen, "create; write; sync; rename o; syncdir; syncdir; syncdir; unlink; ");
}

/* It may be of a writer that ended before it synced the directory, and the caller is about to rely on it. */
static void an_object_that_is_found_is_durable(void **state _unused_)
{
	assert_int_equal(put(TIER_PUT_NEW, "a/o", "hello"), 0);
	hook_install(0);
	assert_int_equal(put(TIER_PUT_NEW, "a/o", "world"), -EEXIST);
	assert_string_equal(hook.seen, "create; write; sync; link o; syncdir; syncdir; unlink; ");
	hook_install(0);
	hook.fail_op = IO_SYNC_DIR;
	hook.fail_with = -EIO;
	assert_int_equal(put(TIER_PUT_NEW, "a/o", "world"), -EIO);
}

/* --- direct I/O --- */

static struct {
	unsigned nr_direct, nr_cached; /* writes */
	bool refuse;
} direct;

static int before_direct(void *userdata _unused_, const struct io_event *ev)
{
	if (ev->op != IO_WRITE)
		return 0;
	if (!(fcntl(ev->fd, F_GETFL) & O_DIRECT)) {
		direct.nr_cached++;
		return 0;
	}
	direct.nr_direct++;
	return direct.refuse ? -EINVAL : 0;
}

static void put_large(const char *name, const uint8_t *p, size_t len, bool refuse)
{
	static const struct io_hook h = { .before = before_direct };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	memset(&direct, 0, sizeof(direct));
	direct.refuse = refuse;
	io_set_hook(&h);
	assert_int_equal(tier_put_new(t, name, p, len), 0);
	io_set_hook(NULL);
	assert_int_equal(tier_get_all(t, name, len, &b), 0);
	assert_int_equal(b.len, len);
	assert_memory_equal(b.data, p, len);
}

static bool has_direct(void)
{
	char path[80];
	int fd;

	snprintf(path, sizeof(path), "%s/probe", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (fd >= 0)
		close(fd);
	unlink(path);
	return fd >= 0;
}

static void large_objects_bypass_the_page_cache(void **state _unused_)
{
	const unsigned nr = has_direct();
	size_t len = MiB(1) + 100;
	uint8_t *p = aligned_alloc(4096, MiB(2));

	assert_non_null(p);
	for (size_t i = 0; i < MiB(2); i++)
		p[i] = (uint8_t)(i / 100 + i);
	put_large("whole", p, MiB(1), false);
	assert_int_equal(direct.nr_direct, nr);
	assert_int_equal(direct.nr_cached, 1 - nr);
	put_large("with-rest", p, len, false);
	assert_int_equal(direct.nr_direct, nr);
	assert_int_equal(direct.nr_cached, 1);
	put_large("refused", p, len, true);
	assert_int_equal(direct.nr_direct, nr);
	assert_int_equal(direct.nr_cached, 1);
	put_large("unaligned", p + 16, len, false);
	assert_int_equal(direct.nr_direct, 0);
	put_large("small", p, 5000, false);
	assert_int_equal(direct.nr_direct, 0);
	free(p);
}

/* Files below the directory with names that match the pattern. */
static unsigned nr_files(const char *pattern)
{
	char command[200], line[100];
	unsigned nr = 0;
	FILE *f;

	snprintf(command, sizeof(command), "find '%s' -type f -name '%s'", dir, pattern);
	f = popen(command, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		nr++;
	assert_int_equal(pclose(f), 0);
	return nr;
}

static void a_writer_that_ends_anywhere_leaves_all_or_nothing(void **state _unused_)
{
	static const enum tier_op ops[] = { TIER_PUT_NEW, TIER_PUT };
	unsigned nr_there = 0, nr = 0;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		for (unsigned k = 1;; k++) {
			_cleanup_(buf_release) struct buf b = BUF_EMPTY;
			char name[30];
			int r, found;

			snprintf(name, sizeof(name), "p%zu-%u/o", i, k);
			hook_install(k);
			r = put(ops[i], name, "hello");
			io_set_hook(NULL);
			found = tier_get_all(t, name, 100, &b);
			if (found == 0)
				assert_memory_equal(b.data, "hello", 5);
			assert_int_equal(b.len, found == 0 ? 5 : 0);
			if (r == 0)
				assert_int_equal(found, 0);
			nr_there += found == 0;
			nr++;
			buf_clear(&b); /* no temporary is listed */
			assert_int_equal(tier_list_all(t, "", &b), 0);
			for (size_t at = 0; at < b.len; at += strlen((char *)b.data + at) + 1)
				assert_null(strstr((char *)b.data + at, ".new"));
			assert_int_equal(put(TIER_PUT_NEW, name, "again"), found == 0 ? -EEXIST : 0);
			if (hook.nr < k)
				break;
		}
	assert_int_equal(nr, 9 + 9); /* all events, and one run without an end */
	assert_int_equal(nr_there, 4 + 4); /* from the link on */
	assert_int_equal(nr_files(".new-*"), 6 + 3); /* from the write to the unlink, or to the rename */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tier_sweep(t, ""), 0);
	assert_int_equal(nr_files(".new-*"), 0);
	assert_int_equal(nr_files("o"), 9 + 9);
}

static void sweeps_between(unsigned nr)
{
	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(tier_sweep(t, "a/"), 0);
}

static unsigned nr_sweeps;
static enum io_op sweeps_before;

static int sweep_before(void *userdata _unused_, const struct io_event *ev)
{
	if (ev->op == sweeps_before) {
		sweeps_before = IO_OPEN; /* no more */
		sweeps_between(nr_sweeps);
	}
	return 0;
}

/* One sweep does not disturb a put, and two end it: then the object does not exist, and the put can be repeated. */
static void a_put_whose_temporary_was_swept_fails_and_is_repeated(void **state _unused_)
{
	static const struct io_hook h = { .before = sweep_before };
	static const enum io_op links[] = { IO_LINK, IO_RENAME };
	static const enum tier_op ops[] = { TIER_PUT_NEW, TIER_PUT };
	static const char *const names[] = { "a/o", "a/p" };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		io_set_hook(&h);
		nr_sweeps = 2;
		sweeps_before = links[i];
		assert_int_equal(put(ops[i], names[i], "hello"), -EIO);
		assert_int_equal(tier_get_all(t, names[i], 100, &b), -ENOENT);
		nr_sweeps = 1;
		sweeps_before = links[i];
		assert_int_equal(put(ops[i], names[i], "hello"), 0);
		io_set_hook(NULL);
		expect(names[i], "hello");
		assert_int_equal(nr_files(".new-*"), 0);
	}
	sweeps_between(3);
	expect("a/o", "hello");
}

/* What was swept is the second name of an object: its space is free when the object is deleted. */
static void a_sweep_removes_only_temporaries(void **state _unused_)
{
	char command[400];
	struct stat st;

	assert_int_equal(put(TIER_PUT_NEW, "packs/o", "hello"), 0);
	snprintf(command, sizeof(command),
		 "cd '%s' && ln packs/o packs/.new-0123456789abcdef && touch packs/.new-1 packs/.new-0123456789abcdeg x "
		 "packs/.hidden .new-0123456789abcdef && mkdir 'not ours' && touch 'not ours/.new-0123456789abcdef' && "
		 "ln -s ../packs/o packs/.new-fedcba9876543210",
		 dir);
	assert_int_equal(system(command), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(tier_sweep(t, "packs/"), 0);
	assert_int_equal(tier_sweep(t, "absent/"), 0);
	assert_int_equal(nr_files("*"), 1 + 3 + 1 + 1 + 1);
	snprintf(command, sizeof(command), "%s/packs/o", dir);
	assert_int_equal(stat(command, &st), 0);
	assert_int_equal(st.st_nlink, 1);
	expect("packs/o", "hello");
}

static void a_name_is_taken_even_without_hard_links(void **state _unused_)
{
	static const int errors[] = { -EPERM, -EOPNOTSUPP, -ENOSYS };
	char name[10];

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		snprintf(name, sizeof(name), "o%zu", i);
		hook_install(0);
		hook.fail_op = IO_LINK;
		hook.fail_with = errors[i];
		assert_int_equal(put(TIER_PUT_NEW, name, "hello"), 0);
		assert_int_equal(put(TIER_PUT_NEW, name, "world"), -EEXIST);
		assert_non_null(strstr(hook.seen, "rename o"));
		expect(name, "hello");
	}
}

static int fail_both(void *userdata _unused_, const struct io_event *ev)
{
	return ev->op == IO_LINK ? -EOPNOTSUPP : ev->op == IO_RENAME ? -EINVAL : 0;
}

static void without_an_atomic_way_nothing_is_put(void **state _unused_)
{
	static const struct io_hook h = { .before = fail_both };
	char c;

	io_set_hook(&h);
	assert_int_equal(put(TIER_PUT_NEW, "o", "hello"), -EINVAL);
	assert_int_equal(tier_get(t, "o", 0, &c, 1), -ENOENT);
}

/* The answer of the first attempt was lost, and the client repeats the request. */
static int link_twice(void *userdata _unused_, const struct io_event *ev)
{
	if (ev->op == IO_LINK) {
		assert_int_equal(linkat(ev->fd, ev->name, ev->new_fd, ev->new_name, 0), 0);
		return -EEXIST;
	}
	return 0;
}

static void a_repeated_link_is_recognised(void **state _unused_)
{
	static const struct io_hook h = { .before = link_twice };

	io_set_hook(&h);
	assert_int_equal(put(TIER_PUT_NEW, "o", "hello"), 0);
	io_set_hook(NULL);
	expect("o", "hello");
}

static void files_of_others_are_no_objects(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	char command[300], socket_path[100], c;

	snprintf(command, sizeof(command),
		 "cd %s && mkdir lost+found packs && touch packs/x~ .hidden packs/.new-1 && ln -s /etc/passwd packs/link && "
		 "ln -s /etc etc && mkfifo packs/pipe",
		 dir);
	assert_int_equal(system(command), 0);
	snprintf(socket_path, sizeof(socket_path), "%s/packs/socket", dir);
	assert_int_equal(mknod(socket_path, S_IFSOCK | 0600, 0), 0);
	assert_int_equal(tier_list_all(t, "", &b), 0);
	assert_int_equal(b.len, 0);
	assert_int_equal(tier_get(t, "packs/link", 0, &c, 1), -ENOENT);
	assert_int_equal(tier_get(t, "etc/passwd", 0, &c, 1), -ENOENT);
	assert_int_equal(tier_get(t, "packs", 0, &c, 1), -ENOENT);
	assert_int_equal(tier_get(t, "packs/pipe", 0, &c, 1), -ENOENT);
	assert_int_equal(tier_get(t, "packs/socket", 0, &c, 1), -ENOENT);
}

/* Whatever the umask: checkpoints may be, and the key of the fingerprints is among them. */
static void objects_are_private(void **state _unused_)
{
	mode_t mask = umask(0);
	struct stat st;
	char path[100];

	assert_int_equal(put(TIER_PUT_NEW, "a/o", "hello"), 0);
	assert_int_equal(put(TIER_PUT, "a/o", "world"), 0);
	umask(mask);
	snprintf(path, sizeof(path), "%s/a", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFDIR | 0700);
	snprintf(path, sizeof(path), "%s/a/o", dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0600);
}

static void a_directory_that_is_not_there_is_not_made(void **state _unused_)
{
	struct tier *none = NULL;
	char path[80];

	snprintf(path, sizeof(path), "%s/none", dir);
	assert_int_equal(tier_dir_open(path, &(struct tier_dir_conf){ 0 }, &none), -ENOENT);
	assert_null(none);
	assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(bytes_are_durable_before_the_name_and_that_before_the_answer),
		TEST(an_object_that_is_found_is_durable),
		TEST(large_objects_bypass_the_page_cache),
		TEST(a_writer_that_ends_anywhere_leaves_all_or_nothing),
		TEST(a_put_whose_temporary_was_swept_fails_and_is_repeated),
		TEST(a_sweep_removes_only_temporaries),
		TEST(a_name_is_taken_even_without_hard_links),
		TEST(without_an_atomic_way_nothing_is_put),
		TEST(a_repeated_link_is_recognised),
		TEST(files_of_others_are_no_objects),
		TEST(objects_are_private),
		TEST(a_directory_that_is_not_there_is_not_made),
	};

	return cmocka_run_group_tests_name("tier_dir", tests, NULL, NULL);
}
