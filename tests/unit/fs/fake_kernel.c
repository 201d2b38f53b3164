/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/fs/fake_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/util.h"
#include "fs/fs.h"
#include "fs/fuse_loop.h"
#include "fs/mount_options.h"
#include "fs/ops/ops.h"
#include "tests/unit/place.h"

#define REPLY_MAX 65536u

struct fake_kernel {
	char path[64];
	struct options o;
	struct fs *fs;
	struct fuse_session *se;
	struct loop *loop;
	int fd; /* the kernel's end */
	uint64_t unique;
	struct fake_drop dropped; /* since fake_kernel_dropped() */
};

#define REQUIRE(condition)                                                                                   \
	do {                                                                                                 \
		if (!(condition)) {                                                                          \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno)); \
			abort();                                                                             \
		}                                                                                            \
	} while (0)

struct fake_kernel *fake_kernel_new(void)
{
	struct fuse_init_in init = {
		.major = FUSE_KERNEL_VERSION,
		.minor = 36,
		.max_readahead = 131072,
		.flags = FUSE_BIG_WRITES | FUSE_IOCTL_DIR | FUSE_MAX_PAGES | FUSE_POSIX_ACL,
	};
	struct fake_kernel *k = calloc(1, sizeof(*k));
	char *argv[] = { (char *)"fake", NULL };
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct engine *e;
	char device[24];
	int ends[2];

	REQUIRE(k);
	snprintf(k->path, sizeof(k->path), "%s/ckptfs-unit-XXXXXX", test_place());
	REQUIRE(mkdtemp(k->path));
	REQUIRE(options_init(&k->o) == 0);
	k->o.store = k->o.mountpoint = k->path;
	REQUIRE(engine_open(k->path, &k->o.engine, &e) == 0);
	REQUIRE(fs_open(e, &k->o, NULL, &k->fs) == 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
	k->fd = ends[0];
	k->se = fuse_session_new(&args, &ops_table, sizeof(ops_table), k->fs);
	fuse_opt_free_args(&args);
	REQUIRE(k->se);
	snprintf(device, sizeof(device), "/dev/fd/%d", ends[1]);
	REQUIRE(fuse_session_mount(k->se, device) == 0); /* only takes the descriptor */
	REQUIRE(loop_new(k->se, k->fs, &k->loop) == 0);
	REQUIRE(loop_start(k->loop) == 0);
	REQUIRE(fake_kernel_ask(k, FUSE_INIT, 0, 0, &init, sizeof(init), NULL, 0, NULL) == 0);
	return k;
}

void fake_kernel_free(struct fake_kernel *k)
{
	char command[128];

	REQUIRE(loop_stop(k->loop));
	REQUIRE(fs_close(k->fs) == 0);
	loop_free(k->loop);
	fuse_session_destroy(k->se);
	close(k->fd);
	options_release(&k->o);
	snprintf(command, sizeof(command), "rm -rf %s", k->path);
	REQUIRE(system(command) == 0);
	free(k);
}

struct fs *fake_kernel_fs(struct fake_kernel *k)
{
	return k->fs;
}

uint64_t fake_kernel_send(struct fake_kernel *k, uint32_t opcode, uint64_t ino, uint32_t uid, const void *p, size_t len)
{
	struct fuse_in_header in = {
		.len = (uint32_t)(sizeof(in) + len), .opcode = opcode, .unique = ++k->unique, .nodeid = ino, .uid = uid
	};
	struct iovec iov[] = { { &in, sizeof(in) }, { (void *)p, len } };
	ssize_t sent;

	do
		sent = writev(k->fd, iov, len > 0 ? 2 : 1);
	while (sent < 0 && errno == EINTR);
	REQUIRE(sent == (ssize_t)in.len);
	return in.unique;
}

static void note(struct fake_kernel *k, int code, const void *p, size_t len)
{
	struct fuse_notify_inval_inode_out out;

	if (code != FUSE_NOTIFY_INVAL_INODE)
		return;
	REQUIRE(len == sizeof(out));
	memcpy(&out, p, len);
	if (out.off >= 0) /* else of attributes */
		k->dropped = (struct fake_drop){ k->dropped.nr + 1, out.ino, out.off, out.len };
}

struct fake_drop fake_kernel_dropped(struct fake_kernel *k)
{
	struct fake_drop d = k->dropped;

