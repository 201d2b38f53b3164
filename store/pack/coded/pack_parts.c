/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Reads parts of compressed frames from disk and decodes them. Only the wanted parts are read, in whole blocks;
 * adjacent parts and parts with small gaps between them are read at once. Parts that they are coded against are read
 * with them.
 *
 * Several threads decode the parts of one read. Each takes the first part that is not taken. The parts that it needs
 * precede it, so they are done or in progress, and the first part waits for none: there is no deadlock. The left-over
 * bytes of a part (store/codec/match.h) are placed before its thread waits for the left-over bytes of other parts.
 */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "base/util.h"
#include "store/codec/code_format.h"
#include "store/pack/packs_impl.h"

/* A part has five times as many bytes after its levels: skip them unless the gap is tiny. */
#define SKIP_BEHIND_LEVELS (2 * PACK_BLOCK)
#define ALONE_MAX 2u /* parts: decoded before another thread would have started */

/* Read stored bytes [from, to) to their offset in the stored data. -EBADMSG: the file ends too early. */
static int read_stored(struct part_read *pr, uint32_t from, uint32_t to)
{
	uint32_t off = (uint32_t)round_down(from, PACK_BLOCK), len = (uint32_t)round_up(to, PACK_BLOCK) - off;
	ssize_t n;

	n = io_pread(pr->file->fd, pr->stored->data + off, len, pack_data_off(pr->frame) + (uint64_t)off);
	if (n == -EINVAL) /* the file ends inside a block, and direct I/O cannot continue there */
		return -EBADMSG;
	if (n < 0)
		return (int)n;
	pr->packs->read_bytes += (uint64_t)n;
	return (uint32_t)n < len ? -EBADMSG : 0;
}

/* For each part, the end of the stored bytes that are needed: all of a decoded part, only the levels of a part that
 * just provides those; 0: none. */
static void find_ends(const struct part_read *pr, uint32_t ret[PACK_PARTS])
{
	memset(ret, 0, PACK_PARTS * sizeof(*ret));
	for (uint32_t i = 0; i < pack_nr_parts(pr->plain_len); i++) {
		if (!(pr->decoded >> i & 1))
			continue;
		ret[i] = pr->coding->part_end[i];
		if (pack_is_by_levels(pr->coding, i)) {
			uint32_t base = code_place_off(pr->coding->base[i]) / PACK_PART_BYTES;

			ret[base] = MAX(ret[base], pack_levels_end(pr->coding, i));
		}
	}
}

struct stretch {
	uint32_t from, to;
};

/* Ranges to read at once. Returns their number. */
static unsigned find_stretches(const struct part_read *pr, uint32_t skip_max, struct stretch ret[PACK_PARTS])
{
	uint32_t ends[PACK_PARTS], skip = 0;
	unsigned nr = 0;

	find_ends(pr, ends);
	for (uint32_t i = 0; i < pack_nr_parts(pr->plain_len); i++) {
		uint32_t start = pack_part_start(pr->coding, i);

		if (ends[i] <= pr->have)
			continue;
		if (nr == 0 || start - ret[nr - 1].to > skip)
			ret[nr++].from = MAX(start, pr->have);
		ret[nr - 1].to = ends[i];
		skip = ends[i] == pr->coding->part_end[i] ? skip_max : MIN(skip_max, SKIP_BEHIND_LEVELS);
	}
	return nr;
}

static int read_wanted(struct part_read *pr, uint32_t skip_max)
{
	struct stretch s[PACK_PARTS];
	unsigned nr = find_stretches(pr, skip_max, s);
	uint64_t bytes = 0;
	int r = 0;

	for (unsigned i = 0; i < nr; i++)
		bytes += round_up(s[i].to, PACK_BLOCK) - round_down(s[i].from, PACK_BLOCK);
	io_rate_wait(pr->packs->conf.read_rate, bytes); /* once for all: does not queue behind other readers */
	for (unsigned i = 0; i < nr && r == 0; i++)
		r = read_stored(pr, s[i].from, s[i].to);
	return r;
}

static uint32_t wanted_parts(const struct part_read *pr)
{
	uint32_t parts = 0;

	for (uint32_t i = 0; i < PACK_PARTS; i++)
		parts |= pr->to[i] ? 1u << i : 0;
	return parts;
}

