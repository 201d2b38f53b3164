/*
 * The codecs: one part of a frame in, fewer bytes out, and back. Pure but for the working memory, which is kept in a coder
 * and used again: making it costs more than a part does. A few coders that are not in use are kept.
 *
 * Thread rule: any thread; a coder belongs to one thread at a time.
 */
#pragma once

#include <stddef.h>

#include "base/mutex.h"
#include "store/pack/pack_format.h"

struct coder;

struct coders {
	struct mutex lock; /* leaf */
	struct coder *free GUARDED_BY(lock);
	unsigned nr_free GUARDED_BY(lock);
};

void coders_init(struct coders *cs);
void coders_release(struct coders *cs);
struct coder *coder_get(struct coders *cs); /* NULL: no memory */
void coder_put(struct coders *cs, struct coder *c); /* NULL is fine */

/* Bytes of `ret`, fewer than len; 0: it does not get smaller, or there is no memory. `ret` has room for len. */
size_t codec_compress(struct coder *c, enum pack_codec codec, int level, const void *p, size_t len, void *ret);
/* To exactly ret_len bytes. -EBADMSG: it is damaged, and `ret` holds anything; -ENOMEM. */
int codec_decompress(struct coder *c, enum pack_codec codec, const void *p, size_t len, void *ret, size_t ret_len);
