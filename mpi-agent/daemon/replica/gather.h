/* Bytes of chunks, wherever they are. */
#pragma once

#include <stddef.h>

struct cluster_want;
struct fs;

/* Into wants[i].buf, from this store, and else by `fetch`, as struct cluster_calls has it, from their owners and
 * others. `got`: so it is, and they are those of the fingerprint. -ENOMEM, and what `fetch` returns. */
int gather_chunks(struct fs *fs, int (*fetch)(void *userdata, struct cluster_want *wants, size_t nr), void *userdata,
		  struct cluster_want *wants, size_t nr);
