/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: client_api DIR FULL|--outlive
 *
 * What libckptfs promises, on a mount (DIR) and where there is little room (FULL: another one). CKPTFS_TRACKING and
 * CKPTFS_MODE say how writes are noticed and when pages are written, BALLAST what takes the room there is on FULL's
 * disk. A line for each promise; exit 1 at the first that does not hold.
 */
#include "client_api.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE_LEN (PAGE << 33) /* more pages than numbers */

char api_dir[4096];
static int nr_dirs;
static const char *top;

void api_begin(const struct ckptfs_options *options)
{
	snprintf(api_dir, sizeof(api_dir), "%s/api%d", top, nr_dirs++);
	CHECK(ckptfs_init(api_dir, options) == 0);
}

void api_end(void)
{
	CHECK(ckptfs_finish() == 0);
}

void api_again(void)
{
	CHECK(ckptfs_finish() == 0);
	CHECK(ckptfs_init(api_dir, NULL) == 0);
}

struct ckptfs_status api_status(void)
{
	struct ckptfs_status s = { .size = sizeof(s) };

	CHECK(ckptfs_status(&s) == 0);
	return s;
}

struct ckptfs_stats api_stats(uint32_t number)
{
	struct ckptfs_stats s = { .size = sizeof(s) };

	CHECK(ckptfs_stats(number, &s) == 0);
	return s;
}

void api_take(void)
{
	CHECK_DONE(ckptfs_checkpoint());
	CHECK_DONE(ckptfs_wait());
}

/* What comes of a checkpoint: the next call tells, unless the first one has waited for it. */
static int outcome(int (*next)(void))
{
	int r = ckptfs_checkpoint();

	CHECK(r == 0 || api_status().mode == CKPTFS_MODE_SYNC);
	return r == 0 ? next() : r;
}

bool api_all_are(const uint8_t *p, size_t len, int value)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != value)
			return false;
	return true;
}

/* --- memory comes back --- */

static void content_is_as_it_was_at_the_request(void)
{
	size_t len = 4 << 20;
	uint8_t *p;

	api_begin(&(struct ckptfs_options){
		.size = sizeof(struct ckptfs_options), .write_rate = 32 << 20, .mode = CKPTFS_MODE_ADAPTIVE });
	p = ckptfs_malloc("p", len);
	memset(p, 1, len);
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 2, len); /* while it is being written */
	CHECK(ckptfs_wait() == 0);
	CHECK(api_stats(1).cow > 0 && api_stats(1).wait > 0);
	CHECK(api_stats(1).cow + api_stats(1).wait + api_stats(1).avoided + api_stats(1).after == len / PAGE);
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	CHECK(api_all_are(p, len, 1));
	api_end();
}

static void only_what_has_changed_is_written(void)
{
	size_t len = 8 << 20;
	uint8_t *p;

	api_begin(NULL);
	p = ckptfs_malloc("p", len);
	memset(p, 1, len);
	api_take();
	CHECK(api_stats(1).pages == len / PAGE);
	CHECK(api_stats(1).writes < len / PAGE / 4); /* not a request each */
	p[5 * PAGE] = p[6 * PAGE] = p[100 * PAGE + 7] = 9;
	api_take();
	CHECK(api_stats(2).pages == 3);
	CHECK(api_stats(2).written_bytes < 8 * PAGE);
	api_take();
	CHECK(api_stats(3).pages == 0);
	api_again();
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	p = ckptfs_malloc("p", len);
	CHECK(p && p[5 * PAGE] == 9 && p[6 * PAGE] == 9 && p[100 * PAGE + 7] == 9 && p[100 * PAGE + 8] == 1);
	p[0] = 3; /* what has been restored is clean */
	api_take();
	CHECK(api_stats(4).pages == 1);
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	CHECK(api_all_are(p, len, 1));
	api_end();
}

