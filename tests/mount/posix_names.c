/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Names: directories, hard links, symlinks, special files, rename, unlinked open files, limits. */
#include "posix.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

static unsigned nlink_of(const char *path)
{
	return lstat_of(path).st_nlink;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static int rename2(const char *from, const char *to, unsigned flags)
{
	return renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

CHECK(mkdir_makes_a_directory_with_two_links)
{
	OK(mkdir("d", 0750));
	EQUAL(lstat_of("d").st_mode, S_IFDIR | 0750);
	EQUAL(nlink_of("d"), 2);
	FAILS(EEXIST, mkdir("d", 0755));
	OK(mkdir("d/e", 0755));
	EQUAL(nlink_of("d"), 3);
	EQUAL(lstat_of("d/e/..").st_ino, lstat_of("d").st_ino);
	FAILS(ENOTEMPTY, rmdir("d"));
	OK(rmdir("d/e"));
	EQUAL(nlink_of("d"), 2);
	OK(rmdir("d"));
	FAILS(ENOENT, rmdir("d"));
}

CHECK(mkdir_errors)
{
	put_file("f", "x");
	FAILS(ENOENT, mkdir("no/d", 0755));
	FAILS(ENOTDIR, mkdir("f/d", 0755));
	FAILS(EEXIST, mkdir("f", 0755));
	FAILS(ENOTDIR, rmdir("f"));
	FAILS(EISDIR, unlink("."));
	OK(mkdir("d", 0755));
	FAILS(EISDIR, unlink("d"));
	FAILS(EINVAL, rmdir("d/."));
	FAILS(ENOTEMPTY, rmdir("d/.."));
}

CHECK(directory_opened_for_writing_is_eisdir)
{
	int fd;

	OK(mkdir("d", 0755));
	FAILS(EISDIR, open("d", O_RDWR));
	FAILS(EISDIR, open("d", O_WRONLY));
	FAILS(EISDIR, open("d", O_RDONLY | O_CREAT, 0644));
	FAILS(EISDIR, truncate("d", 0));
	fd = OK(open("d", O_RDONLY | O_DIRECTORY));
	FAILS(EISDIR, read(fd, &(char){ 0 }, 1));
	put_file("f", "x");
	FAILS(ENOTDIR, open("f", O_RDONLY | O_DIRECTORY));
	FAILS(ENOTDIR, open("f/x", O_RDONLY));
}

CHECK(removed_directory_stays_usable_but_empty)
{
	int fd;

	OK(mkdir("d", 0755));
	fd = OK(open("d", O_RDONLY | O_DIRECTORY));
	OK(rmdir("d"));
	FAILS(ENOENT, openat(fd, "f", O_RDWR | O_CREAT, 0644));
	FAILS(ENOENT, mkdirat(fd, "e", 0755));
	OK(close(fd));
}

CHECK(exclusive_create_fails_if_there)
{
	int fd = OK(open("f", O_RDWR | O_CREAT | O_EXCL, 0600));

	OK(close(fd));
	FAILS(EEXIST, open("f", O_RDWR | O_CREAT | O_EXCL, 0600));
	OK(symlink("nowhere", "s"));
	FAILS(EEXIST, open("s", O_RDWR | O_CREAT | O_EXCL, 0600));
}

CHECK(exclusive_create_has_one_winner_of_8_processes)
{
	pid_t pid[8];
	int i, p[2], n = 0;
	char c;

	OK(pipe(p));
	for (i = 0; i < 8; i++) {
		pid[i] = check_fork();
		if (pid[i] == 0) {
			char name[16];
			int k;

			for (k = 0; k < 100; k++) {
				snprintf(name, sizeof(name), "f%d", k);
				if (open(name, O_RDWR | O_CREAT | O_EXCL, 0600) >= 0)
					EQUAL(write(p[1], "x", 1), 1);
				else
					EQUAL(errno, EEXIST);
			}
			_exit(0);
		}
	}
	for (i = 0; i < 8; i++)
		check_join(pid[i]);
	OK(close(p[1]));
	while (read(p[0], &c, 1) > 0)
		n++;
	EQUAL(n, 100);
}

CHECK(hard_links_share_everything)
{
	int fd = make_file("a", "hello", 5);

	OK(link("a", "b"));
	EQUAL(lstat_of("a").st_ino, lstat_of("b").st_ino);
	EQUAL(nlink_of("a"), 2);
	OK(chmod("b", 0600));
	EQUAL(lstat_of("a").st_mode & 07777, 0600);
	EQUAL(pwrite(fd, "J", 1, 0), 1);
	OK(close(fd));
	OK(unlink("a"));
	EQUAL(nlink_of("b"), 1);
	fd = OK(open("b", O_RDONLY));
	expect_content(fd, "Jello", 5);
}

CHECK(link_errors)
{
	put_file("a", "x");
	put_file("b", "x");
	OK(mkdir("d", 0755));
	FAILS(EEXIST, link("a", "b"));
	FAILS(EPERM, link("d", "e"));
	FAILS(ENOENT, link("no", "c"));
	FAILS(ENOENT, link("a", "no/c"));
	FAILS(ENOTDIR, link("a", "b/c"));
}

CHECK(thousand_hard_links)
{
	char name[32];
	int i;

	put_file("f", "x");
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		OK(link("f", name));
	}
	EQUAL(nlink_of("f"), 1001);
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "l%d", i);
		OK(unlink(name));
	}
	EQUAL(nlink_of("f"), 1);
}

