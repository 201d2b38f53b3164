/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Asynchronous writes through libaio's and io_uring's system calls, without their libraries. One queue belongs to one
 * process.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct async_io;

enum async_io_kind { ASYNC_LIBAIO, ASYNC_URING };

/* Up to `depth` writes in flight. NULL, with errno: this kernel has it switched off. */
struct async_io *async_io_new(enum async_io_kind kind, unsigned depth);
void async_io_free(struct async_io *a);
/* Begin a write of `p`, which must stay until `tag` comes back. 0 or a negative errno. */
int async_io_write(struct async_io *a, int fd, const void *p, size_t len, uint64_t off, uint64_t tag);
/* Wait for the end of one. 0 or a negative errno; *ret_result: bytes written or a negative errno. */
int async_io_wait(struct async_io *a, uint64_t *ret_tag, int64_t *ret_result);