static void several_regions_find_their_content_by_name(void)
{
	static uint8_t mine[3 * PAGE + 77];
	uint8_t *a, *b, small[10] = "123456789", *mine_before = mine + 3;
	size_t len;
	void *p;

	api_begin(NULL);
	a = ckptfs_malloc("a", 3 * PAGE);
	b = ckptfs_malloc("b", 100);
	CHECK(a && b && ckptfs_protect("mine", mine_before, sizeof(mine) - 3) == 0);
	CHECK(ckptfs_protect("small", small, sizeof(small)) == 0);
	memset(a, 'a', 3 * PAGE);
	memset(b, 'b', 100);
	memset(mine_before, 'm', sizeof(mine) - 3);
	api_take();
	memset(mine, 0, sizeof(mine));
	memset(small, 0, sizeof(small));
	api_again();
	CHECK(ckptfs_protect("small", small, sizeof(small)) == 0);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(strcmp((char *)small, "123456789") == 0);
	CHECK(ckptfs_find("b", &p, &len) == 0 && len == 100 && api_all_are(p, 100, 'b'));
	a = ckptfs_malloc("a", 3 * PAGE);
	CHECK(a && api_all_are(a, 3 * PAGE, 'a'));
	CHECK(ckptfs_protect("mine", mine, sizeof(mine) - 3) == 0); /* three bytes from where it was */
	CHECK(api_all_are(mine, sizeof(mine) - 3, 'm'));
	mine[PAGE] = 'x';
	api_take();
	memset(mine, 0, sizeof(mine));
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(mine[PAGE] == 'x' && mine[PAGE + 1] == 'm' && mine[sizeof(mine) - 4] == 'm');
	CHECK(ckptfs_find("none", NULL, NULL) == -ENOENT);
	api_end();
}

