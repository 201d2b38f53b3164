/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A tree in memory, changed by the operations of a workload: what the engine's must equal. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "tests/crash/workload.h"

#define MODEL_NODES 24
#define MODEL_NAMES 24

struct model_node {
	uint32_t mode, nlink, uid; /* nlink 0: free */
	uint8_t *data;
	uint64_t size;
	int64_t mtime_ns;
	char target[16], xattr[16]; /* "": none */
};

struct model {
	struct model_node nodes[MODEL_NODES];
	struct {
		char path[WORKLOAD_PATH];
		struct model_node *node;
	} names[MODEL_NAMES];
	size_t nr_names;
};

void model_release(struct model *m);
struct model_node *model_find(struct model *m, const char *path); /* NULL: not there */
int model_apply(struct model *m, const struct work *op);
int model_list(const struct model *m, struct buf *ret); /* as tree_list() */
