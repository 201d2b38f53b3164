/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Attributes: permissions, ownership, sticky and set-id bits, times, sizes, statfs. */
#include "posix.h"

#include <grp.h>
#include <linux/falloc.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static mode_t mode_of(const char *path)
{
	return lstat_of(path).st_mode & 07777;
}

static void make_dir(const char *path, uid_t uid, gid_t gid, mode_t mode)
{
	OK(mkdir(path, 0700));
	OK(chown(path, uid, gid));
	OK(chmod(path, mode));
}

static void make_owned(const char *path, uid_t uid, gid_t gid, mode_t mode)
{
	put_file(path, "content");
	OK(chown(path, uid, gid));
	OK(chmod(path, mode));
}

CHECK(owner_and_group_of_new_objects_are_the_callers)
{
	make_dir("d", 0, 0, 0777);
	AS(USER, OTHER) {
		put_file("d/f", "x");
		OK(mkdir("d/e", 0755));
		OK(symlink("x", "d/s"));
		OK(mkfifo("d/p", 0644));
	}
	EQUAL(lstat_of("d/f").st_uid, USER);
	EQUAL(lstat_of("d/f").st_gid, OTHER);
	EQUAL(lstat_of("d/e").st_uid, USER);
	EQUAL(lstat_of("d/s").st_uid, USER);
	EQUAL(lstat_of("d/p").st_gid, OTHER);
}

CHECK(umask_applies_to_new_objects)
{
	umask(027);
	OK(close(OK(open("f", O_CREAT | O_RDWR, 0666))));
	OK(mkdir("d", 0777));
	OK(mkfifo("p", 0666));
	EQUAL(mode_of("f"), 0640);
	EQUAL(mode_of("d"), 0750);
	EQUAL(mode_of("p"), 0640);
	umask(0);
	OK(close(OK(open("g", O_CREAT | O_RDWR, 06777))));
	EQUAL(mode_of("g"), 06777);
}

CHECK(file_permissions_by_class)
{
	static const struct {
		mode_t mode;
		uid_t uid;
		gid_t gid;
		bool r, w;
	} t[] = {
		{ 0600, USER, USER, true, true },   { 0400, USER, USER, true, false },
		{ 0060, USER, USER, false, false }, { 0640, OTHER, USER, true, false },
		{ 0620, OTHER, USER, false, true }, { 0604, OTHER, OTHER, true, false },
		{ 0606, OTHER, OTHER, true, true }, { 0066, USER, USER, false, false },
		{ 0706, OTHER, USER, false, false },
	};
	unsigned i;

	make_owned("f", USER, USER, 0);
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OK(chmod("f", t[i].mode));
		AS(t[i].uid, t[i].gid) {
			if (t[i].r)
				OK(open("f", O_RDONLY));
			else
				FAILS(EACCES, open("f", O_RDONLY));
			if (t[i].w)
				OK(open("f", O_WRONLY));
			else
				FAILS(EACCES, open("f", O_WRONLY));
			EQUAL(access("f", R_OK) == 0, t[i].r);
			EQUAL(access("f", W_OK) == 0, t[i].w);
		}
	}
}

CHECK(directory_permissions_search_and_write)
{
	make_dir("d", 0, 0, 0755);
	put_file("d/f", "x");
	make_owned("mine", USER, USER, 0644);
	AS(USER, USER) {
		OK(open("d/f", O_RDONLY));
		FAILS(EACCES, open("d/g", O_CREAT | O_RDWR, 0644));
		FAILS(EACCES, unlink("d/f"));
		FAILS(EACCES, mkdir("d/e", 0755));
		FAILS(EACCES, rename("d/f", "d/g"));
		FAILS(EACCES, link("mine", "d/g"));
		FAILS(EACCES, symlink("x", "d/g"));
	}
	OK(chmod("d", 0711));
	AS(USER, USER) {
		OK(open("d/f", O_RDONLY));
		FAILS(EACCES, open("d", O_RDONLY | O_DIRECTORY));
	}
	OK(chmod("d", 0744));
	AS(USER, USER) {
		OK(open("d", O_RDONLY | O_DIRECTORY));
		FAILS(EACCES, open("d/f", O_RDONLY));
		FAILS(EACCES, lstat("d/f", &(struct stat){ 0 }));
	}
	OK(chmod("d", 0757));
	AS(USER, USER) {
		put_file("d/g", "x");
		OK(unlink("d/f"));
	}
}