static void addresses_are_kept_if_asked_for(void)
{
	uint8_t *p, *there;

	api_begin(NULL);
	p = ckptfs_malloc("p", 10 * PAGE);
	memset(p, 5, 10 * PAGE);
	api_take();
	api_again();
	CHECK(ckptfs_restart(0, CKPTFS_RESTART_ADDRESSES, NULL) == 0);
	CHECK(ckptfs_malloc("p", 10 * PAGE) == p && api_all_are(p, 10 * PAGE, 5));
	api_again();
	there = mmap(p, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(there == p);
	CHECK(ckptfs_restart(0, CKPTFS_RESTART_ADDRESSES, NULL) == -EEXIST);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	p = ckptfs_malloc("p", 10 * PAGE);
	CHECK(p && p != there && api_all_are(p, 10 * PAGE, 5));
	munmap(there, PAGE);
	api_end();
}

static void regions_come_go_and_grow(void)
{
	uint8_t *a, *b, *c;

	api_begin(NULL);
	a = ckptfs_malloc("a", 100 * PAGE);
	b = ckptfs_malloc("b", 100 * PAGE);
	memset(a, 1, 100 * PAGE);
	memset(b, 2, 100 * PAGE);
	CHECK(ckptfs_checkpoint() == 0);
	CHECK(ckptfs_free(a) == 0); /* while it is being written */
	c = ckptfs_malloc("c", 90 * PAGE); /* has the place that `a` had in the file, and is zeros but for this */
	c[17] = 3;
	b = ckptfs_realloc(b, 150 * PAGE);
	CHECK(b && api_all_are(b, 100 * PAGE, 2) && api_all_are(b + 100 * PAGE, 50 * PAGE, 0));
	api_take();
	b = ckptfs_realloc(b, 20 * PAGE + 1);
	CHECK(b && api_all_are(b, 20 * PAGE + 1, 2));
	api_take();
	api_again();
	CHECK(ckptfs_restart(2, 0, NULL) == 0);
	CHECK(ckptfs_find("a", NULL, NULL) == -ENOENT);
	c = ckptfs_malloc("c", 90 * PAGE);
	CHECK(c && c[17] == 3);
	c[17] = 0;
	CHECK(api_all_are(c, 90 * PAGE, 0));
	CHECK(!ckptfs_malloc("b", 100 * PAGE) && errno == ERANGE);
	b = ckptfs_malloc("b", 150 * PAGE);
	CHECK(b && api_all_are(b, 100 * PAGE, 2));
	CHECK(ckptfs_restart(3, 0, NULL) == -ERANGE); /* `b` is shorter there */
	CHECK(api_all_are(b, 100 * PAGE, 2));
	api_again();
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	a = ckptfs_malloc("a", 100 * PAGE);
	CHECK(a && api_all_are(a, 100 * PAGE, 1));
	api_end();
}

static void a_checkpoint_is_an_ordinary_file(void)
{
	char path[5000];
	struct stat st;
	uint8_t *p, bytes[8];
	int fd;

	api_begin(NULL);
	p = ckptfs_malloc("p", 5 * PAGE);
	memset(p, 'z', 5 * PAGE);
	api_take();
	snprintf(path, sizeof(path), "%s/000001", api_dir);
	CHECK(stat(path, &st) == 0 && (size_t)st.st_size > 6 * PAGE);
	fd = open(path, O_RDONLY);
	CHECK(pread(fd, bytes, 8, 0) == 8 && memcmp(bytes, "ckptIMAG", 8) == 0);
	CHECK(pread(fd, bytes, 8, 3 * PAGE) == 8 && memcmp(bytes, "zzzzzzzz", 8) == 0);
	close(fd);
	api_end();
}

static void the_newest_that_is_valid_is_taken(void)
{
	char path[5000];
	uint32_t number = 0;
	uint8_t *p;
	int fd;

	api_begin(NULL);
	p = ckptfs_malloc("p", PAGE);
	for (int i = 1; i <= 3; i++) {
		p[0] = (uint8_t)i;
		api_take();
	}
	snprintf(path, sizeof(path), "%s/000003", api_dir);
	CHECK(chmod(path, 0600) == 0);
	fd = open(path, O_WRONLY);
	CHECK(pwrite(fd, "x", 1, 30) == 1);
	close(fd);
	snprintf(path, sizeof(path), "%s/000007", api_dir);
	close(open(path, O_WRONLY | O_CREAT, 0600));
	CHECK(ckptfs_restart(3, 0, &number) == -EBADMSG && number == 0);
	CHECK(ckptfs_restart(5, 0, &number) == -ENOENT && number == 0);
	api_again();
	CHECK(ckptfs_restart(0, 0, &number) == 0 && number == 2);
	p = ckptfs_malloc("p", PAGE);
	CHECK(p[0] == 2);
	api_take();
	CHECK(api_status().last == 8);
	for (int i = 1; i <= 8; i++) {
		snprintf(path, sizeof(path), "%s/%06d", api_dir, i);
		CHECK(access(path, F_OK) < 0 || (chmod(path, 0600) == 0 && truncate(path, 20) == 0));
	}
	api_again();
	CHECK(ckptfs_restart(0, 0, &number) == -EBADMSG); /* and not as if there were none */
	api_end();
}

static void a_parent_that_is_gone_is_reported_and_repaired(void)
{
	char path[5000];
	uint8_t *p;

	api_begin(NULL);
	p = ckptfs_malloc("p", 50 * PAGE);
	memset(p, 4, 50 * PAGE);
	api_take();
	snprintf(path, sizeof(path), "%s/000001", api_dir);
	CHECK(unlink(path) == 0);
	p[0] = 5;
	CHECK(outcome(ckptfs_checkpoint) == -ESTALE);
	CHECK(api_status().error == -ESTALE && api_status().last == 0);
	api_take();
	CHECK(api_stats(3).pages == 50);
	memset(p, 0, 50 * PAGE);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(p[0] == 5 && api_all_are(p + 1, 50 * PAGE - 1, 4));
	api_end();
}

/* --- what goes wrong --- */

/* It would take minutes for all. */
static void a_region_that_goes_does_not_wait_for_others(void)
{
	const struct ckptfs_options options = { .size = sizeof(options),
						.write_rate = 64 << 10,
						.cow_bytes = CKPTFS_COW_NONE };
	uint8_t *p, *q, *own = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *mode = getenv("CKPTFS_MODE");
	bool waits = mode && strcmp(mode, "sync") == 0;

	api_begin(waits ? NULL : &options);
	p = ckptfs_malloc("p", 16 << 20);
	q = ckptfs_malloc("q", 4 * PAGE);
	CHECK(p && q && ckptfs_protect("own", own, 4 * PAGE) == 0);
	memset(p, 1, 16 << 20);
	memset(q, 2, 4 * PAGE);
	memset(own, 3, 4 * PAGE);
	CHECK(ckptfs_checkpoint() == 0);
	CHECK(ckptfs_free(q) == 0 && ckptfs_unprotect(own) == 0);
	memset(own, 4, 4 * PAGE);
	CHECK(waits || api_status().under_way == 1);
	CHECK(api_status().regions == 1 && ckptfs_find("q", NULL, NULL) == -ENOENT);
	api_again();
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	CHECK(api_all_are(ckptfs_malloc("q", 4 * PAGE), 4 * PAGE, 2) &&
	      api_all_are(ckptfs_malloc("p", 16 << 20), 16 << 20, 1));
	CHECK(ckptfs_protect("own", own, 4 * PAGE) == 0 && api_all_are(own, 4 * PAGE, 3));
	api_end();
	munmap(own, 4 * PAGE);
}

static size_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	size_t size, pages;

	CHECK(f && fscanf(f, "%zu %zu", &size, &pages) == 2);
	fclose(f);
	return pages * PAGE;
}

