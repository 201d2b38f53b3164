/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What ckptfs adds (client/ioctl.h, virtual attributes, coherence of its two ways to write); skipped elsewhere. */
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/xattr.h>

#include "client/ioctl.h"
#include "posix.h"

#define HEAD(type) .size = sizeof(type), .version = CKPTFS_IOC_VERSION
#define MIB (1 << 20)

static void need_ckptfs(void)
{
	char value[16];

	if (getxattr(".", "user.ckptfs.stat", value, 0) < 0)
		check_skip("not a ckptfs");
}

static uint64_t handle_of(int fd)
{
	struct ckptfs_handle h = { HEAD(h) };

	OK(ioctl(fd, CKPTFS_IOC_HANDLE, &h));
	TRUE(h.handle != 0);
	return h.handle;
}

/* As long as a name can be: 255 bytes. */
static void long_name(char name[256], unsigned nr)
{
	memset(name, 'n', 255);
	name[255] = 0;
	snprintf(name, 9, "user.%03u", nr);
	name[8] = 'n';
}

/*
 * Otherwise a user could make others wait for as many as he likes: they are listed whole, and removed with the file in
 * one step.
 */
CHECK(xattrs_of_a_file_are_limited)
{
	static char names[65536 + 1], value[65536];
	char name[256];
	unsigned nr = 0;
	int fd;

	need_ckptfs();
	fd = make_file("names", "", 0);
	do {
		long_name(name, nr++);
	} while (nr <= 300 && fsetxattr(fd, name, "", 0, 0) == 0);
	EQUAL(errno, ENOSPC);
	EQUAL(nr, 65536 / 256 + 1);
	EQUAL(flistxattr(fd, names, sizeof(names)), 65536);
	FAILS(ENOSPC, fsetxattr(fd, "user.a", "", 0, 0));
	long_name(name, 0);
	OK(fremovexattr(fd, name));
	OK(fsetxattr(fd, "user.a", "", 0, 0));

	fd = make_file("values", "", 0);
	for (nr = 0; nr < 15; nr++) {
		snprintf(name, sizeof(name), "user.%02u", nr);
		OK(fsetxattr(fd, name, value, sizeof(value), 0));
	}
	OK(fsetxattr(fd, "user.15", value, 65536 - 16 * 8, 0)); /* user.NN and a NUL, each */
	FAILS(ENOSPC, fsetxattr(fd, "user.15", value, 65536 - 16 * 8 + 1, 0));
	FAILS(ENOSPC, fsetxattr(fd, "user.a", "", 0, 0));
	OK(fsetxattr(fd, "user.15", value, 0, 0));
	OK(fsetxattr(fd, "user.14", value, sizeof(value), 0)); /* as long as before */
	OK(fsetxattr(fd, "user.a", "", 0, 0));
}

CHECK(ioctl_clone_shares_and_extends)
{
	static uint8_t data[3 * MIB + 777];
	struct ckptfs_clone c = { HEAD(c), .from_off = 5, .to_off = 100 };
	int from, to, reader;
	struct stat st;

	need_ckptfs();
	fill(data, sizeof(data), 1);
	from = make_file("from", data, sizeof(data));
	to = make_file("to", "0123456789", 10);
	reader = OK(open("to", O_RDONLY));
	expect_content(reader, "0123456789", 10); /* cached from here on */
	c.from = handle_of(from);
	OK(ioctl(to, CKPTFS_IOC_CLONE, &c));
	EQUAL(c.done, sizeof(data) - 5);
	OK(fstat(to, &st));
	EQUAL(st.st_size, 100 + sizeof(data) - 5);
	static uint8_t want[100 + sizeof(data)];
	memcpy(want, "0123456789", 10);
	memcpy(want + 100, data + 5, sizeof(data) - 5);
	expect_content(reader, want, sizeof(data) + 95);

	/* The kernel knows the new end without being asked: O_APPEND goes by it. */
	int append = OK(open("to", O_WRONLY | O_APPEND));
	c = (struct ckptfs_clone){ HEAD(c), .from = c.from, .to_off = 8 * MIB, .len = 1000 };
	OK(ioctl(to, CKPTFS_IOC_CLONE, &c));
	EQUAL(write(append, "end", 3), 3);
	OK(fstat(append, &st));
	EQUAL(st.st_size, 8 * MIB + 1003);
}