CHECK(exec_needs_an_x_bit)
{
	put_file("script", "#!/bin/sh\nexit 0\n");
	FAILS(EACCES, access("script", X_OK));
	FAILS(EACCES, execl("./script", "script", NULL));
	OK(chmod("script", 0711));
	AS(USER, USER) {
		OK(access("script", X_OK));
	}
	OK(chmod("script", 0755));
	AS(USER, USER) {
		execl("./script", "script", NULL);
		check_fail(__LINE__, "execl: %s", strerror(errno));
	}
}

CHECK(chmod_only_by_owner_or_root)
{
	make_owned("f", USER, USER, 0644);
	AS(OTHER, OTHER) {
		FAILS(EPERM, chmod("f", 0666));
	}
	AS(USER, USER) {
		OK(chmod("f", 0600));
	}
	EQUAL(mode_of("f"), 0600);
	OK(chmod("f", 07777));
	EQUAL(mode_of("f"), 07777);
	OK(chmod("f", 01644));
	EQUAL(mode_of("f"), 01644);
}

CHECK(chmod_by_non_member_drops_setgid)
{
	make_owned("f", USER, OTHER, 0644);
	AS(USER, USER) {
		OK(chmod("f", 02755));
	}
	EQUAL(mode_of("f"), 0755);
	AS(USER, OTHER) {
		OK(chmod("f", 02755));
	}
	EQUAL(mode_of("f"), 02755);
}

CHECK(chown_rules)
{
	make_owned("f", USER, USER, 0644);
	AS(USER, USER) {
		FAILS(EPERM, chown("f", OTHER, -1));
		FAILS(EPERM, chown("f", -1, OTHER));
		OK(chown("f", USER, USER));
		OK(chown("f", -1, -1));
	}
	AS(OTHER, OTHER) {
		FAILS(EPERM, chown("f", OTHER, OTHER));
	}
	OK(chown("f", OTHER, -1));
	EQUAL(lstat_of("f").st_uid, OTHER);
	EQUAL(lstat_of("f").st_gid, USER);
	OK(chown("f", 4000000000u, 4000000001u));
	EQUAL(lstat_of("f").st_uid, 4000000000u);
	EQUAL(lstat_of("f").st_gid, 4000000001u);
	OK(symlink("f", "s"));
	OK(lchown("s", USER, OTHER));
	EQUAL(lstat_of("s").st_uid, USER);
	EQUAL(lstat_of("f").st_uid, 4000000000u);
}

CHECK(chown_by_user_clears_set_id_bits)
{
	make_owned("f", USER, USER, 06755);
	AS(USER, USER) {
		OK(chown("f", USER, USER));
	}
	EQUAL(mode_of("f"), 0755);
	OK(chmod("f", 06755));
	OK(chown("f", OTHER, OTHER)); /* as root, on an executable: Linux clears them too */
	EQUAL(mode_of("f"), 0755);
	make_dir("d", USER, USER, 02755);
	OK(chown("d", OTHER, OTHER));
	EQUAL(mode_of("d"), 02755);
}

/* chown(2) with -1 and -1 clears them for the owner only. */
CHECK(chown_of_nothing_by_strangers_keeps_set_id_bits)
{
	make_owned("f", USER, USER, 06755);
	AS(OTHER, OTHER) {
		if (chown("f", (uid_t)-1, (gid_t)-1) < 0) /* FUSE cannot refuse it */
			EQUAL(errno, EPERM);
	}
	EQUAL(mode_of("f"), 06755);
	AS(USER, USER) {
		OK(chown("f", (uid_t)-1, (gid_t)-1));
	}
	EQUAL(mode_of("f"), 0755);
}

