/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"

static char dir[] = "/tmp/ckptfs-test-log-XXXXXX";
static char path[64], moved[64];

static int set_up(void **state _unused_)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/log", dir);
	snprintf(moved, sizeof(moved), "%s/log.1", dir);
	return 0;
}

static int tear_down(void **state _unused_)
{
	unlink(path);
	unlink(moved);
	return rmdir(dir);
}

static int begin(void **state _unused_)
{
	unlink(path);
	unlink(moved);
	log_set_level(LOG_LEVEL_INFO);
	return log_to_file(path);
}

static int end(void **state _unused_)
{
	log_to_stderr();
	return 0;
}

static char text[1 << 20];

/* Everything in the file, less the time of each line, which is checked. */
static const char *logged(const char *file)
{
	FILE *f = fopen(file, "re");
	char line[4096];

	assert_non_null(f);
	text[0] = '\0';
	while (fgets(line, sizeof(line), f)) {
		int year, month, day, hour, minute, second, ms, n = 0;

		assert_int_equal(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &year, &month, &day, &hour, &minute,
					&second, &ms, &n),
				 7);
		assert_int_equal(n, strlen("2026-01-31T12:00:00.123Z "));
		strncat(text, line + n, sizeof(text) - strlen(text) - 1);
	}
	fclose(f);
	return text;
}

static void a_line_has_time_level_and_message(void **state _unused_)
{
	log_error("pack %d: %s", 7, "gone");
	log_warning("w");
	log_notice("n");
	log_info("100%% done");
	assert_string_equal(logged(path), "error pack 7: gone\nwarning w\nnotice n\ninfo 100% done\n");
}

static void levels_above_the_limit_are_left_out(void **state _unused_)
{
	log_debug("not yet");
	assert_false(log_enabled(LOG_LEVEL_DEBUG));
	log_set_level(LOG_LEVEL_DEBUG);
	assert_true(log_enabled(LOG_LEVEL_DEBUG));
	log_debug("now");
	log_set_level(LOG_LEVEL_ERROR);
	log_warning("no more");
	log_error("still");
	assert_string_equal(logged(path), "debug now\nerror still\n");
}

static void an_errno_is_explained_returned_and_left_alone(void **state _unused_)
{
	errno = EAGAIN;
	assert_int_equal(log_errno(-ENOENT, "index %s: cannot open", "a"), -ENOENT);
	assert_int_equal(errno, EAGAIN);
	assert_string_equal(logged(path), "error index a: cannot open: No such file or directory\n");
}

static void control_characters_cannot_forge_a_line(void **state _unused_)
{
	log_info("file a\nb\033[2J\x7f\tgr\xc3\xbc\xc3\x9f \xff \xc2\x9b \\");
	assert_string_equal(logged(path), "info file a\\012b\\033[2J\\177\\011gr\xc3\xbc\xc3\x9f \\377 \\302\\233 \\134\n");
}

static void an_over_long_line_is_cut(void **state _unused_)
{
	char x[5000];
	struct stat st;

	memset(x, 'x', sizeof(x) - 1);
	x[sizeof(x) - 1] = '\0';
	log_errno(-EIO, "%s", x);
	log_info("next");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 2048 + strlen("2026-01-31T12:00:00.123Z info next\n"));
	assert_string_equal(strrchr(logged(path), 'i'), "info next\n");
}

static void reopening_follows_a_rotation(void **state _unused_)
{
	log_info("old");
	assert_int_equal(rename(path, moved), 0);
	log_info("still old");
	log_reopen();
	log_info("new");
	assert_string_equal(logged(moved), "info old\ninfo still old\n");
	assert_string_equal(logged(path), "info new\n");
}

static void reopening_works_after_the_directory_changed(void **state _unused_)
{
	_cleanup_(freep) char *here = getcwd(NULL, 0);

	assert_int_equal(chdir(dir), 0);
	assert_int_equal(log_to_file("log"), 0);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(rename(path, moved), 0);
	log_reopen();
	log_info("new");
	assert_string_equal(logged(path), "info new\n");
	assert_int_equal(chdir(here), 0);
}

static void what_is_there_is_appended_to(void **state _unused_)
{
	log_info("first");
	assert_int_equal(log_to_file(path), 0);
	log_info("second");
	assert_string_equal(logged(path), "info first\ninfo second\n");
}

static void a_file_that_cannot_be_opened_is_logged_where_we_were(void **state _unused_)
{
	char expected[128];

	assert_int_equal(log_to_file(dir), -EISDIR);
	snprintf(expected, sizeof(expected), "error log %s: cannot open: Is a directory\n", dir);
	assert_string_equal(logged(path), expected);
}

static void stderr_takes_the_same_lines(void **state _unused_)
{
	_cleanup_(closep) int saved = dup(STDERR_FILENO);
	int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

	assert_true(saved >= 0 && fd >= 0);
	log_to_stderr();
	dup2(fd, STDERR_FILENO);
	close(fd);
	log_info("to stderr");
	log_reopen(); /* of no meaning here */
	dup2(saved, STDERR_FILENO);
	assert_string_equal(logged(path), "info to stderr\n");
}