CHECK(ioctl_clone_of_mapped_pages)
{
	static uint8_t data[MIB];
	struct ckptfs_clone c = { HEAD(c) };
	int from, to;
	uint8_t *p;

	need_ckptfs();
	fill(data, sizeof(data), 2);
	from = make_file("from", data, sizeof(data));
	to = make_file("to", "", 0);
	p = POINTER(mmap(NULL, sizeof(data), PROT_READ | PROT_WRITE, MAP_SHARED, from, 0));
	memcpy(p + 5000, "by map", 6);
	memcpy(data + 5000, "by map", 6);
	c.from = handle_of(from);
	OK(ioctl(to, CKPTFS_IOC_CLONE, &c));
	expect_content(to, data, sizeof(data));
}

CHECK(ioctl_clone_errors)
{
	struct ckptfs_clone c = { HEAD(c) };
	int from, to, readonly, writeonly;
	uint64_t handle;

	need_ckptfs();
	from = make_file("from", "abcdefgh", 8);
	to = make_file("to", "", 0);
	readonly = OK(open("to", O_RDONLY));
	writeonly = OK(open("from", O_WRONLY));
	FAILS(EBADF, ioctl(writeonly, CKPTFS_IOC_HANDLE, &(struct ckptfs_handle){ HEAD(struct ckptfs_handle) }));
	handle = handle_of(from);
	EQUAL(handle_of(from), handle);
	c.from = handle;
	FAILS(EBADF, ioctl(readonly, CKPTFS_IOC_CLONE, &c));
	FAILS(EBADF, ioctl(OK(open("to", O_WRONLY | O_APPEND)), CKPTFS_IOC_CLONE, &c));
	c.version = 99;
	FAILS(EINVAL, ioctl(to, CKPTFS_IOC_CLONE, &c));
	c.version = CKPTFS_IOC_VERSION;
	c.from = handle + 1;
	FAILS(ESTALE, ioctl(to, CKPTFS_IOC_CLONE, &c));
	c = (struct ckptfs_clone){ HEAD(c), .from = handle, .to_off = 4, .len = 8 };
	FAILS(EINVAL, ioctl(from, CKPTFS_IOC_CLONE, &c)); /* overlap */
	OK(close(from));
	nap(100); /* the kernel tells the daemon of a close a little later */
	c = (struct ckptfs_clone){ HEAD(c), .from = handle };
	FAILS(ESTALE, ioctl(to, CKPTFS_IOC_CLONE, &c));
	FAILS(ENOTTY, ioctl(to, _IO('K', 99)));
}

CHECK(ioctl_stat_and_sync)
{
	static uint8_t page[4096];
	struct ckptfs_stat a = { HEAD(a) }, b = { HEAD(b) };
	int fd, copy;

	need_ckptfs();
	fill(page, sizeof(page), 3);
	fd = make_file("a", page, sizeof(page));
	copy = make_file("b", page, sizeof(page));
	OK(ftruncate(fd, 3 * 4096));
	OK(ftruncate(copy, 3 * 4096));
	OK(close(dup(fd))); /* with a write-back cache, the kernel may send times after the sync: have them sent now */
	OK(ioctl(fd, CKPTFS_IOC_SYNC, &(struct ckptfs_sync){ HEAD(struct ckptfs_sync) }));
	OK(ioctl(fd, CKPTFS_IOC_STAT, &a));
	EQUAL(a.file_size, 3 * 4096);
	EQUAL(a.mapped, 4096);
	EQUAL(a.extents, 1);
	EQUAL(a.durable, 1);
	OK(ioctl(copy, CKPTFS_IOC_STAT, &b));
	TRUE(memcmp(a.fingerprint, b.fingerprint, sizeof(a.fingerprint)) == 0);
	int dir = OK(open(".", O_RDONLY | O_DIRECTORY));
	OK(ioctl(dir, CKPTFS_IOC_SYNC, &(struct ckptfs_sync){ HEAD(struct ckptfs_sync) }));
}