CHECK(write_by_user_clears_set_id_bits)
{
	make_owned("f", USER, USER, 06777);
	AS(OTHER, OTHER) {
		int fd = OK(open("f", O_WRONLY));

		EQUAL(write(fd, "x", 1), 1);
	}
	EQUAL(mode_of("f"), 0777);
	OK(chmod("f", 06777));
	AS(OTHER, OTHER) {
		int fd = OK(open("f", O_RDWR));

		EQUAL(write(fd, "x", 1), 1);
	}
	EQUAL(mode_of("f"), 0777);
	OK(chmod("f", 06777));
	AS(OTHER, OTHER) {
		OK(truncate("f", 1));
	}
	EQUAL(mode_of("f"), 0777);
	OK(chmod("f", 06777));
	AS(OTHER, OTHER) {
		OK(open("f", O_WRONLY | O_TRUNC));
	}
	EQUAL(mode_of("f"), 0777);
	OK(chmod("f", 06777));
	OK(truncate("f", 10)); /* as root they stay */
	EQUAL(mode_of("f"), 06777);
}

/* Ways to change content, each on a descriptor of the caller's own. */
static void by_write(void)
{
	EQUAL(pwrite(OK(open("f", O_WRONLY)), "x", 1, 0), 1);
}

static void by_buffered_write(void)
{
	EQUAL(pwrite(OK(open("f", O_RDWR)), "x", 1, 0), 1);
}

static void by_truncate(void)
{
	OK(truncate("f", 3));
}

static void by_ftruncate(void)
{
	OK(ftruncate(OK(open("f", O_WRONLY)), 3));
}

static void by_open(void)
{
	OK(open("f", O_WRONLY | O_TRUNC));
}

static void by_allocating(void)
{
	OK(fallocate(OK(open("f", O_WRONLY)), 0, 0, 100));
}

static void by_punching(void)
{
	OK(fallocate(OK(open("f", O_WRONLY)), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3));
}

static void by_zeroing(void)
{
	OK(fallocate(OK(open("f", O_WRONLY)), FALLOC_FL_ZERO_RANGE, 0, 3));
}

static void by_copying(void)
{
	EQUAL(copy_file_range(OK(open("from", O_RDONLY)), NULL, OK(open("f", O_WRONLY)), NULL, 3, 0), 3);
}

CHECK(each_change_of_content_clears_set_id_bits)
{
	static void (*const ways[])(void) = { by_write,	     by_buffered_write, by_truncate, by_ftruncate, by_open,
					      by_allocating, by_punching,	by_zeroing,  by_copying };
	static const struct {
		uid_t uid;
		gid_t gid, supplementary;
		mode_t before, after;
	} cases[] = {
		/* the set-gid bit of a file without group execute is cleared unless the caller is of its group */
		{ OTHER, OTHER, 0, 06777, 0777 },    { OTHER, OTHER, 0, 06767, 0767 },
		{ OTHER, USER, 0, 06777, 0777 },     { OTHER, USER, 0, 06767, 02767 },
		{ OTHER, OTHER, USER, 06777, 0777 }, { OTHER, OTHER, USER, 06767, 02767 },
		{ USER, OTHER, 0, 06767, 0767 },     { OTHER, OTHER, 0, 02767, 0767 },
		{ 0, 0, 0, 06777, 06777 },	     { 0, 0, 0, 06767, 06767 },
	};

	put_file("from", "content");
	OK(chmod("from", 0644));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
			pid_t pid;

			make_owned("f", USER, USER, cases[i].before);
			pid = check_fork();
			if (pid == 0) {
				OK(setgroups(cases[i].supplementary != 0, &cases[i].supplementary));
				OK(setresgid(cases[i].gid, cases[i].gid, cases[i].gid));
				OK(setresuid(cases[i].uid, cases[i].uid, cases[i].uid));
				ways[w]();
				if (mode_of("f") != cases[i].after)
					check_fail(__LINE__, "case %zu, way %zu: mode %o, expected %o", i, w, mode_of("f"),
						   cases[i].after);
				_exit(0);
			}
			check_join(pid);
			OK(unlink("f"));
		}
}