	k->dropped = (struct fake_drop){ 0 };
	return d;
}

/* Notifications have no number. */
int fake_kernel_receive(struct fake_kernel *k, uint64_t *ret_number, void *reply, size_t size, size_t *ret_len)
{
	struct fuse_out_header header;
	uint8_t bytes[REPLY_MAX];
	ssize_t n;

	do {
		do
			n = recv(k->fd, bytes, sizeof(bytes), 0);
		while (n < 0 && errno == EINTR); /* the alarm of a fuzzer */
		REQUIRE(n >= (ssize_t)sizeof(header));
		memcpy(&header, bytes, sizeof(header));
		REQUIRE(header.len == (size_t)n);
		if (header.unique == 0)
			note(k, header.error, bytes + sizeof(header), (size_t)n - sizeof(header));
	} while (header.unique == 0);
	n -= (ssize_t)sizeof(header);
	if (size > 0)
		memcpy(reply, bytes + sizeof(header), MIN((size_t)n, size));
	if (ret_len)
		*ret_len = (size_t)n;
	*ret_number = header.unique;
	return header.error;
}

int fake_kernel_ask(struct fake_kernel *k, uint32_t opcode, uint64_t ino, uint32_t uid, const void *p, size_t len,
		    void *reply, size_t size, size_t *ret_len)
{
	uint64_t asked = fake_kernel_send(k, opcode, ino, uid, p, len), answered;
	int r = fake_kernel_receive(k, &answered, reply, size, ret_len);

	REQUIRE(answered == asked);
	return r;
}

static struct fake_fd open_as(struct fake_kernel *k, uint32_t opcode, uint64_t ino, int flags)
{
	struct fuse_open_in in = { .flags = (uint32_t)flags };
	struct fuse_open_out out;

	REQUIRE(fake_kernel_ask(k, opcode, ino, 0, &in, sizeof(in), &out, sizeof(out), NULL) == 0);
	return (struct fake_fd){ ino, out.fh, opcode == FUSE_OPENDIR };
}

struct fake_fd fake_open(struct fake_kernel *k, uint64_t ino, int flags)
{
	return open_as(k, FUSE_OPEN, ino, flags);
}

struct fake_fd fake_opendir(struct fake_kernel *k, uint64_t ino)
{
	return open_as(k, FUSE_OPENDIR, ino, O_RDONLY | O_DIRECTORY);
}

struct fake_fd fake_create(struct fake_kernel *k, uint64_t dir, const char *name, int flags)
{
	struct fuse_create_in in = { .flags = (uint32_t)(flags | O_CREAT | O_EXCL), .mode = S_IFREG | 0644 };
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
	uint8_t bytes[sizeof(in) + 64];
	size_t len = sizeof(in) + strlen(name) + 1;

	REQUIRE(len <= sizeof(bytes));
	memcpy(bytes, &in, sizeof(in));
	memcpy(bytes + sizeof(in), name, strlen(name) + 1);
	REQUIRE(fake_kernel_ask(k, FUSE_CREATE, dir, 0, bytes, len, &out, sizeof(out), NULL) == 0);
	return (struct fake_fd){ out.entry.nodeid, out.open.fh, 0 };
}

void fake_close(struct fake_kernel *k, struct fake_fd fd)
{
	struct fuse_release_in in = { .fh = fd.handle };

	REQUIRE(fake_kernel_ask(k, fd.is_dir ? FUSE_RELEASEDIR : FUSE_RELEASE, fd.ino, 0, &in, sizeof(in), NULL, 0,
				NULL) == 0);
}

void fake_write(struct fake_kernel *k, struct fake_fd fd, const void *p, size_t len)
{
	struct fuse_write_in in = { .fh = fd.handle, .size = (uint32_t)len };
	uint8_t bytes[sizeof(in) + 4096];

	REQUIRE(len <= 4096);
	memcpy(bytes, &in, sizeof(in));
	memcpy(bytes + sizeof(in), p, len);
	REQUIRE(fake_kernel_ask(k, FUSE_WRITE, fd.ino, 0, bytes, sizeof(in) + len, NULL, 0, NULL) == 0);
}

int fake_ioctl(struct fake_kernel *k, struct fake_fd fd, uint32_t uid, unsigned number, void *arg, size_t *ret_len)
{
	size_t len = number == FS_IOC_GETFLAGS ? sizeof(unsigned) : _IOC_SIZE(number); /* as in Linux */
	struct fuse_ioctl_in in = {
		.fh = fd.handle,
		.flags = fd.is_dir ? FUSE_IOCTL_DIR : 0,
		.cmd = number,
		.in_size = _IOC_DIR(number) & _IOC_WRITE ? (uint32_t)len : 0,
		.out_size = _IOC_DIR(number) & _IOC_READ ? (uint32_t)len : 0,
	};
	struct {
		struct fuse_ioctl_out out;
		uint8_t arg[16384];
	} reply;
	uint8_t bytes[sizeof(in) + 16384];
	size_t n = 0;
	int r;

	memcpy(bytes, &in, sizeof(in));
	memcpy(bytes + sizeof(in), arg, in.in_size);
	r = fake_kernel_ask(k, FUSE_IOCTL, fd.ino, uid, bytes, sizeof(in) + in.in_size, &reply, sizeof(reply), &n);
	if (ret_len)
		*ret_len = 0;
	if (r < 0) {
		REQUIRE(n == 0);
		return r;
	}
	REQUIRE(n >= sizeof(reply.out) && n - sizeof(reply.out) <= in.out_size);
	n -= sizeof(reply.out);
	memcpy(arg, reply.arg, n);
	if (ret_len)
		*ret_len = n;
	return reply.out.result;
}