/* Nothing is read for them, no memory is had for them, and what was there is not there any more. */
static void zeros_come_back_as_nothing(void)
{
	size_t len = (size_t)1 << 30, own_len = 8 << 20;
	uint8_t *p, *own = mmap(NULL, own_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	api_begin(NULL);
	p = ckptfs_malloc("p", len);
	CHECK(p && ckptfs_protect("own", own, own_len) == 0);
	p[len / 2] = 1;
	memset(p + len - 100, 2, 100);
	own[own_len / 2] = 3;
	api_take();
	p[5] = p[len / 2 + 1] = p[len / 2 - (20 << 20)] = 9;
	memset(own, 9, own_len);
	CHECK(ckptfs_restart(1, 0, NULL) == 0);
	for (int again = 0; again < 2; again++) {
		CHECK(p[5] == 0 && p[len / 2 - (20 << 20)] == 0 && p[len / 2] == 1 && p[len / 2 + 1] == 0 &&
		      api_all_are(p + len - 100, 100, 2));
		CHECK(own[own_len / 2] == 3 && api_all_are(own, own_len / 2, 0) &&
		      api_all_are(own + own_len / 2 + 1, own_len / 2 - 1, 0));
		if (again)
			break;
		p[7] = own[7] = 5;
		api_take(); /* of what came back, and of what has changed since */
		api_again();
		before = resident();
		CHECK(ckptfs_restart(2, 0, NULL) == 0 && resident() - before < len / 4);
		p = ckptfs_malloc("p", len);
		CHECK(ckptfs_protect("own", own, own_len) == 0 && p[7] == 5 && own[7] == 5);
		own[7] = 0;
	}
	api_end();
	munmap(own, own_len);
}

static void mistakes_are_reported(void)
{
	struct ckptfs_status s = { .size = 1 };
	uint8_t stack[8 * PAGE], *p;

	CHECK(ckptfs_checkpoint() == -ENODEV && ckptfs_wait() == -ENODEV && ckptfs_finish() == -ENODEV);
	CHECK(!ckptfs_malloc("p", 1) && errno == ENODEV);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = 3 }) == -EINVAL);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .mode = 9 }) == -EINVAL);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .flags = 64 }) == -EINVAL);
	CHECK(ckptfs_init(top, &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options), .member = "a/b" }) ==
	      -EINVAL);
	CHECK(ckptfs_init("/nowhere/at/all", NULL) == -ENOENT && ckptfs_init(NULL, NULL) == -EINVAL);
	CHECK(ckptfs_init("/tmp", &(struct ckptfs_options){ .size = sizeof(struct ckptfs_options),
							    .flags = CKPTFS_REQUIRE_MOUNT }) == -ENOTTY);
	CHECK(setenv("CKPTFS_COW", "many", 1) == 0 && ckptfs_init(top, NULL) == -EINVAL && unsetenv("CKPTFS_COW") == 0);
	api_begin(NULL);
	CHECK(ckptfs_init(api_dir, NULL) == -EBUSY);
	CHECK(ckptfs_status(&s) == -EINVAL);
	p = ckptfs_malloc("p", 10);
	CHECK(p && !ckptfs_malloc("p", 10) && errno == EEXIST);
	CHECK(!ckptfs_malloc("", 10) && errno == EINVAL && !ckptfs_malloc(NULL, 10) && !ckptfs_malloc("q", 0));
	CHECK(ckptfs_protect("q", p, 5) == -EEXIST && ckptfs_protect("p", stack, 5) == -EEXIST);
	CHECK(ckptfs_protect("stack", stack, sizeof(stack)) == -EINVAL && ckptfs_protect("null", NULL, 5) == -EINVAL);
	CHECK(ckptfs_free(p + 1) == -EINVAL && ckptfs_unprotect(p) == -EINVAL && ckptfs_free(NULL) == 0);
	CHECK(ckptfs_restart(0, 0, NULL) == -ENOENT && ckptfs_restart(0, 8, NULL) == -EINVAL);
	CHECK(ckptfs_free(p) == 0);
	p = mmap(NULL, HUGE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(p == MAP_FAILED || (ckptfs_protect("huge", p, HUGE_LEN) == -EFBIG && munmap(p, HUGE_LEN) == 0));
	p = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && mprotect(p + PAGE, PAGE, PROT_READ) == 0 &&
	      ckptfs_protect("constant", p, 3 * PAGE) == -EACCES);
	CHECK(munmap(p + PAGE, PAGE) == 0 && ckptfs_protect("hole", p, 3 * PAGE) == -ENOMEM && munmap(p, 3 * PAGE) == 0);
	api_take(); /* of nothing */
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	api_end();
}

