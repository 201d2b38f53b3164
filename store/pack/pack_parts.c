/*
 * Parts of compressed frames, from the disk into memory. Only those that are wanted are read, in whole blocks,
 * neighbours and those with a small gap between them at once. What they are coded against is wanted with them.
 */
#include <errno.h>
#include <string.h>

#include "base/io.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

/* Stored bytes [from, to) to where they would be with all the others. -EBADMSG: the file ends too early. */
static int read_stored(struct part_read *pr, uint32_t from, uint32_t to)
{
	uint32_t off = (uint32_t)round_down(from, PACK_BLOCK), len = (uint32_t)round_up(to, PACK_BLOCK) - off;
	ssize_t n;

	io_rate_wait(pr->packs->conf.read_rate, len);
	n = io_pread(pr->file->fd, pr->stored->data + off, len, pack_data_off(pr->frame) + (uint64_t)off);
	if (n == -EINVAL) /* the file ends inside a block, and direct I/O cannot read on from there */
		return -EBADMSG;
	if (n < 0)
		return (int)n;
	pr->packs->read_bytes += (uint64_t)n;
	return (uint32_t)n < len ? -EBADMSG : 0;
}

static int read_wanted(struct part_read *pr, uint32_t skip_max)
{
	uint32_t from = 0, to = 0; /* what is to be read next */
	int r;

	for (uint32_t i = 0; i < pack_nr_parts(pr->plain_len); i++) {
		uint32_t start = pack_part_start(pr->coding, i), end = pr->coding->part_end[i];

		if (!pr->to[i] || end <= pr->have)
			continue;
		if (to > 0 && start - to > skip_max) {
			r = read_stored(pr, from, to);
			if (r < 0)
				return r;
			to = 0;
		}
		if (to == 0)
			from = MAX(start, pr->have);
		to = end;
	}
	return to > 0 ? read_stored(pr, from, to) : 0;
}

static int decompress(struct part_read *pr, uint32_t part, struct coder *coder)
{
	uint32_t start = pack_part_start(pr->coding, part), len = pr->coding->part_end[part] - start;
	uint32_t plain = pack_part_len(pr->plain_len, part);

	int n;

	if (len < plain) {
		n = codec_decompress_some(coder, pr->coding->codec, pr->stored->data + start, len, pr->to, part,
					  pr->to[part], plain);
		return n < 0 ? n : (uint32_t)n == plain ? 0 : -EBADMSG;
	}
	memcpy(pr->to[part], pr->stored->data + start, plain);
	return 0;
}

static uint32_t wanted_parts(const struct part_read *pr)
{
	uint32_t parts = 0;

	for (uint32_t i = 0; i < PACK_PARTS; i++)
		parts |= pr->to[i] ? 1u << i : 0;
	return parts;
}

/* Those that they are coded against go to the spare memory. */
static void want_bases(struct part_read *pr)
{
	uint32_t wanted = wanted_parts(pr), all = pack_with_bases(pr->coding, pr->plain_len, wanted);

	pr->bases = all & ~wanted;
	for (uint32_t i = 0; i < PACK_PARTS; i++)
		if (pr->bases >> i & 1)
			pr->to[i] = pr->spare + i * PACK_PART_BYTES;
}

int packs_read_parts(struct part_read *pr)
{
	struct coder *coder;
	int r;

	want_bases(pr);
	r = read_wanted(pr, PACK_SKIP_BYTES);
	if (r == -EIO) /* perhaps of a part that nobody asked for */
		r = read_wanted(pr, 0);
	if (r < 0)
		return r;
	coder = coder_get(&pr->packs->coders);
	if (!coder)
		return -ENOMEM;
	for (uint32_t i = 0; i < pack_nr_parts(pr->plain_len) && r != -ENOMEM; i++) {
		if (!pr->to[i])
			continue;
		/* without its base it is lost */
		r = pack_with_bases(pr->coding, pr->plain_len, 1u << i) & pr->bad ? -EBADMSG : decompress(pr, i, coder);
		if (r == -EBADMSG)
			pr->bad |= 1u << i;
	}
	coder_put(&pr->packs->coders, coder);
	return r == -ENOMEM ? r : 0;
}
