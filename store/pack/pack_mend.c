#include "store/pack/pack_mend.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/packs_impl.h"

/* Of the 15 bytes of a fingerprint: so many agree by chance once in 2^87. */
#define PROOF_BYTES 12

/* One block over its place, through the page cache: direct I/O wants no more than this to be right. */
static int write_block(struct packs *p, uint32_t pack, uint64_t off, const void *block)
{
	_cleanup_(closep) int fd = -1;
	int r;

	fd = io_open(p->dirfd, pack_name(pack).s, O_WRONLY, 0);
	if (fd < 0)
		return log_errno(fd, "pack %" PRIu32 ": cannot open to mend it", pack);
	r = io_pwrite(fd, block, PACK_BLOCK, off);
	if (r == 0)
		r = io_sync(fd);
	return r < 0 ? log_errno(r, "pack %" PRIu32 " offset %" PRIu64 ": cannot be mended", pack, off) : 0;
}

int packs_mend_header(struct packs *p, uint32_t pack, enum pack_stream stream)
{
	struct pack_header h = { .pack = pack, .node = p->conf.node, .stream = stream };
	struct pack_header_disk block;

	memcpy(h.store_id, p->conf.store_id, sizeof(h.store_id));
	pack_header_encode(&h, &block);
	return write_block(p, pack, 0, &block);
}

static bool fp_nearly_equal(const uint8_t a[FP_LEN], const uint8_t b[FP_LEN])
{
	unsigned n = 0;

	for (unsigned i = 0; i < FP_LEN; i++)
		n += a[i] == b[i];
	return n >= PROOF_BYTES;
}

static bool slot_is_zero(const uint8_t slot[FP_LEN])
{
	static const uint8_t zero[FP_LEN];

	return memcmp(slot, zero, FP_LEN) == 0;
}

/* Take the chunks to be so long: how many of them does the table agree with? Fills *ret in. */
static uint32_t try_length(struct packs *p, const struct pack_table_disk *d, const uint8_t *data, uint32_t data_len,
			   uint32_t chunk_len, struct pack_salvage *ret)
{
	uint32_t nr = data_len / chunk_len, nr_proved = 0;
	uint8_t bytes[FP_LEN];

	memset(ret->proved, 0, sizeof(ret->proved));
	ret->chunk_len = chunk_len;
	ret->nr_chunks = 0;
	fp_of_each(p->conf.key, data, chunk_len, nr, ret->bytes);
	for (uint32_t i = 0; i < PACK_FRAME_BYTES / chunk_len; i++) {
		ret->fps[i] = fp_decode(d->fps[i]);
		if (i >= nr)
			continue;
		fp_encode(ret->bytes[i], bytes);
		if (!fp_nearly_equal(bytes, d->fps[i]))
			continue;
		ret->fps[i] = ret->bytes[i];
		ret->proved[i] = true;
		ret->nr_chunks = i + 1;
		nr_proved++;
	}
	return nr_proved;
}

/* Three places tell how many chunks there are; two that agree are right, if no more are proved. */
static void decide_number(const struct pack_table_disk *d, struct pack_salvage *s)
{
	uint32_t max = PACK_FRAME_BYTES / s->chunk_len, said[3];

	said[0] = le32_get(d->nr_chunks);
	said[1] = le32_get(d->stored_len) / s->chunk_len;
	for (said[2] = max; said[2] > 0 && slot_is_zero(d->fps[said[2] - 1]); said[2]--)
		;
	for (unsigned i = 0; i < ARRAY_SIZE(said); i++)
		if (said[i] == said[(i + 1) % 3] && said[i] > s->nr_chunks && said[i] <= max)
			s->nr_chunks = said[i];
}

static int read_whole(struct packs *p, uint32_t pack, uint32_t frame, struct pack_buffer *b, uint32_t *ret_data_len)
{
	_cleanup_(closep) int fd = -1;
	struct iovec iov[2] = { { &b->table, PACK_BLOCK }, { b->data, PACK_FRAME_BYTES } };
	ssize_t n;

	fd = io_open(p->dirfd, pack_name(pack).s, O_RDONLY, 0);
	if (fd < 0)
		return fd;
	n = io_preadv(fd, iov, ARRAY_SIZE(iov), pack_table_off(frame));
	if (n < 0)
		return (int)n;
	*ret_data_len = (uint32_t)n - MIN((uint32_t)n, PACK_BLOCK);
	return n >= (ssize_t)PACK_BLOCK;
}

int packs_salvage_table(struct packs *p, uint32_t pack, uint32_t frame, struct pack_salvage *ret)
{
	struct pack_buffer *b = pack_buffer_get(&p->buffers);
	uint32_t data_len = 0, best = 0, best_len = 0, n;
	int r;

	if (!b)
		return -ENOMEM;
	r = read_whole(p, pack, frame, b, &data_len);
	for (uint32_t len = PACK_BLOCK; r > 0 && len <= PACK_FRAME_BYTES; len *= 2) { /* what page= can be */
		n = try_length(p, &b->table, b->data, data_len, len, ret);
		if (n > best) {
			best = n;
			best_len = len;
		}
	}
	if (r > 0 && best > 0) {
		try_length(p, &b->table, b->data, data_len, best_len, ret);
		decide_number(&b->table, ret);
		ret->pack = pack;
		ret->frame = frame;
	}
	pack_buffer_put(&p->buffers, b);
	return r < 0 ? r : best > 0;
}

int packs_mend_table(struct packs *p, const struct pack_salvage *s)
{
	struct pack_table t = { .chunk_len = s->chunk_len, .nr_chunks = s->nr_chunks };
	struct pack_table_disk block;
	int r;

	memcpy(t.fps, s->fps, sizeof(t.fps));
	pack_table_encode(&t, p->conf.key, s->pack, s->frame, &block);
	r = write_block(p, s->pack, pack_table_off(s->frame), &block);
	if (r == 0)
		pack_places_remove(&p->damaged, s->pack, pack_table_off(s->frame));
	return r;
}

int packs_wipe_table(struct packs *p, uint32_t pack, uint32_t frame)
{
	static const uint8_t zeros[PACK_BLOCK];
	int r = write_block(p, pack, pack_table_off(frame), zeros);

	if (r == 0)
		pack_places_remove(&p->damaged, pack, pack_table_off(frame));
	return r;
}
