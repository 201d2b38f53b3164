/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Leak checking that costs nothing where nothing has leaked; linked into every unit test of the ASan tree.
 *
 * LeakSanitizer visits every block there could be, several times over. Where the sanitizer's allocator has no fixed
 * region (arm64 with gcc 12 or clang 14) that is 2^28 places and takes 4.4 s of processor time, for a program that did
 * nothing at all. It asks us first whether it is to look. We say no only if we have found every block ourselves:
 * starting at what is in static and thread-local variables, from block to block, the sizes of what we reach must add
 * up to the very number of bytes that the allocator has given out. LeakSanitizer starts at all that and also at stacks
 * and registers, and follows pointers into the middle of blocks, which we do not: what we reach, it reaches. Anything
 * else, a leak or not, is left to its judgement.
 *
 * glibc keeps the stacks of ended threads, and with them a block for each that only it can find: the tests are run with
 * GLIBC_TUNABLES=glibc.pthread.stack_cache_size=0 (meson.build), without which they are as right, and slow.
 */
#include "tests/leaks.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/util.h"

#define BLOCKS_MAX ((size_t)1 << 18) /* far more than a test leaves behind; beyond it LeakSanitizer is asked */
#define SLOTS (4 * BLOCKS_MAX) /* a quarter full at most, so that probes end and are short */
#define ALIGNMENT 16 /* of the sanitizer's blocks, at least */

/* The sanitizer's; gcc has no header that declares them. */
int __sanitizer_get_ownership(const volatile void *p);
size_t __sanitizer_get_allocated_size(const volatile void *p);
size_t __sanitizer_get_current_allocated_bytes(void);

struct reached {
	uintptr_t sanitizer; /* an address in its library, whose variables lead to blocks that have leaked, too */
	size_t nr, bytes;
	bool too_many;
	const void *blocks[BLOCKS_MAX]; /* in the order in which they were found: the first were followed first */
	const void *slots[SLOTS];
};

static void reach(struct reached *re, const void *p)
{
	size_t i = (uintptr_t)p / ALIGNMENT % SLOTS;

	if (!p || (uintptr_t)p % ALIGNMENT != 0 || !__sanitizer_get_ownership(p))
		return;
	for (; re->slots[i]; i = (i + 1) % SLOTS)
		if (re->slots[i] == p)
			return;
	if (re->nr == BLOCKS_MAX) {
		re->too_many = true;
		return;
	}
	re->slots[i] = re->blocks[re->nr++] = p;
	re->bytes += __sanitizer_get_allocated_size(p);
}

static void follow(struct reached *re, uintptr_t begin, size_t len)
{
	uintptr_t end = begin + len;

	for (uintptr_t at = round_up(begin, sizeof(void *)); at + sizeof(void *) <= end; at += sizeof(void *))
		reach(re, *(const void *const *)at);
}

static bool is_in(uintptr_t address, const struct dl_phdr_info *info)
{
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];

		if (h->p_type == PT_LOAD && address - (info->dlpi_addr + h->p_vaddr) < h->p_memsz)
			return true;
	}
	return false;
}

static int follow_variables(struct dl_phdr_info *info, size_t size, void *userdata)
{
	struct reached *re = userdata;

	(void)size;
	if (is_in(re->sanitizer, info))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];

		if (h->p_type == PT_LOAD && h->p_flags & PF_W)
			follow(re, info->dlpi_addr + h->p_vaddr, h->p_memsz);
		if (h->p_type == PT_TLS && info->dlpi_tls_data)
			follow(re, (uintptr_t)info->dlpi_tls_data, h->p_memsz);
	}
	return 0;
}

int __lsan_is_turned_off(void)
{
	struct reached *re = mmap(NULL, sizeof(*re), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool all;

	if (re == MAP_FAILED)
		return false;
	re->sanitizer = (uintptr_t)dlsym(RTLD_NEXT, "__sanitizer_get_ownership"); /* & would be our own jump to it */
	if (re->sanitizer) /* else it is linked statically, and its variables cannot be told from ours */
		dl_iterate_phdr(follow_variables, re);
	for (size_t i = 0; i < re->nr; i++)
		follow(re, (uintptr_t)re->blocks[i], __sanitizer_get_allocated_size(re->blocks[i]));
	all = !re->too_many && re->bytes == __sanitizer_get_current_allocated_bytes();
	munmap(re, sizeof(*re));
	return all;
}