CHECK(hard_link_to_symlink_links_the_symlink)
{
	OK(symlink("target", "s"));
	OK(linkat(AT_FDCWD, "s", AT_FDCWD, "t", 0));
	EQUAL(lstat_of("s").st_ino, lstat_of("t").st_ino);
	EQUAL(nlink_of("s"), 2);
}

CHECK(symlinks_hold_any_text)
{
	char target[4096], got[4097];
	size_t lens[] = { 1, 59, 60, 255, 1000, 4095 };
	unsigned i;

	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		memset(target, 'a' + i, lens[i]);
		target[lens[i]] = 0;
		OK(symlink(target, "s"));
		EQUAL(lstat_of("s").st_size, lens[i]);
		EQUAL(lstat_of("s").st_mode, S_IFLNK | 0777);
		EQUAL(readlink("s", got, sizeof(got)), lens[i]);
		TRUE(memcmp(got, target, lens[i]) == 0);
		OK(unlink("s"));
	}
	FAILS(ENOENT, symlink("", "s"));
	OK(symlink("x", "s"));
	FAILS(EEXIST, symlink("y", "s"));
	put_file("f", "x");
	FAILS(EINVAL, readlink("f", got, sizeof(got)));
}

CHECK(symlinks_are_followed_and_loops_found)
{
	int fd;

	OK(mkdir("d", 0755));
	put_file("d/f", "x");
	OK(symlink("d", "s"));
	EQUAL(lstat_of("s/f").st_ino, lstat_of("d/f").st_ino);
	OK(symlink("b", "a"));
	OK(symlink("a", "b"));
	FAILS(ELOOP, open("a", O_RDONLY));
	FAILS(ELOOP, open("s/../a/x", O_RDONLY));
	FAILS(ELOOP, open("s", O_RDONLY | O_NOFOLLOW));
	OK(symlink("new", "dangling"));
	fd = OK(open("dangling", O_RDWR | O_CREAT, 0644));
	OK(close(fd));
	TRUE(exists("new"));
}

CHECK(fifo_carries_bytes)
{
	char got[8];
	pid_t pid;
	int fd;

	OK(mkfifo("p", 0640));
	EQUAL(lstat_of("p").st_mode, S_IFIFO | 0640);
	pid = check_fork();
	if (pid == 0) {
		fd = OK(open("p", O_WRONLY));
		EQUAL(write(fd, "hello", 5), 5);
		_exit(0);
	}
	fd = OK(open("p", O_RDONLY));
	EQUAL(read(fd, got, 5), 5);
	TRUE(memcmp(got, "hello", 5) == 0);
	check_join(pid);
}

