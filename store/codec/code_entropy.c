/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "store/codec/code_entropy.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* for ZSTD_c_literalCompressionMode */
#include <zstd.h>
#include <zstd_errors.h>

#include "base/log.h"
#include "base/util.h"
#include "store/codec/code.h"

struct code_entropy_work {
	ZSTD_CCtx *in, *symbols; /* the latter does not search for matches */
	ZSTD_DCtx *out;
};

/* Effectively disables matches: they must be long, are found in a table of hardly any entries, and the search steps
 * over a whole section. Levels below 0 would disable them too, but store literals uncompressed. */
static bool look_for_no_matches(ZSTD_CCtx *c)
{
	static const struct {
		ZSTD_cParameter parameter;
		int value;
	} settings[] = {
		{ ZSTD_c_strategy, ZSTD_fast },
		{ ZSTD_c_targetLength, ZSTD_TARGETLENGTH_MAX },
		{ ZSTD_c_hashLog, ZSTD_HASHLOG_MIN },
		{ ZSTD_c_minMatch, ZSTD_MINMATCH_MAX },
		{ ZSTD_c_literalCompressionMode, ZSTD_ps_enable },
	};

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (ZSTD_isError(ZSTD_CCtx_setParameter(c, settings[i].parameter, settings[i].value)))
			return false;
	return true;
}

struct code_entropy_work *code_entropy_new(void)
{
	struct code_entropy_work *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->in = ZSTD_createCCtx();
	w->symbols = ZSTD_createCCtx();
	w->out = ZSTD_createDCtx();
	if (w->in && w->symbols && w->out && look_for_no_matches(w->symbols))
		return w;
	code_entropy_free(w);
	return NULL;
}

void code_entropy_free(struct code_entropy_work *w)
{
	if (!w)
		return;
	ZSTD_freeCCtx(w->in);
	ZSTD_freeCCtx(w->symbols);
	ZSTD_freeDCtx(w->out);
	free(w);
}

int code_entropy_in(struct code_entropy_work *w, enum code_entropy entropy, int level, const void *p, size_t len,
		    void *ret)
{
	size_t n;

	if (len < 2 || entropy == CODE_ENTROPY_NONE)
		return 0;
	if (entropy == CODE_ENTROPY_LZ4)
		return LZ4_compress_default(p, ret, (int)len, (int)len - 1);
	n = level == CODE_LEVEL_SYMBOLS ? ZSTD_compress2(w->symbols, ret, len - 1, p, len) :
					  ZSTD_compressCCtx(w->in, ret, len - 1, p, len, level);
	if (!ZSTD_isError(n))
		return (int)n;
	if (ZSTD_getErrorCode(n) == ZSTD_error_dstSize_tooSmall)
		return 0;
	return log_errno(ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation ? -ENOMEM : -EINVAL, "zstd level %d: %s",
			 level, ZSTD_getErrorName(n));
}

int code_entropy_out(struct code_entropy_work *w, enum code_entropy entropy, const void *p, size_t len, void *ret,
		     size_t ret_len)
{
	size_t n;

	if (entropy == CODE_ENTROPY_LZ4)
		return LZ4_decompress_safe(p, ret, (int)len, (int)ret_len) == (int)ret_len ? 0 : -EBADMSG;
	if (entropy != CODE_ENTROPY_ZSTD)
		return -EBADMSG;
	n = ZSTD_decompressDCtx(w->out, ret, ret_len, p, len);
	if (ZSTD_isError(n) && ZSTD_getErrorCode(n) == ZSTD_error_memory_allocation)
		return -ENOMEM;
	return n == ret_len ? 0 : -EBADMSG;
}