/* A change of owner or group, by the owner and by root. */
CHECK(chown_clears_the_set_gid_bit_of_strangers)
{
	make_owned("f", USER, OTHER, 02744); /* its owner is not of its group */
	AS(USER, USER) {
		OK(chown("f", (uid_t)-1, USER));
	}
	EQUAL(mode_of("f"), 0744);
	OK(chmod("f", 06744));
	OK(chown("f", OTHER, OTHER));
	EQUAL(mode_of("f"), 02744);
}

CHECK(sticky_directory_protects_others_files)
{
	make_dir("d", 0, 0, 01777);
	make_owned("d/f", USER, USER, 0666);
	make_owned("d/mine", OTHER, OTHER, 0666);
	AS(OTHER, OTHER) {
		FAILS(EPERM, unlink("d/f"));
		FAILS(EPERM, rename("d/f", "d/g"));
		FAILS(EPERM, rename("d/mine", "d/f"));
		OK(unlink("d/mine"));
	}
	AS(USER, USER) {
		OK(rename("d/f", "d/g"));
		OK(unlink("d/g"));
	}
	make_owned("d/f", USER, USER, 0666);
	OK(chown("d", OTHER, OTHER)); /* the directory's owner may */
	AS(OTHER, OTHER) {
		OK(unlink("d/f"));
	}
}

CHECK(setgid_directory_passes_its_group_on)
{
	make_dir("d", 0, OTHER, 02777);
	AS(USER, USER) {
		put_file("d/f", "x");
		OK(mkdir("d/e", 0755));
		OK(symlink("x", "d/s"));
		OK(close(OK(open("d/x", O_CREAT | O_RDWR, 02755))));
	}
	EQUAL(lstat_of("d/f").st_gid, OTHER);
	EQUAL(lstat_of("d/e").st_gid, OTHER);
	EQUAL(lstat_of("d/s").st_gid, OTHER);
	EQUAL(mode_of("d/e"), 02755);
	EQUAL(mode_of("d/f"), 0644);
	EQUAL(mode_of("d/x"), 0755); /* not a member of the group: no set-id for him */
}

CHECK(file_descriptor_keeps_its_rights)
{
	int fd;

	make_owned("f", USER, USER, 0644);
	fd = OK(open("f", O_RDWR));
	OK(chmod("f", 0));
	AS(USER, USER) {
		EQUAL(pwrite(fd, "x", 1, 0), 1);
		EQUAL(pread(fd, &(char){ 0 }, 1, 0), 1);
		FAILS(EACCES, open("f", O_RDONLY));
	}
}

CHECK(utimensat_keeps_nanoseconds)
{
	static const struct timespec t[][2] = {
		{ { 1, 1 }, { 2, 999999999 } },		     { { 1700000000, 123456789 }, { 1600000000, 987654321 } },
		{ { 0, 0 }, { 0, 0 } },			     { { -1, 5 }, { -1000000, 7 } },
		{ { 4294967296, 1 }, { 5000000000, 2 } },
	};
	struct stat st;
	unsigned i;

	put_file("f", "x");
	OK(mkdir("d", 0755));
	OK(symlink("f", "s"));
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		static const char *const names[] = { "f", "d", "s" };
		unsigned k;

		for (k = 0; k < 3; k++) {
			OK(utimensat(AT_FDCWD, names[k], t[i], AT_SYMLINK_NOFOLLOW));
			st = lstat_of(names[k]);
			EQUAL(st.st_atim.tv_sec, t[i][0].tv_sec);
			EQUAL(st.st_atim.tv_nsec, t[i][0].tv_nsec);
			EQUAL(st.st_mtim.tv_sec, t[i][1].tv_sec);
			EQUAL(st.st_mtim.tv_nsec, t[i][1].tv_nsec);
		}
	}
}

