/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: captured_calls take           with libckptfs-preload.so: memory is mapped, protected and given up, also by calls that fail, before and between
 *                                      two checkpoints. Prints the address of what the other one needs.
 *        captured_calls check DIR ROOT  with libckptfs: the last checkpoint has that memory, but for what has been left out.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/ckptfs.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#define NR 64u /* pages of each */
#define NR_AREAS 3u /* mapped before the first checkpoint, and before the second; allocated */
#define MOVED 20u /* a page that is moved away, and leaves zeros */
#define GIVEN_UP 40u
#define GUARD 50u /* a page that cannot be read any more */

int ckptfs_checkpoint(void) __attribute__((weak));
int ckptfs_wait(void) __attribute__((weak));
int ckptfs_init(const char *dir, const struct ckptfs_options *options) __attribute__((weak));
int ckptfs_restart(uint32_t number, uint32_t flags, uint32_t *ret_number) __attribute__((weak));
const char *ckptfs_strerror(int error) __attribute__((weak));

struct root {
	uint8_t *area[NR_AREAS], *moved[NR_AREAS];
};

static size_t page;

static void expect(bool fact, const char *what)
{
	if (fact)
		return;
	fprintf(stderr, "captured_calls: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void calls_that_fail(uint8_t *p)
{
	expect(munmap(p + 1, page) < 0, "munmap() of no page");
	expect(mprotect(p + 1, page, PROT_NONE) < 0, "mprotect() of no page");
	expect(mprotect(p, page, 0x7000) < 0, "mprotect() to what there is not");
	expect(madvise(p + 1, page, MADV_DONTFORK) < 0, "madvise() of no page");
	expect(mmap(p + 8 * page, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED, "mmap() of no file");
	expect(mremap(p + 16 * page, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, p + 24 * page + 1) == MAP_FAILED,
	       "mremap() to no page");
	expect(munmap(p, SIZE_MAX - page) < 0, "munmap() of more than there is");
}

static void calls(struct root *root, unsigned i)
{
	uint8_t *p = root->area[i];

	for (size_t k = 0; k < NR; k++)
		memset(p + k * page, (int)(k + 1 + i), page);
	calls_that_fail(p);
	expect(madvise(p + GIVEN_UP * page, page, MADV_DONTNEED) == 0, "MADV_DONTNEED");
	root->moved[i] = mremap(p + MOVED * page, page, page, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	expect(root->moved[i] != MAP_FAILED, "MREMAP_DONTUNMAP");
	/* a kernel that does not know it: left out all the same */
	if (madvise(p + GUARD * page, page, MADV_GUARD_INSTALL) < 0)
		expect(mprotect(p + GUARD * page, page, PROT_NONE) == 0, "mprotect()");
}

static uint8_t *area(void)
{
	uint8_t *p = mmap(NULL, NR * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	expect(p != MAP_FAILED, "mmap()");
	return p;
}

static void take(void)
{
	struct root *root = calloc(1, sizeof(*root));

	expect(root && ckptfs_checkpoint && ckptfs_wait, "libckptfs-preload.so");
	root->area[0] = area();
	root->area[2] = aligned_alloc(page, NR * page);
	calls(root, 0);
	calls(root, 2);
	expect(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0, "the first checkpoint");
	root->area[1] = area();
	calls(root, 1);
	calls_that_fail(root->area[0]);
	calls_that_fail(root->area[2]);
	expect(ckptfs_checkpoint() == 0 && ckptfs_wait() == 0, "the second checkpoint");
	printf("%p\n", (void *)root);
}

static void check_page(const uint8_t *p, int byte, unsigned area, size_t number)
{
	for (size_t i = 0; i < page; i++)
		if (p[i] != byte) {
			fprintf(stderr, "captured_calls: area %u, page %zu, byte %zu: %d instead of %d\n", area, number,
				i, p[i], byte);
			exit(1);
		}
}

static void check(const char *dir, const struct root *root)
{
	int r = ckptfs_init ? ckptfs_init(dir, NULL) : -ENODEV;

	if (r == 0)
		r = ckptfs_restart(2, CKPTFS_RESTART_ADDRESSES, NULL);
	if (r < 0) {
		fprintf(stderr, "captured_calls: %s\n", ckptfs_strerror ? ckptfs_strerror(r) : "no libckptfs");
		exit(1);
	}
	for (unsigned i = 0; i < NR_AREAS; i++) {
		for (size_t k = 0; k < NR; k++)
			if (k != GUARD)
				check_page(root->area[i] + k * page, k == GIVEN_UP || k == MOVED ? 0 : (int)(k + 1 + i),
					   i, k);
		check_page(root->moved[i], (int)(MOVED + 1 + i), i, MOVED);
	}
}

int main(int argc, char **argv)
{
	page = (size_t)sysconf(_SC_PAGESIZE);
	if (argc == 2 && strcmp(argv[1], "take") == 0) {
		take();
	} else if (argc == 4 && strcmp(argv[1], "check") == 0) {
		check(argv[2], (const struct root *)(uintptr_t)strtoull(argv[3], NULL, 16));
	} else {
		fprintf(stderr, "usage: captured_calls take | check DIR ROOT\n");
		return 2;
	}
	return 0;
}
