/* Which epochs of a directory are kept: what user.ckptfs.keep of that directory says, and ckptfs-gc is told. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KEEP_XATTR "user.ckptfs.keep"
#define KEEP_LEN_MAX 256u

/* What any of these keeps is kept; zeros and false keep nothing. */
struct keep_policy {
	uint64_t last; /* so many of the newest */
	/* those whose number, the last one in their names, is a multiple of it, and those without one */
	uint64_t every;
	uint64_t within_ns; /* those that were sealed less long ago */
	/* those that a symbolic link beside them points to, or that have the extended attribute user.tag */
	bool tagged;
};

/* "last=5,every=100,within=7d,tagged": one or more of these, each once. Not NUL-terminated. -EINVAL */
int keep_parse(const char *p, size_t len, struct keep_policy *ret);
int keep_parse_number(const char *s, uint64_t *ret); /* 1 or more; -EINVAL */
bool keep_is_empty(const struct keep_policy *p);