CHECK(unix_socket_connects_by_name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "sock" };
	int s = OK(socket(AF_UNIX, SOCK_STREAM, 0)), c, t;

	OK(bind(s, (struct sockaddr *)&a, sizeof(a)));
	OK(listen(s, 1));
	EQUAL(lstat_of("sock").st_mode & S_IFMT, S_IFSOCK);
	c = OK(socket(AF_UNIX, SOCK_STREAM, 0));
	OK(connect(c, (struct sockaddr *)&a, sizeof(a)));
	t = OK(accept(s, NULL, NULL));
	EQUAL(write(c, "x", 1), 1);
	EQUAL(read(t, &(char){ 0 }, 1), 1);
	FAILS(EADDRINUSE, bind(OK(socket(AF_UNIX, SOCK_STREAM, 0)), (struct sockaddr *)&a, sizeof(a)));
	OK(unlink("sock"));
}

CHECK(device_nodes_keep_their_numbers)
{
	struct stat st;

	if (mknod("c", S_IFCHR | 0600, makedev(1, 3)) < 0 && errno == EPERM)
		check_skip("may not make device nodes");
	OK(mknod("b", S_IFBLK | 0640, makedev(259, 70000)));
	st = lstat_of("c");
	EQUAL(st.st_mode, S_IFCHR | 0600);
	EQUAL(st.st_rdev, makedev(1, 3));
	st = lstat_of("b");
	EQUAL(st.st_mode, S_IFBLK | 0640);
	EQUAL(st.st_rdev, makedev(259, 70000));
	AS(USER, USER) {
		FAILS(EACCES, mknod("u", S_IFCHR | 0600, makedev(1, 3)));
	}
	OK(mkdir("w", 0777));
	OK(chmod("w", 0777));
	AS(USER, USER) {
		FAILS(EPERM, mknod("w/u", S_IFCHR | 0600, makedev(1, 3)));
	}
}

CHECK(mknod_makes_regular_files)
{
	OK(mknod("f", S_IFREG | 0644, 0));
	EQUAL(lstat_of("f").st_mode, S_IFREG | 0644);
	EQUAL(lstat_of("f").st_size, 0);
	FAILS(EEXIST, mknod("f", S_IFREG | 0644, 0));
}

CHECK(rename_replaces_atomically)
{
	ino_t ino;

	put_file("a", "new");
	put_file("b", "old");
	OK(link("b", "keep"));
	ino = lstat_of("a").st_ino;
	OK(rename("a", "b"));
	TRUE(!exists("a"));
	EQUAL(lstat_of("b").st_ino, ino);
	EQUAL(nlink_of("keep"), 1);
	expect_content(OK(open("b", O_RDONLY)), "new", 3);
	expect_content(OK(open("keep", O_RDONLY)), "old", 3);
}

CHECK(rename_target_never_missing_to_a_reader)
{
	pid_t pid;
	int i;

	put_file("target", "0");
	pid = check_fork();
	if (pid == 0) {
		for (i = 0; i < 300; i++) {
			put_file("tmp", "1");
			OK(rename("tmp", "target"));
		}
		_exit(0);
	}
	for (i = 0; i < 3000; i++) {
		int fd = OK(open("target", O_RDONLY));
		char c;

		EQUAL(read(fd, &c, 1), 1);
		OK(close(fd));
	}
	check_join(pid);
}

CHECK(rename_of_links_of_one_file_does_nothing)
{
	put_file("a", "x");
	OK(link("a", "b"));
	OK(rename("a", "b"));
	TRUE(exists("a") && exists("b"));
	EQUAL(nlink_of("a"), 2);
	OK(rename("a", "a"));
}

CHECK(rename_of_directories)
{
	OK(mkdir("a", 0755));
	OK(mkdir("a/x", 0755));
	put_file("a/x/f", "x");
	OK(mkdir("b", 0755));
	OK(mkdir("c", 0755));
	EQUAL(nlink_of("a"), 3);
	OK(rename("a/x", "c/y"));
	EQUAL(nlink_of("a"), 2);
	EQUAL(nlink_of("c"), 3);
	EQUAL(lstat_of("c/y/..").st_ino, lstat_of("c").st_ino);
	TRUE(exists("c/y/f"));
	OK(rename("b", "a")); /* over an empty one */
	TRUE(!exists("b"));
	FAILS(ENOTEMPTY, rename("a", "c"));
	FAILS(EINVAL, rename("c", "c/y/z"));
	FAILS(ENOTEMPTY, rename("c/y", "c"));
}

