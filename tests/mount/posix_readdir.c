/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Listing directories: complete and without repetition, while others change them. */
#include "posix.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>

/* POSIX_MANY: fewer, where the daemon runs slowly under a sanitizer. */
static int many(void)
{
	const char *s = getenv("POSIX_MANY");

	return s ? atoi(s) : 100000;
}

/* Symlinks: of all objects they take the fewest calls to make. */
static void make_many(int dir, int n)
{
	char name[32];
	int i;

	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "entry-%06d", i);
		OK(symlinkat("x", dir, name));
	}
}

/*
 * Read all of d from where it stands; each entry-N at most once, and all n of them. Returns the number of others. Rests
 * now and then, so that others get something done meanwhile.
 */
static int expect_all(DIR *d, int n, int line)
{
	uint8_t *seen = POINTER(calloc(n, 1));
	struct dirent *e;
	int i, others = 0, k = 0;

	while (errno = 0, e = readdir(d)) {
		if (++k % 1000 == 0)
			nap(5);
		if (sscanf(e->d_name, "entry-%d", &i) != 1) {
			others++;
			continue;
		}
		if (i < 0 || i >= n || seen[i]++)
			check_fail(line, "%s is listed twice", e->d_name);
	}
	EQUAL(errno, 0);
	for (i = 0; i < n; i++)
		if (!seen[i])
			check_fail(line, "entry-%06d is not listed", i);
	free(seen);
	return others;
}

static void empty(const char *path)
{
	DIR *d = POINTER(opendir(path));
	struct dirent *e;

	while ((e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			OK(unlinkat(dirfd(d), e->d_name, 0));
	closedir(d);
	OK(rmdir(path)); /* removing while listing has left nothing out */
}

CHECK(readdir_lists_dots_types_and_inodes)
{
	static const struct {
		const char *name;
		unsigned type;
	} want[] = { { ".", DT_DIR },	{ "..", DT_DIR },   { "file", DT_REG }, { "dir", DT_DIR },
		     { "link", DT_LNK }, { "fifo", DT_FIFO }, { "hard", DT_REG } };
	struct dirent *e;
	unsigned i, n = 0;
	DIR *d;

	put_file("file", "x");
	OK(mkdir("dir", 0755));
	OK(symlink("x", "link"));
	OK(mkfifo("fifo", 0644));
	OK(link("file", "hard"));
	d = POINTER(opendir("."));
	while ((e = readdir(d))) {
		for (i = 0; i < sizeof(want) / sizeof(want[0]); i++)
			if (strcmp(want[i].name, e->d_name) == 0)
				break;
		TRUE(i < sizeof(want) / sizeof(want[0]));
		TRUE(e->d_type == want[i].type || e->d_type == DT_UNKNOWN);
		EQUAL(e->d_ino, lstat_of(e->d_name).st_ino);
		n++;
	}
	EQUAL(n, sizeof(want) / sizeof(want[0]));
}

CHECK(readdir_of_100000_entries_under_changes)
{
	char name[32];
	int dir, k, n = many();
	pid_t pid;
	DIR *d;

	OK(mkdir("many", 0755));
	dir = OK(open("many", O_RDONLY | O_DIRECTORY));
	make_many(dir, n);
	pid = OK(fork());
	if (pid == 0) { /* until it is killed: others come and go, everywhere in the order of names */
		for (k = 0;; k++) {
			snprintf(name, sizeof(name), "%c-%d", "adefz"[k % 5], k % 997);
			OK(close(OK(openat(dir, name, O_CREAT | O_WRONLY, 0644))));
			snprintf(name, sizeof(name), "%c-%d", "adefz"[(k + 500) % 5], (k + 500) % 997);
			if (unlinkat(dir, name, 0) < 0)
				EQUAL(errno, ENOENT);
		}
	}
	for (k = 0; k < 2; k++) {
		d = POINTER(fdopendir(OK(open("many", O_RDONLY | O_DIRECTORY))));
		expect_all(d, n, __LINE__);
		rewinddir(d);
		closedir(d);
	}
	kill(pid, SIGKILL);
	OK(waitpid(pid, NULL, 0));
	snprintf(name, sizeof(name), "../left-%d", getpid());
	OK(rename("many", name)); /* the whole mount is thrown away sooner than this is removed */
}

CHECK(readdir_while_unlinking_leaves_nothing_out)
{
	OK(mkdir("d", 0755));
	make_many(OK(open("d", O_RDONLY)), 5000);
	empty("d");
}

CHECK(telldir_and_seekdir_come_back)
{
	enum { N = 3000, MARKS = 50 };
	struct {
		long pos;
		char next[256];
	} mark[MARKS];
	struct dirent *e;
	int i, n = 0;
	DIR *d;

	OK(mkdir("d", 0755));
	make_many(OK(open("d", O_RDONLY)), N);
	d = POINTER(opendir("d"));
	for (i = 0; i < N; i++) {
		long pos = telldir(d);

		e = POINTER(readdir(d));
		if (i % (N / MARKS) == 0) {
			mark[n].pos = pos;
			snprintf(mark[n++].next, sizeof(mark[0].next), "%s", e->d_name);
		}
	}
	for (i = n - 1; i >= 0; i--) {
		seekdir(d, mark[i].pos);
		e = POINTER(readdir(d));
		if (strcmp(e->d_name, mark[i].next) != 0)
			check_fail(__LINE__, "position %d gives %s, expected %s", i, e->d_name, mark[i].next);
	}
	OK(unlink("d/entry-000007")); /* positions stay good while others go */
	for (i = 0; i < n; i++) {
		if (strcmp(mark[i].next, "entry-000007") == 0)
			continue;
		seekdir(d, mark[i].pos);
		e = POINTER(readdir(d));
		TRUE(strcmp(e->d_name, mark[i].next) == 0);
	}
	rewinddir(d);
	OK(close(OK(open("d/entry-000007", O_CREAT | O_WRONLY, 0644))));
	rewinddir(d);
	EQUAL(expect_all(d, N, __LINE__), 2);
}

CHECK(readdir_sees_own_changes_after_rewind)
{
	DIR *d;

	OK(mkdir("d", 0755));
	d = POINTER(opendir("d"));
	EQUAL(expect_all(d, 0, __LINE__), 2);
	put_file("d/a", "x");
	rewinddir(d);
	EQUAL(expect_all(d, 0, __LINE__), 3);
	OK(rename("d/a", "d/b"));
	rewinddir(d);
	EQUAL(expect_all(d, 0, __LINE__), 3);
	OK(unlink("d/b"));
	rewinddir(d);
	EQUAL(expect_all(d, 0, __LINE__), 2);
}
