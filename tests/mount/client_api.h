/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What the parts of client_api.c share. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/ckptfs.h"

#define PAGE ((size_t)4096)
#define CHECK(x)                                                                             \
	do {                                                                                 \
		if (!(x)) {                                                                  \
			printf("FAILED line %d: %s (errno: %s)\n", __LINE__, #x, strerror(errno)); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

#define CHECK_DONE(call) /* of ours: 0 or -errno */                                            \
	do {                                                                                 \
		bool done = (errno = -(call)) == 0; /* for CHECK to tell */                  \
		CHECK(done);                                                                 \
	} while (0)

struct api_test {
	const char *promise; /* NULL: the end */
	void (*run)(void);
};
extern const struct api_test api_program_tests[], api_calls_tests[], api_signals_tests[];

extern char api_dir[4096]; /* of this test */
void api_begin(const struct ckptfs_options *options); /* a directory of its own */
void api_end(void);
void api_again(void); /* the same directory, as the next process would find it */
struct ckptfs_status api_status(void);
struct ckptfs_stats api_stats(uint32_t number);
void api_take(void); /* a checkpoint, until it is complete */
bool api_all_are(const uint8_t *p, size_t len, int value);
