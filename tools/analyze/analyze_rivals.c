/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/analyze/analyze_rivals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/noatime.h"
#include "base/util.h"
#include "tools/analyze/analyze_complain.h"

#define PIECE MiB(1)

/* Either gzip or zstd is open. */
struct compressor {
	z_stream gzip;
	ZSTD_CCtx *zstd;
	uint8_t *in, *out;
	uint64_t coded, ns;
};

static int add_gzip(struct compressor *c, size_t len, bool last)
{
	int r;

	c->gzip.next_in = c->in;
	c->gzip.avail_in = (unsigned)len;
	do {
		c->gzip.next_out = c->out;
		c->gzip.avail_out = (unsigned)PIECE;
		r = deflate(&c->gzip, last ? Z_FINISH : Z_NO_FLUSH);
		if (r == Z_STREAM_ERROR)
			return complain(-EIO, "zlib");
		c->coded += PIECE - c->gzip.avail_out;
	} while (c->gzip.avail_out == 0 || (last && r != Z_STREAM_END));
	return 0;
}

static int add_zstd(struct compressor *c, size_t len, bool last)
{
	ZSTD_inBuffer in = { c->in, len, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { c->out, PIECE, 0 };

		left = ZSTD_compressStream2(c->zstd, &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return complain(-EIO, "zstd: %s", ZSTD_getErrorName(left));
		c->coded += out.pos;
	} while (in.pos < in.size || (last && left > 0));
	return 0;
}

static int compress_block(struct compressor *c, size_t len, bool last)
{
	uint64_t from = thread_cpu_ns();
	int r = c->zstd ? add_zstd(c, len, last) : add_gzip(c, len, last);

	c->ns += thread_cpu_ns() - from;
	return r;
}

/* Ignores read errors, which files_examine() and stores_run() report. 1: continue, 0: stop. */
static int add_file(struct compressor *c, const struct file *f, bool (*step)(void *, uint64_t), void *userdata,
		    uint64_t *done)
{
	_cleanup_(closep) int fd = open_plain_noatime(AT_FDCWD, f->path, O_RDONLY | O_CLOEXEC);
	ssize_t n;
	int r;

	while (fd >= 0 && (n = read(fd, c->in, PIECE)) > 0) {
		r = compress_block(c, (size_t)n, false);
		if (r < 0)
			return r;
		*done += (uint64_t)n;
		if (!step(userdata, *done / NR_RIVALS))
			return 0;
	}
	return 1;
}

static int run(struct compressor *c, const struct files *files, bool (*step)(void *, uint64_t), void *userdata,
	       uint64_t *done)
{
	int r = 1;

	for (size_t i = 0; i < files->nr && r > 0; i++)
		r = add_file(c, &files->file[i], step, userdata, done);
	return r < 0 ? r : compress_block(c, 0, true);
}

int rivals_run(const struct files *files, bool (*step)(void *, uint64_t), void *userdata, struct rival ret[NR_RIVALS])
{
	static const struct {
		const char *name;
		int gzip, zstd;
	} rivals[NR_RIVALS] = { { "gzip -6", 6, 0 }, { "zstd -3", 0, 3 }, { "zstd -19", 0, 19 } };
	_cleanup_(freep) uint8_t *in = malloc(PIECE), *out = malloc(PIECE);
	uint64_t done = 0;
	int r = in && out ? 0 : -ENOMEM;

	for (size_t i = 0; i < NR_RIVALS && r == 0; i++) {
		struct compressor c = { .in = in, .out = out };

		if (rivals[i].gzip) {
			if (deflateInit2(&c.gzip, rivals[i].gzip, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
				return -ENOMEM;
		} else {
			c.zstd = ZSTD_createCCtx();
			if (!c.zstd)
				return -ENOMEM;
			ZSTD_CCtx_setParameter(c.zstd, ZSTD_c_compressionLevel, rivals[i].zstd);
		}
		r = run(&c, files, step, userdata, &done);
		ret[i] = (struct rival){ rivals[i].name, c.coded, c.ns };
		if (c.zstd)
			ZSTD_freeCCtx(c.zstd);
		else
			deflateEnd(&c.gzip);
	}
	return r;
}
