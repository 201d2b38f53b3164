/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Small named checks of what an application relies on, each in a process and a directory of its own.
 *
 * CHECK(name) { ... } registers one. Its body runs as root in a fresh empty directory, umask 022; it ends at the first
 * macro that does not hold. AS(uid, gid) { ... } runs a block in a child as another user and fails with it.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

struct check {
	const char *name;
	void (*run)(void);
	struct check *next;
};

void check_register(struct check *c);

#define CHECK(title)                                                                            \
	static void check_##title(void);                                                        \
	__attribute__((constructor)) static void register_##title(void)                         \
	{                                                                                       \
		static struct check c = { .name = #title, .run = check_##title };               \
		check_register(&c);                                                             \
	}                                                                                       \
	static void check_##title(void)

void check_fail(int line, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
void check_skip(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
bool check_writeback(void); /* the mount has option writeback, says CKPTFS_OPTIONS */

int64_t check_ok(int64_t v, const char *expr, int line);
void check_fails(int error, int64_t v, const char *expr, int line);
void check_equal(int64_t a, int64_t b, const char *expr_a, const char *expr_b, int line);
void *check_pointer(void *p, const char *expr, int line) __attribute__((returns_nonnull));

/* A call that must succeed (>= 0), one that must fail with exactly this errno, values, conditions, mappings. */
#define OK(expr) check_ok((expr), #expr, __LINE__)
#define FAILS(error, expr) check_fails((error), (expr), #expr, __LINE__)
#define EQUAL(a, b) check_equal((int64_t)(a), (int64_t)(b), #a, #b, __LINE__)
#define TRUE(cond) ((cond) ? (void)0 : check_fail(__LINE__, "%s does not hold", #cond))
#define POINTER(expr) check_pointer((expr), #expr, __LINE__)

/* True in the child, which the loop then ends; false in the parent once the child has succeeded. */
bool check_as(uid_t uid, gid_t gid);
#define AS(uid, gid) if (check_as(uid, gid)) for (;; _exit(0))

/* A child that runs beside the check: 0 in the child, which must end with _exit(0). */
pid_t check_fork(void);
void check_join(pid_t pid); /* fails with it */

#define USER 1201 /* uid and gid of a user without privileges */
#define OTHER 1202

bool on_fuse(void);
void nap(int ms);
int make_file(const char *path, const void *p, size_t len); /* an O_RDWR descriptor */
void put_file(const char *path, const char *text);
void expect_content(int fd, const void *p, size_t len); /* the whole file is exactly this */
void expect_zeros(int fd, off_t off, size_t len);
void fill(void *p, size_t len, uint64_t seed); /* bytes that do not repeat */
struct stat lstat_of(const char *path);
int64_t mtime_ns(const char *path);
int64_t ctime_ns(const char *path);
