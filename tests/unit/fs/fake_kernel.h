/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * The daemon without a mount: a store in a new directory, served by the loop of fs/fuse_loop.h, which receives its
 * requests from a socket instead of /dev/fuse. For unit tests and fuzz targets; ends the program if anything fails.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct fake_kernel;
struct fs;

struct fake_kernel *fake_kernel_new(void);
void fake_kernel_free(struct fake_kernel *k); /* also the store */
struct fs *fake_kernel_fs(struct fake_kernel *k);

/*
 * Send a request of user `uid` with these bytes, and wait for its reply. Returns 0 or a negative errno; the bytes of the
 * reply, at most `size`, are in `reply`, and *ret_len, unless NULL, is how many there were.
 */
int fake_kernel_ask(struct fake_kernel *k, uint32_t opcode, uint64_t ino, uint32_t uid, const void *p, size_t len,
		    void *reply, size_t size, size_t *ret_len);

/* Send it without waiting, and receive the next reply to any request sent so: *ret_number is the number of that one. */
uint64_t fake_kernel_send(struct fake_kernel *k, uint32_t opcode, uint64_t ino, uint32_t uid, const void *p, size_t len);
int fake_kernel_receive(struct fake_kernel *k, uint64_t *ret_number, void *reply, size_t size, size_t *ret_len);
/* The notifications received since the last call that drop pages; ino 0: none. */
struct fake_drop {
	unsigned nr;
	uint64_t ino; /* of the last one, as is the range */
	int64_t off, len; /* len 0: to the end */
};
struct fake_drop fake_kernel_dropped(struct fake_kernel *k);

struct fake_fd {
	uint64_t ino, handle;
	int is_dir;
};
struct fake_fd fake_open(struct fake_kernel *k, uint64_t ino, int flags);
struct fake_fd fake_opendir(struct fake_kernel *k, uint64_t ino);
struct fake_fd fake_create(struct fake_kernel *k, uint64_t dir, const char *name, int flags);
void fake_close(struct fake_kernel *k, struct fake_fd fd);
void fake_write(struct fake_kernel *k, struct fake_fd fd, const void *p, size_t len);
/*
 * As ioctl(2), with as many bytes of `arg` as the number says. Returns 0 or a negative errno. *ret_len, unless NULL: how
 * many bytes of the argument came back.
 */
int fake_ioctl(struct fake_kernel *k, struct fake_fd fd, uint32_t uid, unsigned number, void *arg, size_t *ret_len);