CHECK(rename_errors)
{
	put_file("f", "x");
	OK(mkdir("d", 0755));
	FAILS(EISDIR, rename("f", "d"));
	FAILS(ENOTDIR, rename("d", "f"));
	FAILS(ENOENT, rename("no", "x"));
	FAILS(ENOENT, rename("f", "no/x"));
	FAILS(EBUSY, rename("d/.", "x"));
	FAILS(ENOTDIR, rename("f", "f/x"));
}

CHECK(rename_noreplace)
{
	put_file("a", "a");
	put_file("b", "b");
	FAILS(EEXIST, rename2("a", "b", RENAME_NOREPLACE));
	expect_content(OK(open("b", O_RDONLY)), "b", 1);
	OK(rename2("a", "c", RENAME_NOREPLACE));
	TRUE(!exists("a") && exists("c"));
	FAILS(EINVAL, rename2("b", "c", RENAME_NOREPLACE | RENAME_EXCHANGE));
}

CHECK(rename_exchange)
{
	put_file("f", "f");
	OK(mkdir("d", 0755));
	OK(mkdir("d/in", 0755));
	OK(mkdir("e", 0755));
	OK(rename2("f", "e", RENAME_EXCHANGE));
	EQUAL(lstat_of("f").st_mode & S_IFMT, S_IFDIR);
	EQUAL(lstat_of("e").st_mode & S_IFMT, S_IFREG);
	put_file("g", "g");
	EQUAL(nlink_of("d"), 3);
	OK(rename2("g", "d/in", RENAME_EXCHANGE));
	EQUAL(nlink_of("d"), 2);
	EQUAL(lstat_of("g/..").st_ino, lstat_of(".").st_ino);
	FAILS(ENOENT, rename2("e", "no", RENAME_EXCHANGE));
	OK(symlink("x", "s"));
	OK(rename2("s", "e", RENAME_EXCHANGE));
	EQUAL(lstat_of("e").st_mode & S_IFMT, S_IFLNK);
	FAILS(EINVAL, rename2("d", "d/in", RENAME_EXCHANGE));
}

CHECK(unlinked_open_file_lives_on)
{
	char big[300000];
	struct stat st;
	int fd;

	fill(big, sizeof(big), 1);
	fd = make_file("f", big, sizeof(big));
	OK(unlink("f"));
	OK(fstat(fd, &st));
	EQUAL(st.st_nlink, 0);
	expect_content(fd, big, sizeof(big));
	EQUAL(pwrite(fd, "tail", 4, sizeof(big)), 4);
	OK(ftruncate(fd, sizeof(big) + 1));
	OK(fchmod(fd, 0400));
	OK(fstat(fd, &st));
	EQUAL(st.st_size, sizeof(big) + 1);
	EQUAL(st.st_mode & 07777, 0400);
	OK(fsync(fd));
	put_file("f", "another");
	expect_content(OK(open("f", O_RDONLY)), "another", 7);
	EQUAL(pread(fd, &(char){ 0 }, 1, sizeof(big)), 1);
}

CHECK(replaced_open_file_lives_on)
{
	int fd = make_file("f", "old", 3);

	put_file("g", "new");
	OK(rename("g", "f"));
	expect_content(fd, "old", 3);
	EQUAL(write(fd, "er", 2), 2);
	expect_content(fd, "older", 5);
	expect_content(OK(open("f", O_RDONLY)), "new", 3);
}

