/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading plain JSON: objects of numbers, strings and booleans become a list of (path, text) in order, as in
 * "memory.dirty_bytes" -> "4096". Trusts nothing: -EBADMSG.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct json_entry {
	char *path, *value; /* value: the text, of strings without quotes */
};

struct json_flat {
	struct json_entry *entry;
	size_t nr;
};

int json_flat_parse(const char *text, size_t len, struct json_flat *ret);
void json_flat_release(struct json_flat *j);
/* "" and 0 where there is no such path. */
const char *json_flat_get(const struct json_flat *j, const char *path);
uint64_t json_flat_u64(const struct json_flat *j, const char *path);