/* Else each would make its checkpoints from the other's. */
static void a_directory_has_one_process(void)
{
	const struct ckptfs_options members[] = { { .size = sizeof(members[0]), .member = "a" },
						  { .size = sizeof(members[0]), .member = "b" } };
	int state, to_child[2], from_child[2];
	char c;
	pid_t pid;

	CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
	api_begin(NULL);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		CHECK(ckptfs_init(api_dir, NULL) == -EBUSY);
		CHECK(ckptfs_init(api_dir, &members[0]) == 0);
		CHECK(write(from_child[1], "x", 1) == 1 && read(to_child[0], &c, 1) == 1);
		CHECK(ckptfs_finish() == 0);
		_exit(0);
	}
	CHECK(read(from_child[0], &c, 1) == 1);
	api_again(); /* a child of ours that still has our descriptors does not count */
	CHECK(ckptfs_finish() == 0);
	CHECK(ckptfs_init(api_dir, &members[0]) == -EBUSY);
	CHECK(ckptfs_init(api_dir, &members[1]) == 0);
	CHECK(write(to_child[1], "x", 1) == 1 && waitpid(pid, &state, 0) == pid && WIFEXITED(state) &&
	      WEXITSTATUS(state) == 0);
	CHECK(ckptfs_finish() == 0);
	CHECK(ckptfs_init(api_dir, &members[0]) == 0);
	api_end();
	for (int i = 0; i < 2; i++) {
		close(to_child[i]);
		close(from_child[i]);
	}
}