CHECK(names_of_255_bytes)
{
	char name[300];
	DIR *d;
	struct dirent *e;
	bool seen = false;

	memset(name, 'n', sizeof(name));
	name[255] = 0;
	put_file(name, "x");
	d = POINTER(opendir("."));
	while ((e = readdir(d)))
		seen = seen || strcmp(e->d_name, name) == 0;
	TRUE(seen);
	closedir(d);
	OK(rename(name, "short"));
	OK(rename("short", name));
	OK(unlink(name));
	OK(mkdir(name, 0755));
	OK(rmdir(name));
	OK(symlink("x", name));
	OK(unlink(name));
	name[255] = 'n';
	name[256] = 0;
	FAILS(ENAMETOOLONG, open(name, O_RDWR | O_CREAT, 0644));
	FAILS(ENAMETOOLONG, mkdir(name, 0755));
	FAILS(ENAMETOOLONG, symlink("x", name));
	FAILS(ENAMETOOLONG, mkfifo(name, 0644));
	put_file("f", "x");
	FAILS(ENAMETOOLONG, link("f", name));
	FAILS(ENAMETOOLONG, rename("f", name));
	FAILS(ENAMETOOLONG, unlink(name));
	FAILS(ENAMETOOLONG, access(name, F_OK));
}

CHECK(names_are_bytes)
{
	static const char *const names[] = { "a b", "\n", "\xff\xfe", "\xc3\xa4", "A", "a",
					     "..a", "...", "-", "\\", "*" };
	unsigned i;
	char text[8];

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), "%u", i);
		put_file(names[i], text);
	}
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), "%u", i);
		expect_content(OK(open(names[i], O_RDONLY)), text, strlen(text));
		OK(unlink(names[i]));
	}
	OK(chdir(".."));
	OK(rmdir("names_are_bytes"));
	OK(mkdir("names_are_bytes", 0755));
}

CHECK(tree_100_levels_deep)
{
	int i;

	for (i = 0; i < 100; i++) {
		OK(mkdir("level", 0755));
		OK(chdir("level"));
	}
	put_file("f", "deep");
	for (i = 0; i < 100; i++)
		OK(chdir(".."));
	TRUE(exists("level/level/level"));
}

CHECK(tmpfile_appears_whole_by_linkat)
{
	char path[64], data[70000];
	struct stat st;
	int fd = open(".", O_TMPFILE | O_RDWR, 0640);

	OK(fd);
	fill(data, sizeof(data), 7);
	EQUAL(write(fd, data, sizeof(data)), sizeof(data));
	OK(fstat(fd, &st));
	EQUAL(st.st_nlink, 0);
	EQUAL(st.st_mode, S_IFREG | 0640);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	OK(linkat(AT_FDCWD, path, AT_FDCWD, "f", AT_SYMLINK_FOLLOW));
	OK(fstat(fd, &st));
	EQUAL(st.st_nlink, 1);
	EQUAL(lstat_of("f").st_ino, st.st_ino);
	expect_content(OK(open("f", O_RDONLY)), data, sizeof(data));
	FAILS(EEXIST, linkat(AT_FDCWD, path, AT_FDCWD, "f", AT_SYMLINK_FOLLOW));
	fd = OK(open(".", O_TMPFILE | O_RDWR | O_EXCL, 0640));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	FAILS(ENOENT, linkat(AT_FDCWD, path, AT_FDCWD, "g", AT_SYMLINK_FOLLOW));
}

CHECK(unlinked_file_cannot_be_linked_again)
{
	char path[64];
	int fd = make_file("f", "x", 1);

	OK(unlink("f"));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	FAILS(ENOENT, linkat(AT_FDCWD, path, AT_FDCWD, "g", AT_SYMLINK_FOLLOW));
}

CHECK(fsync_of_files_and_directories)
{
	int fd = make_file("f", "x", 1), dir = OK(open(".", O_RDONLY | O_DIRECTORY));

	OK(fsync(fd));
	OK(fdatasync(fd));
	OK(fsync(dir));
	OK(fdatasync(dir));
	OK(syncfs(dir));
	fd = OK(open("g", O_WRONLY | O_CREAT | O_SYNC, 0644));
	EQUAL(write(fd, "x", 1), 1);
	fd = OK(open("h", O_WRONLY | O_CREAT | O_DSYNC, 0644));
	EQUAL(write(fd, "x", 1), 1);
}