static void a_caller_receives_the_command(void **state _unused_)
{
	_cleanup_(closep) int saved = dup(STDERR_FILENO);
	int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
	char said[200] = "";

	assert_true(saved >= 0 && fd >= 0);
	log_to_caller("mount.ckptfs");
	dup2(fd, STDERR_FILENO);
	log_errno(-ENOENT, "store");
	log_warning("log");
	log_info("store: mounted");
	dup2(saved, STDERR_FILENO);
	log_to_stderr();
	assert_true(pread(fd, said, sizeof(said) - 1, 0) > 0);
	close(fd);
	assert_string_equal(said, "mount.ckptfs: store: No such file or directory\nmount.ckptfs: warning: log\n"
				  "mount.ckptfs: store: mounted\n");
}

#define NR_THREADS 4
#define NR_LINES 500

static void keep(void *userdata, enum log_level level, const char *line)
{
	snprintf(userdata, 100, "%d %s", (int)level, line);
}

static void a_function_gets_the_bare_line(void **state _unused_)
{
	char kept[100] = "";

	log_to_function(keep, kept);
	assert_int_equal(log_errno(-ENOENT, "pack %d\n: gone", 7), -ENOENT);
	log_to_stderr();
	assert_string_equal(kept, "0 pack 7\\012: gone: No such file or directory");
}

static void *chatter(void *arg)
{
	for (int i = 0; i < NR_LINES; i++)
		log_info("%s", (const char *)arg);
	return NULL;
}

static size_t count_lines(const char *s, const char *line)
{
	size_t n = 0;

	for (; (s = strstr(s, line)); s += strlen(line))
		n++;
	return n;
}

static void lines_of_threads_do_not_mix_or_vanish_while_reopening(void **state _unused_)
{
	static char words[NR_THREADS][200];
	pthread_t threads[NR_THREADS];
	size_t total = 0;

	for (size_t i = 0; i < NR_THREADS; i++) {
		memset(words[i], (int)('a' + i), sizeof(words[i]) - 1);
		assert_int_equal(pthread_create(&threads[i], NULL, chatter, words[i]), 0);
	}
	for (int i = 0; i < 20; i++)
		log_reopen();
	for (size_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	logged(path);
	for (size_t i = 0; i < NR_THREADS; i++) {
		char line[256];

		snprintf(line, sizeof(line), "info %.199s\n", words[i]);
		assert_int_equal(count_lines(text, line), NR_LINES);
		total += NR_LINES * strlen(line);
	}
	assert_int_equal(strlen(text), total);
}

static void a_flood_is_a_few_lines(void **state _unused_)
{
	static struct log_limit l, other;
	char want[1024] = "";
	uint64_t left = 99;

	for (unsigned i = 0; i < 1000; i++)
		log_limited(&l, LOG_LEVEL_WARNING, "bad %u", i);
	log_limited(&other, LOG_LEVEL_WARNING, "another cause");
	for (unsigned i = 0; i < LOG_LIMIT_LINES; i++)
		sprintf(want + strlen(want), "warning bad %u\n", i);
	strcat(want, "warning another cause\n");
	assert_string_equal(logged(path), want);
	assert_false(log_limit_allows(&l, l.since_ns + UINT64_C(59999999999), &left));
	assert_true(log_limit_allows(&l, l.since_ns + UINT64_C(60000000000), &left)); /* a minute later */
	assert_int_equal(left, 1001 - LOG_LIMIT_LINES);
	assert_true(log_limit_allows(&l, l.since_ns + 1, &left));
	assert_int_equal(left, 0);
}

static void debug_logs_show_all_of_a_flood(void **state _unused_)
{
	static struct log_limit l;

	log_set_level(LOG_LEVEL_DEBUG);
	for (unsigned i = 0; i < 3 * LOG_LIMIT_LINES; i++)
		log_limited(&l, LOG_LEVEL_INFO, "done");
	log_set_level(LOG_LEVEL_INFO);
	logged(path);
	assert_int_equal(count_lines(text, "info done\n"), 3 * LOG_LIMIT_LINES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_line_has_time_level_and_message, begin, end),
		cmocka_unit_test_setup_teardown(levels_above_the_limit_are_left_out, begin, end),
		cmocka_unit_test_setup_teardown(an_errno_is_explained_returned_and_left_alone, begin, end),
		cmocka_unit_test_setup_teardown(control_characters_cannot_forge_a_line, begin, end),
		cmocka_unit_test_setup_teardown(an_over_long_line_is_cut, begin, end),
		cmocka_unit_test_setup_teardown(reopening_follows_a_rotation, begin, end),
		cmocka_unit_test_setup_teardown(reopening_works_after_the_directory_changed, begin, end),
		cmocka_unit_test_setup_teardown(what_is_there_is_appended_to, begin, end),
		cmocka_unit_test_setup_teardown(a_file_that_cannot_be_opened_is_logged_where_we_were, begin, end),
		cmocka_unit_test_setup_teardown(stderr_takes_the_same_lines, begin, end),
		cmocka_unit_test_setup_teardown(a_caller_receives_the_command, begin, end),
		cmocka_unit_test_setup_teardown(a_function_gets_the_bare_line, begin, end),
		cmocka_unit_test_setup_teardown(a_flood_is_a_few_lines, begin, end),
		cmocka_unit_test_setup_teardown(debug_logs_show_all_of_a_flood, begin, end),
		cmocka_unit_test_setup_teardown(lines_of_threads_do_not_mix_or_vanish_while_reopening, begin, end),
	};

	return cmocka_run_group_tests_name("log", tests, set_up, tear_down);
}