CHECK(virtual_attributes_are_there_and_not_listed)
{
	char value[65536], list[256];
	ssize_t n;

	need_ckptfs();
	put_file("f", "text");
	n = OK(getxattr("f", "user.ckptfs.stat", value, sizeof(value) - 1));
	value[n] = 0;
	TRUE(strstr(value, "\"size_bytes\":4,"));
	EQUAL(getxattr("f", "user.ckptfs.fingerprint", value, sizeof(value)), 30);
	FAILS(ERANGE, getxattr("f", "user.ckptfs.fingerprint", value, 29));
	EQUAL(listxattr("f", list, sizeof(list)), 0);
	FAILS(EPERM, setxattr("f", "user.ckptfs.stat", "x", 1, 0));
	FAILS(EPERM, removexattr("f", "user.ckptfs.fingerprint"));
	FAILS(EPERM, setxattr("f", "user.ckptfs.other", "x", 1, 0));
}

CHECK(settings_are_checked_and_inherited)
{
	char value[16];

	need_ckptfs();
	OK(mkdir("d", 0755));
	FAILS(EINVAL, setxattr("d", "user.ckptfs.chunking", "magic", 5, 0));
	OK(setxattr("d", "user.ckptfs.chunking", "page", 4, 0));
	FAILS(EINVAL, setxattr("d", "user.ckptfs.compress", "gzip", 4, 0));
	FAILS(EINVAL, setxattr("d", "user.ckptfs.compress", "zstd:20", 7, 0));
	OK(setxattr("d", "user.ckptfs.compress", "auto", 4, 0));
	OK(setxattr("d", "user.ckptfs.compress", "none", 4, 0));
	OK(setxattr("d", "user.ckptfs.compress", "zstd:19", 7, 0));
	OK(mkdir("d/e", 0755));
	put_file("d/e/f", "");
	EQUAL(getxattr("d/e/f", "user.ckptfs.chunking", value, sizeof(value)), 4);
	TRUE(memcmp(value, "page", 4) == 0);
	EQUAL(getxattr("d/e/f", "user.ckptfs.compress", value, sizeof(value)), 7);
	TRUE(memcmp(value, "zstd:19", 7) == 0);
	OK(removexattr("d/e/f", "user.ckptfs.compress"));
	FAILS(ENODATA, getxattr("d/e/f", "user.ckptfs.compress", value, sizeof(value)));
}

/* A reader through the page cache must never see bytes older than the last write that was answered. */
CHECK(cached_reader_keeps_up_with_direct_writer)
{
	enum { LEN = 256 * 1024, ROUNDS = 400 };
	_Atomic uint32_t *answered = POINTER(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	static uint32_t words[LEN / 4];
	pid_t writer;
	int fd;

	fd = make_file("f", words, LEN);
	writer = check_fork();
	if (writer == 0) {
		int direct = OK(open("f", O_WRONLY));

		for (uint32_t i = 1; i <= ROUNDS; i++) {
			for (size_t k = 0; k < LEN / 4; k++)
				words[k] = i;
			EQUAL(pwrite(direct, words, LEN, 0), LEN);
			*answered = i;
			usleep(1000); /* the next write would drop what this one left in the cache */
		}
		_exit(0);
	}
	while (*answered < ROUNDS) {
		uint32_t before = *answered;

		EQUAL(pread(fd, words, LEN, 0), LEN);
		for (size_t k = 0; k < LEN / 4; k++)
			if (words[k] < before)
				check_fail(__LINE__, "word %zu is of round %u, %u had been answered", k, words[k],
					   before);
	}
	check_join(writer);
}
