/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Parses the subset of Python's pickle format that torch.save() writes into a tree: dictionaries, lists, tuples, texts,
 * numbers, tensors and their storages. Nothing is executed: a class is only a name, and any other object is a node
 * without content. Trusts nothing: -EBADMSG, -E2BIG, -ENOMEM.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum pickle_kind {
	PICKLE_THING, /* anything else */
	PICKLE_MARK,
	PICKLE_INT,
	PICKLE_TEXT,
	PICKLE_GLOBAL, /* text: "module name" */
	PICKLE_LIST, /* tuples too; children in order */
	PICKLE_DICT, /* children: key, value, key, value */
	PICKLE_STORAGE, /* from a persistent id: children are those of its tuple */
	PICKLE_TENSOR /* children: arguments of its rebuild function, the storage first */
};

struct pickle_node {
	enum pickle_kind kind;
	int64_t number;
	const char *text; /* in the pickle */
	size_t len;
	uint32_t first, last, next; /* children, and the next sibling; 0: none */
};

struct pickle {
	struct pickle_node *node; /* index 0 is unused */
	uint32_t nr, root;
};

int pickle_parse(const uint8_t *p, size_t len, struct pickle *ret);
void pickle_release(struct pickle *p);
/* The n-th child, or NULL. */
const struct pickle_node *pickle_child(const struct pickle *p, const struct pickle_node *of, unsigned n);
