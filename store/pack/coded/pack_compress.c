/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Compresses a frame before it is written, if it pays.
 *
 * Most checkpoint data is noise to a compressor, and trying costs more than all other processing of a page. So a few
 * samples are compressed first. If either the samples or the whole frame do not shrink by 5 %, the frame is written
 * uncompressed, directly from the caller's memory. `auto` also needs time: it asks the caller before compression
 * starts and, if there is only spare time, before each part. If another thread waits, the parts compressed so far are
 * discarded.
 */
#include <string.h>

#include "base/util.h"
#include "store/pack/packs_impl.h"

#define SAMPLES 4u
#define SAMPLE_BYTES (8u << 10)

/* Plain bytes of a frame: in place or, if the chunks lie apart, copied together. */
static const uint8_t *plain_bytes(const struct pack_frame *f, uint32_t off, uint32_t len, uint8_t *scratch)
{
	uint32_t in, done;
	const uint8_t *first;

	if (f->chunk_len == PACK_VARIED)
		return f->buffer->data + off;
	in = off % f->chunk_len;
	done = f->chunk_len - in;
	first = pack_frame_chunk(f, off / f->chunk_len) + in;
	while (done < len && pack_frame_chunk(f, (off + done) / f->chunk_len) == first + done)
		done += f->chunk_len;
	if (done >= len)
		return first;
	for (uint32_t n, at = 0; at < len; at += n) {
		in = (off + at) % f->chunk_len;
		n = MIN(f->chunk_len - in, len - at);
		memcpy(scratch + at, pack_frame_chunk(f, (off + at) / f->chunk_len) + in, n);
	}
	return scratch;
}

struct press {
	const struct pack_frame *f;
	struct coder *coder;
	enum pack_codec codec;
	int level;
	uint32_t plain_len;
	struct packs *spare; /* for conf.is_disturbed(), with spare time only; NULL: there is enough time */
	struct pack_buffer *to; /* `skip` is scratch */
};

static bool samples_shrink(const struct press *s)
{
	uint32_t step = (uint32_t)round_down(s->plain_len / SAMPLES, PACK_BLOCK), plain = 0, stored = 0;

	for (uint32_t i = 0, n; i < SAMPLES; i++) {
		size_t r;

		n = MIN(SAMPLE_BYTES, s->plain_len - i * step);
		r = codec_compress(s->coder, s->codec, s->level, plain_bytes(s->f, i * step, n, s->to->skip), n,
				   s->to->data);
		plain += n;
		stored += r > 0 ? (uint32_t)r : n;
	}
	return pack_is_worth_it(stored, plain);
}

static void press_part(const struct press *s, uint32_t part, struct pack_coding *ret)
{
	uint32_t len = pack_part_len(s->plain_len, part), at = pack_part_start(ret, part);
	const uint8_t *plain = plain_bytes(s->f, part * PACK_PART_BYTES, len, s->to->skip);
	size_t n = codec_compress(s->coder, s->codec, s->level, plain, len, s->to->data + at);

	if (n == 0) {
		memcpy(s->to->data + at, plain, len);
		n = len;
	}
	ret->part_end[part] = at + (uint32_t)n;
}

static bool is_disturbed(const struct press *s)
{
	return s->spare && s->spare->conf.is_disturbed(s->spare->conf.userdata);
}

enum pressed { PRESSED, NO_SMALLER, DISTURBED };

static enum pressed press_all(const struct press *s, struct pack_coding *ret)
{
	uint32_t nr = pack_nr_parts(s->plain_len), stored = 0, on_disk;

	for (uint32_t i = 0; i < nr; i++) {
		if (is_disturbed(s))
			return DISTURBED;
		press_part(s, i, ret);
		stored = ret->part_end[i];
		if (!pack_is_worth_it(stored, s->plain_len))
			return NO_SMALLER;
	}
	on_disk = (uint32_t)round_up(stored, PACK_BLOCK);
	memset(s->to->data + stored, 0, on_disk - stored);
	ret->codec = s->codec;
	return pack_is_worth_it(on_disk, s->plain_len) ? PRESSED : NO_SMALLER;
}

static enum pack_time time_for(struct packs *p, const struct pack_frame *f, uint32_t plain_len)
{
	if (f->compression.kind != PACK_COMPRESS_AUTO || !p->conf.time_for)
		return PACK_TIME_ENOUGH;
	return p->conf.time_for(p->conf.userdata, plain_len);
}

struct pack_buffer *packs_frame_compress(struct packs *p, const struct pack_frame *f, uint32_t plain_len,
					 struct pack_coding *ret)
{
	enum pressed pressed = NO_SMALLER;
	struct pack_coding coding = { 0 };
	enum pack_time time;
	struct press s = {
		.f = f,
		.codec = f->compression.kind == PACK_COMPRESS_ZSTD ? PACK_CODEC_ZSTD : PACK_CODEC_LZ4,
		.level = f->compression.level,
		.plain_len = plain_len,
	};

	if (f->compression.kind == PACK_COMPRESS_NONE || plain_len <= PACK_BLOCK)
		return NULL;
	time = time_for(p, f, plain_len);
	if (time == PACK_TIME_NONE) {
		p->busy_bytes += plain_len;
		return NULL;
	}
	s.spare = time == PACK_TIME_SPARE ? p : NULL;
	s.to = pack_buffer_get(&p->buffers);
	s.coder = coder_get(&p->coders);
	if (s.to && s.coder && samples_shrink(&s))
		pressed = press_all(&s, &coding);
	coder_put(&p->coders, s.coder);
	if (pressed == PRESSED) {
		*ret = coding;
		return s.to;
	}
	*(pressed == DISTURBED ? &p->busy_bytes : &p->unshrinkable_bytes) += plain_len;
	pack_buffer_put(&p->buffers, s.to);
	return NULL;
}