static uint8_t *in_spare(const struct part_read *pr, uint32_t part)
{
	return pr->spare + part * PACK_PART_BYTES;
}

/* Parts that are cached need not be decoded; parts needed only as bases go to the spare memory. Returns the parts whose
 * left-over bytes alone are wanted. */
static uint32_t want_bases(struct part_read *pr)
{
	uint32_t wanted = wanted_parts(pr), left,
		 all = pack_to_decode(pr->coding, pr->plain_len, wanted & ~pr->held.whole, &left);

	pr->decoded = all & ~pr->held.whole & ~(left & pr->held.left);
	pr->bases = pr->decoded & ~wanted & ~left;
	for (uint32_t i = 0; i < PACK_PARTS; i++) {
		if (wanted & pr->held.whole & 1u << i && pr->to[i] != in_spare(pr, i))
			memcpy(pr->to[i], in_spare(pr, i), pack_part_len(pr->plain_len, i));
		if (all & ~wanted & 1u << i)
			pr->to[i] = in_spare(pr, i);
	}
	return left;
}

/* Does any part need another one to be decoded? */
static bool decodes_others(const struct pack_coding *c)
{
	bool is_so = false;

	for (uint32_t i = 0; c->codec == PACK_CODEC_CODED && i < PACK_PARTS; i++)
		is_so |= c->base[i] > 0 && !pack_is_by_levels(c, i);
	return is_so;
}

/* Will it probably be read again, for another page or as a base? Decoding again is costly if parts need others. */
static bool is_read_again(const struct part_read *pr)
{
	bool is_all = true;

	for (uint32_t i = 0; i < pack_nr_parts(pr->plain_len); i++)
		is_all &= pr->to[i] != NULL;
	return !is_all && decodes_others(pr->coding);
}

struct decoding {
	struct part_read *pr;
	uint32_t only_left; /* parts (bit mask) whose left-over bytes alone are wanted */
	uint32_t kept; /* parts to copy to the spare memory as well */

	struct mutex lock; /* leaf */
	struct cond changed;
	uint32_t next GUARDED_BY(lock); /* first part not taken by a thread */
	uint32_t left GUARDED_BY(lock), done GUARDED_BY(lock), bad GUARDED_BY(lock); /* bit masks of parts */
	bool no_memory GUARDED_BY(lock);
};

static uint32_t take_part(struct decoding *d)
{
	uint32_t nr = pack_nr_parts(d->pr->plain_len), part;

	mutex_lock(&d->lock);
	while (d->next < nr && !(d->pr->decoded >> d->next & 1))
		d->next++;
	part = d->next < nr ? d->next++ : nr;
	mutex_unlock(&d->lock);
	return part;
}

/* Wait until the left-over bytes of these parts are placed, or until all of them are decoded. false: one failed. */
static bool wait_for(struct decoding *d, const uint32_t *which, uint32_t parts)
{
	bool is_good;

	mutex_lock(&d->lock);
	while ((parts & ~*which) != 0)
		cond_wait(&d->changed, &d->lock);
	is_good = (parts & d->bad) == 0;
	mutex_unlock(&d->lock);
	return is_good;
}

/* Mark the left-over bytes of a part, or all of it, as available or failed. */
static void publish_part(struct decoding *d, uint32_t part, bool is_done, int r)
{
	mutex_lock(&d->lock);
	d->left |= 1u << part;
	d->done |= is_done ? 1u << part : 0;
	d->bad |= r < 0 ? 1u << part : 0;
	d->no_memory |= r == -ENOMEM;
	cond_broadcast(&d->changed);
	mutex_unlock(&d->lock);
}

/* A part with runs from the left-over bytes of others. */
static int decode_matched(struct decoding *d, uint32_t part, struct coder *coder, const uint8_t *p, uint32_t len)
{
	struct part_read *pr = d->pr;
	uint32_t plain = pack_part_len(pr->plain_len, part), bases = pack_base_parts(pr->coding, pr->plain_len, part);
	int n = codec_place_left(coder, p, len, pr->coding->base[part], pr->to[part], plain);

	if (n < 0 || d->only_left >> part & 1)
		return MIN(n, 0);
	if ((uint32_t)n != plain)
		return -EBADMSG;
	publish_part(d, part, false, 0);
	/* without its base it cannot be decoded */
	return wait_for(d, &d->left, bases) ? codec_place_runs(coder, p, pr->to, part, pr->to[part]) : -EBADMSG;
}

