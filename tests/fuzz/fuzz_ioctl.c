/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Any bytes as ioctls, as the kernel sends them: the rows of the table in any order, on files and directories, of root
 * and others. Each is answered once, with an error or with as many bytes as the table says; what is for root and the
 * mounting user is refused to others.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "fs/fs.h"
#include "fs/ops/ops_ioctl.h"
#include "fs/posix/namespace.h"
#include "index/namespace_table.h"
#include "tests/unit/fs/fake_kernel.h"

#define MAX_CALLS 8

static struct fake_kernel *kernel;
static uint64_t nr_dirs;
enum { DIR_FD, SEAL_FD, READ_FD, WRITE_FD, BOTH_FD, STAGE_FD, NR_FDS };
static struct fake_fd fds[NR_FDS];

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define REQUIRE(condition) ((condition) ? (void)0 : abort())

static void end(void)
{
	for (size_t i = 0; i < NR_FDS; i++)
		fake_close(kernel, fds[i]);
	fake_kernel_free(kernel);
}

static uint64_t make_dir(void)
{
	struct names_new n = { .mode = S_IFDIR | 0777 };
	struct cred root = { 0 };
	struct stat st;
	char name[24];

	snprintf(name, sizeof(name), "d%llu", (unsigned long long)nr_dirs++);
	REQUIRE(names_make(fake_kernel_fs(kernel), NS_ROOT_INO, name, &n, &root, &st) == 0);
	return st.st_ino;
}

/* A directory that can be sealed: no file of it is open. */
static void open_sealable(void)
{
	uint64_t dir = make_dir();

	fake_close(kernel, fake_create(kernel, dir, "f", O_RDWR));
	fds[SEAL_FD] = fake_opendir(kernel, dir);
}

static void open_files(void)
{
	uint64_t dir = make_dir();

	fds[DIR_FD] = fake_opendir(kernel, dir);
	fds[BOTH_FD] = fake_create(kernel, dir, "f", O_RDWR);
	fake_write(kernel, fds[BOTH_FD], "content", 7);
	fds[READ_FD] = fake_open(kernel, fds[BOTH_FD].ino, O_RDONLY);
	fds[WRITE_FD] = fake_open(kernel, fds[BOTH_FD].ino, O_WRONLY);
	fds[STAGE_FD] = fake_create(kernel, dir, "stage", O_RDWR);
}

static void start(void)
{
	log_set_level(LOG_LEVEL_ERROR);
	kernel = fake_kernel_new();
	open_files();
	open_sealable();
	atexit(end);
}

static void give(unsigned fd, unsigned number, void *arg, size_t size)
{
	const uint32_t head[] = { (uint32_t)size, CKPTFS_IOC_VERSION };

	memcpy(arg, head, sizeof(head));
	fake_ioctl(kernel, fds[fd], 0, number, arg, NULL);
}

/* Undo what would make all inputs after this one fail early. */
static void tidy(void)
{
	struct ckptfs_mount mount = { .command = CKPTFS_MOUNT_FLAGS };
	struct ckptfs_seal seal = { .command = CKPTFS_SEAL_UNSEAL };
	struct ckptfs_scrub scrub = { .command = CKPTFS_SCRUB_STOP };
	struct ckptfs_gc gc = { .command = CKPTFS_GC_STOP };
	struct ckptfs_delta_abort delta;
	unsigned flags;

	give(DIR_FD, CKPTFS_IOC_GC, &gc, sizeof(gc));
	give(DIR_FD, CKPTFS_IOC_SCRUB, &scrub, sizeof(scrub));
	give(DIR_FD, CKPTFS_IOC_MOUNT, &mount, sizeof(mount));
	give(STAGE_FD, CKPTFS_IOC_DELTA_ABORT, &delta, sizeof(delta));
	give(SEAL_FD, CKPTFS_IOC_SEAL, &seal, sizeof(seal));
	if (fake_ioctl(kernel, fds[SEAL_FD], 0, FS_IOC_GETFLAGS, &flags, NULL) == 0)
		return;
	fake_close(kernel, fds[SEAL_FD]); /* it was removed */
	open_sealable();
}

/* A call: row, descriptor, user, and the argument behind its size and version. Returns how many bytes were used. */
static size_t call(const uint8_t *p, size_t len)
{
	const struct ioctl_entry *e = &ioctl_table[p[0] % ioctl_table_nr];
	bool is_operator = p[2] & 1, is_whole = p[2] < 250;
	const uint32_t head[] = { (uint32_t)e->in, CKPTFS_IOC_VERSION };
	size_t front = e->has_head && is_whole ? sizeof(head) : 0;
	size_t n = MIN(len - 3, e->in - front), back = 0;
	uint8_t arg[16384] = { 0 };
	int r;

	memcpy(arg, head, front);
	memcpy(arg + front, p + 3, n);
	r = fake_ioctl(kernel, fds[p[1] % NR_FDS], is_operator ? 0 : geteuid() + 1, e->number, arg, &back);
	REQUIRE(r <= 0 && r > -4096 && (back == 0 || back == e->out));
	REQUIRE(is_operator || e->operator_only != IOCTL_ALL_COMMANDS || r < 0);
	return 3 + n;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	size_t off = 0;

	if (!kernel)
		start();
	for (unsigned i = 0; i < MAX_CALLS && len - off >= 3; i++)
		off += call(p + off, len - off);
	tidy();
	return 0;
}