CHECK(utimensat_omit_and_now)
{
	struct timespec set[2] = { { 1000, 1 }, { 2000, 2 } }, now;
	struct stat st;

	put_file("f", "x");
	OK(utimensat(AT_FDCWD, "f", set, 0));
	set[0].tv_nsec = UTIME_OMIT;
	set[1] = (struct timespec){ 3000, 3 };
	OK(utimensat(AT_FDCWD, "f", set, 0));
	st = lstat_of("f");
	EQUAL(st.st_atim.tv_sec, 1000);
	EQUAL(st.st_atim.tv_nsec, 1);
	EQUAL(st.st_mtim.tv_sec, 3000);
	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	set[0].tv_nsec = UTIME_NOW;
	set[1].tv_nsec = UTIME_OMIT;
	OK(utimensat(AT_FDCWD, "f", set, 0));
	st = lstat_of("f");
	TRUE(st.st_atim.tv_sec >= now.tv_sec && st.st_atim.tv_sec <= now.tv_sec + 5);
	EQUAL(st.st_mtim.tv_sec, 3000);
	OK(utimensat(AT_FDCWD, "f", NULL, 0));
	TRUE(lstat_of("f").st_mtim.tv_sec >= now.tv_sec);
	set[0].tv_nsec = set[1].tv_nsec = UTIME_OMIT;
	OK(utimensat(AT_FDCWD, "f", set, 0));
}

CHECK(utimensat_permissions)
{
	struct timespec set[2] = { { 1000, 1 }, { 2000, 2 } };

	make_owned("f", USER, USER, 0666);
	AS(OTHER, OTHER) {
		FAILS(EPERM, utimensat(AT_FDCWD, "f", set, 0));
		OK(utimensat(AT_FDCWD, "f", NULL, 0)); /* permission to write is enough to touch */
	}
	OK(chmod("f", 0644));
	AS(OTHER, OTHER) {
		FAILS(EACCES, utimensat(AT_FDCWD, "f", NULL, 0));
	}
	AS(USER, USER) {
		OK(utimensat(AT_FDCWD, "f", set, 0));
	}
}

static void expect_ctime_change(const char *path, int64_t *last, int line)
{
	int64_t now = ctime_ns(path);

	if (now <= *last)
		check_fail(line, "the change time of %s did not move", path);
	*last = now;
	nap(20);
}

CHECK(ctime_moves_with_every_change)
{
	int64_t t;
	int fd;

	fd = make_file("f", "x", 1);
	t = ctime_ns("f");
	nap(20);
	OK(chmod("f", 0600));
	expect_ctime_change("f", &t, __LINE__);
	OK(chown("f", USER, -1));
	expect_ctime_change("f", &t, __LINE__);
	OK(link("f", "g"));
	expect_ctime_change("f", &t, __LINE__);
	OK(unlink("g"));
	expect_ctime_change("f", &t, __LINE__);
	OK(rename("f", "h"));
	expect_ctime_change("h", &t, __LINE__);
	EQUAL(write(fd, "x", 1), 1);
	expect_ctime_change("h", &t, __LINE__);
	OK(ftruncate(fd, 0));
	expect_ctime_change("h", &t, __LINE__);
	OK(utimensat(AT_FDCWD, "h", (struct timespec[2]){ { 1, 1 }, { 1, 1 } }, 0));
	expect_ctime_change("h", &t, __LINE__);
}

CHECK(mtime_moves_with_data_only)
{
	int fd = make_file("f", "x", 1);
	int64_t t = mtime_ns("f");

	nap(20);
	OK(chmod("f", 0600));
	OK(link("f", "g"));
	OK(rename("g", "h"));
	EQUAL(mtime_ns("f"), t);
	EQUAL(pread(fd, &(char){ 0 }, 1, 0), 1);
	EQUAL(mtime_ns("f"), t);
	EQUAL(pwrite(fd, "y", 1, 0), 1);
	TRUE(mtime_ns("f") > t);
	t = mtime_ns("f");
	nap(20);
	OK(ftruncate(fd, 100));
	TRUE(mtime_ns("f") > t);
	t = mtime_ns("f");
	nap(20);
	OK(close(OK(open("f", O_WRONLY | O_TRUNC))));
	TRUE(mtime_ns("f") > t);
}

