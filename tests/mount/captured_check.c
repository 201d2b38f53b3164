/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: captured_check DIR NUMBER ROOT
 *
 * Brings the memory of captured.c back from a checkpoint, to where it was, and looks at it; ROOT is the address that it
 * has printed. Its heap is then used on: all that is known of it was in the checkpoint, and whole. Exit status 3: the
 * program has not made all of it at that moment (ROOT is 0: it has not even said where).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "captured.h"
#include "client/lib/ckptfs.h"
#include "client/preload/heap.h"
#include "tests/unit/client/preload/heap_check.h"

#define HEAP_AT UINT64_C(0x100000000000)

/* Blocks are given back, and others taken, which have no owner. */
static const char *use_heap(struct root *root)
{
	struct heap heap = { .state = (struct heap_state *)HEAP_AT };

	if (!heap_is_consistent(&heap))
		return "the heap is not whole";
	for (uint32_t i = 0; i < NR_BLOCKS; i += 2)
		if (root->blocks[i].p && !root->blocks[i].changing) {
			heap_free(&heap, root->blocks[i].p);
			root->blocks[i].p = NULL;
		}
	for (size_t i = 0; i < 3000; i++) {
		uint8_t *p = heap_alloc(&heap, i * 7, 16, true);

		for (size_t k = 0; p && k < i * 7; k++)
			p[k] = 0xee;
	}
	return root_wrong(root);
}

int main(int argc, char **argv)
{
	const char *wrong;
	struct root *root;
	uint32_t number;
	int r;

	if (argc != 4) {
		fprintf(stderr, "usage: captured_check DIR NUMBER ROOT\n");
		return 2;
	}
	r = ckptfs_init(argv[1], NULL);
	if (r == 0)
		r = ckptfs_restart((uint32_t)strtoul(argv[2], NULL, 10), CKPTFS_RESTART_ADDRESSES, &number);
	if (r < 0) {
		fprintf(stderr, "captured_check: %s\n", ckptfs_strerror(r));
		return 1;
	}
	root = (struct root *)(uintptr_t)strtoull(argv[3], NULL, 16);
	if (!root || root->magic != ROOT_MAGIC) {
		fprintf(stderr, "captured_check: %" PRIu32 ": no root\n", number);
		return 3;
	}
	wrong = root_wrong(root);
	if (!wrong)
		wrong = use_heap(root);
	if (wrong) {
		fprintf(stderr, "captured_check: %" PRIu32 ": %s\n", number, wrong);
		return 1;
	}
	printf("right %" PRIu32 "\n", number);
	return 0;
}