static void a_full_disk_is_reported_and_the_program_goes_on(const char *full)
{
	size_t len = 48 << 20;
	uint32_t number;
	uint8_t *p;
	uint64_t x = 88172645463325252u;
	int r;

	snprintf(api_dir, sizeof(api_dir), "%s/full", full);
	CHECK(ckptfs_init(api_dir, NULL) == 0);
	p = ckptfs_malloc("p", len);
	p[0] = 1;
	api_take();
	CHECK(api_status().last == 1);
	for (size_t i = 0; i < len; i += 8) { /* more than there is room for */
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memcpy(p + i, &x, 8);
	}
	r = ckptfs_checkpoint();
	CHECK(r == 0 || api_status().mode == CKPTFS_MODE_SYNC);
	for (size_t i = 0; i < len; i += PAGE)
		p[i]++;
	CHECK((r < 0 ? r : ckptfs_wait()) == -ENOSPC);
	CHECK(ckptfs_wait() == 0); /* told once */
	CHECK(api_status().error == -ENOSPC && api_status().last == 1 && api_stats(2).error == -ENOSPC);
	/* Room at once: a deleted file keeps its blocks while another program drops the kernel's caches. */
	CHECK(truncate(getenv("BALLAST"), 0) == 0 && unlink(getenv("BALLAST")) == 0);
	memset(p + PAGE, 0, len - PAGE);
	p[0] = 3;
	api_take();
	CHECK(api_stats(3).pages == len / PAGE); /* what has failed is still to be written */
	CHECK(ckptfs_restart(0, 0, &number) == 0 && number == 3 && p[0] == 3 && api_all_are(p + PAGE, len - PAGE, 0));
	CHECK(ckptfs_restart(1, 0, NULL) == 0 && p[0] == 1 && api_all_are(p + 1, len - 1, 0));
	api_end();
}

/* The other side of this is client.sh, which reads and writes lines. */
static int outlive(void)
{
	uint8_t *p;
	int r;

	api_begin(NULL);
	p = ckptfs_malloc("p", 30 * PAGE);
	memset(p, 1, 30 * PAGE);
	api_take();
	memset(p, 2, 30 * PAGE);
	printf("kill it\n");
	fflush(stdout);
	CHECK(getchar() == '\n');
	CHECK(ckptfs_checkpoint() == 0);
	memset(p, 3, 30 * PAGE);
	r = ckptfs_wait();
	CHECK((r == -ENOTCONN || r == -ECONNABORTED) && api_status().error == r && api_status().last == 1);
	printf("mount it\n");
	fflush(stdout);
	CHECK(getchar() == '\n');
	p[0] = 4;
	api_take();
	memset(p, 0, 30 * PAGE);
	CHECK(ckptfs_restart(0, 0, NULL) == 0);
	CHECK(p[0] == 4 && api_all_are(p + 1, 30 * PAGE - 1, 3));
	api_end();
	return 0;
}

static void run(const struct api_test *tests)
{
	for (; tests->promise; tests++) {
		tests->run();
		printf("ok %s\n", tests->promise);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	static const struct api_test tests[] = {
		{ "content is as it was at the request", content_is_as_it_was_at_the_request },
		{ "only what has changed is written", only_what_has_changed_is_written },
		{ "several regions find their content by name", several_regions_find_their_content_by_name },
		{ "addresses are kept if asked for", addresses_are_kept_if_asked_for },
		{ "regions come, go and grow", regions_come_go_and_grow },
		{ "a checkpoint is an ordinary file", a_checkpoint_is_an_ordinary_file },
		{ "the newest that is valid is taken", the_newest_that_is_valid_is_taken },
		{ "a parent that is gone is told and mended", a_parent_that_is_gone_is_reported_and_repaired },
		{ "a region that goes does not wait for others", a_region_that_goes_does_not_wait_for_others },
		{ "zeros come back as nothing", zeros_come_back_as_nothing },
		{ "mistakes are told", mistakes_are_reported },
		{ "a directory has one process", a_directory_has_one_process },
		{ NULL, NULL },
	};

	if (argc != 3) {
		fprintf(stderr, "usage: client_api DIR FULL|--outlive\n");
		return 2;
	}
	top = argv[1];
	if (strcmp(argv[2], "--outlive") == 0)
		return outlive();
	run(tests);
	run(api_program_tests);
	run(api_calls_tests);
	run(api_signals_tests);
	a_full_disk_is_reported_and_the_program_goes_on(argv[2]);
	printf("ok a full disk is told and the program goes on\n");
	return 0;
}