/* A part that uses the levels of another one, which need not be decoded for it. */
static int decode_by_levels(struct decoding *d, uint32_t part, struct coder *coder, const uint8_t *p, uint32_t len)
{
	const struct pack_coding *coding = d->pr->coding;
	uint32_t base = pack_part_start(coding, code_place_off(coding->base[part]) / PACK_PART_BYTES);

	return codec_decompress_by_levels(coder, p, len, coding->base[part], d->pr->stored->data + base,
					  pack_levels_end(coding, part) - base, d->pr->to[part],
					  pack_part_len(d->pr->plain_len, part));
}

static int decode_part(struct decoding *d, uint32_t part, struct coder *coder)
{
	struct part_read *pr = d->pr;
	uint32_t start = pack_part_start(pr->coding, part), len = pr->coding->part_end[part] - start;
	uint32_t plain = pack_part_len(pr->plain_len, part);
	const uint8_t *p = pr->stored->data + start;
	int n;

	if (len == plain) {
		memcpy(pr->to[part], p, plain);
		return 0;
	}
	if (pack_is_matched(pr->coding, part))
		return decode_matched(d, part, coder, p, len);
	if (pack_is_by_levels(pr->coding, part))
		return decode_by_levels(d, part, coder, p, len);
	if (!wait_for(d, &d->done, pack_base_parts(pr->coding, pr->plain_len, part)))
		return -EBADMSG;
	n = codec_decompress_some(coder, pr->coding->codec, p, len, pr->to, part, pr->to[part], plain);
	return n < 0 ? n : (uint32_t)n == plain ? 0 : -EBADMSG;
}

static void decode_some(void *userdata)
{
	struct decoding *d = userdata;
	struct coder *coder = coder_get(&d->pr->packs->coders);
	uint32_t part;

	while ((part = take_part(d)) < pack_nr_parts(d->pr->plain_len)) {
		publish_part(d, part, true, coder ? decode_part(d, part, coder) : -ENOMEM);
		if (d->kept >> part & 1)
			memcpy(in_spare(d->pr, part), d->pr->to[part], pack_part_len(d->pr->plain_len, part));
	}
	coder_put(&d->pr->packs->coders, coder);
}

/* Record which parts are in the spare memory now. */
static void set_held(struct part_read *pr, const struct decoding *d)
{
	uint32_t whole = d->kept;

	for (uint32_t i = 0; i < PACK_PARTS; i++)
		if ((pr->decoded & ~d->only_left) >> i & 1 && pr->to[i] == in_spare(pr, i))
			whole |= 1u << i;
	pr->held.plain_len = pr->plain_len;
	pr->held.whole |= whole & ~pr->bad;
	pr->held.left |= pr->decoded & d->only_left & ~pr->bad;
}

int packs_read_parts(struct part_read *pr)
{
	struct decoding d = { .pr = pr, .only_left = want_bases(pr) };
	unsigned nr = (unsigned)__builtin_popcount(pr->decoded);
	int r;

	r = read_wanted(pr, PACK_SKIP_BYTES);
	if (r == -EIO) /* perhaps in a gap between the wanted parts */
		r = read_wanted(pr, 0);
	if (r < 0 || nr == 0)
		return r;
	for (uint32_t i = 0; i < PACK_PARTS && is_read_again(pr); i++)
		if (pr->decoded >> i & 1 && pr->to[i] != in_spare(pr, i))
			d.kept |= 1u << i;
	d.done = pr->held.whole & ~pr->decoded;
	d.left = d.done | (pr->held.left & ~pr->decoded);
	mutex_init(&d.lock);
	cond_init(&d.changed);
	pack_crew_run(&pr->packs->crew, nr > ALONE_MAX && !pr->is_alone ? nr / 2 : 0, decode_some, &d);
	pr->bad = d.bad;
	set_held(pr, &d);
	r = d.no_memory ? -ENOMEM : 0;
	cond_release(&d.changed);
	mutex_release(&d.lock);
	return r;
}