CHECK(set_mtime_survives_later_close)
{
	int fd = make_file("f", "data", 4);

	OK(futimens(fd, (struct timespec[2]){ { 10, 1 }, { 20, 2 } }));
	OK(close(fd));
	EQUAL(mtime_ns("f"), 20 * 1000000000LL + 2);
	fd = OK(open("f", O_RDONLY));
	OK(fsync(fd));
	OK(close(fd));
	EQUAL(mtime_ns("f"), 20 * 1000000000LL + 2);
}

CHECK(directory_times_move_with_entries)
{
	int64_t t;

	OK(mkdir("d", 0755));
	t = mtime_ns("d");
	nap(20);
	put_file("d/f", "x");
	TRUE(mtime_ns("d") > t);
	t = mtime_ns("d");
	nap(20);
	put_file("d/f", "more");
	EQUAL(mtime_ns("d"), t);
	OK(rename("d/f", "d/g"));
	TRUE(mtime_ns("d") > t && ctime_ns("d") > t);
	t = mtime_ns("d");
	nap(20);
	OK(unlink("d/g"));
	TRUE(mtime_ns("d") > t);
	t = mtime_ns("d");
	nap(20);
	OK(mkdir("d/e", 0755));
	TRUE(mtime_ns("d") > t);
}

CHECK(new_objects_have_the_time_of_now)
{
	struct timespec now;
	int64_t t;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	put_file("f", "");
	t = now.tv_sec * 1000000000LL + now.tv_nsec;
	TRUE(mtime_ns("f") >= t && mtime_ns("f") < t + 10000000000LL);
	TRUE(ctime_ns("f") >= t && ctime_ns("f") < t + 10000000000LL);
	TRUE(lstat_of("f").st_atim.tv_sec >= now.tv_sec);
}

CHECK(blocks_count_mapped_bytes)
{
	static char data[1 << 20];
	struct stat st;
	int fd;

	fill(data, sizeof(data), 3);
	fd = make_file("f", data, sizeof(data));
	OK(fsync(fd));
	OK(fstat(fd, &st));
	EQUAL(st.st_blocks, sizeof(data) / 512);
	OK(ftruncate(fd, 64 << 20));
	OK(fsync(fd));
	OK(fstat(fd, &st));
	EQUAL(st.st_blocks, sizeof(data) / 512);
	OK(ftruncate(fd, sizeof(data) / 2));
	OK(fsync(fd));
	OK(fstat(fd, &st));
	EQUAL(st.st_blocks, sizeof(data) / 1024);
	OK(ftruncate(fd, 0));
	OK(fstat(fd, &st));
	EQUAL(st.st_blocks, 0);
	TRUE(st.st_blksize >= 4096);
}

CHECK(statfs_fields_make_sense)
{
	struct statvfs v;
	struct statfs s;

	OK(statvfs(".", &v));
	OK(statfs(".", &s));
	EQUAL(v.f_namemax, 255);
	TRUE(v.f_bsize >= 512 && v.f_frsize >= 512);
	TRUE(v.f_blocks > 0 && v.f_bfree <= v.f_blocks && v.f_bavail <= v.f_bfree);
	TRUE(v.f_files > 0 && v.f_ffree <= v.f_files);
	EQUAL(s.f_blocks, v.f_blocks);
}

CHECK(stat_agrees_however_it_is_asked)
{
	struct stat a, b;
	int fd = make_file("f", "12345", 5);

	OK(fstat(fd, &a));
	OK(stat("f", &b));
	EQUAL(a.st_ino, b.st_ino);
	EQUAL(a.st_size, 5);
	EQUAL(b.st_size, 5);
	EQUAL(a.st_dev, b.st_dev);
	EQUAL(a.st_nlink, b.st_nlink);
	TRUE(a.st_ino != lstat_of(".").st_ino);
}
