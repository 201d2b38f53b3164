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

/* --- chunks of varied lengths: where one begins is known from the lengths of those before it, or of those behind it --- */

struct varied {
	struct packs *p;
	const struct pack_table_disk *d;
	const uint8_t *data;
	uint32_t data_len, nr, total; /* what is taken to be there */
};

static uint32_t len_of(const struct pack_table_disk *d, uint32_t i)
{
	return le16_get(d->varied[i].len) + 1u;
}

/* Chunk i would be these bytes. Is it? */
static bool try_chunk(const struct varied *v, uint32_t i, uint32_t from, uint32_t end, struct pack_salvage *ret)
{
	uint8_t bytes[FP_LEN];

	ret->ends[i] = end;
	ret->bytes[i] = fp_of(v->p->conf.key, v->data + from, end - from);
	fp_encode(ret->bytes[i], bytes);
	ret->proved[i] = fp_nearly_equal(bytes, v->d->varied[i].fp);
	ret->fps[i] = ret->proved[i] ? ret->bytes[i] : fp_decode(v->d->varied[i].fp);
	return ret->proved[i];
}

/* Chunks [first, end) have these bytes, and nothing says what is whose: by their lengths if those can be, else all alike. */
static bool try_middle(const struct varied *v, uint32_t first, uint32_t end, uint32_t from, uint32_t to,
		       struct pack_salvage *ret)
{
	uint32_t nr = end - first, sum = 0;

	for (uint32_t i = first; i < end; i++)
		sum += len_of(v->d, i);
	if (nr == 0 || to - from < nr || to - from > nr * PACK_VARIED_LEN_MAX)
		return nr == 0 && from == to;
	for (uint32_t i = first, at = from, n; i < end; i++, at += n) {
		n = sum == to - from ? len_of(v->d, i) : i + 1 == end ? to - at : (to - from) / nr;
		if (n > PACK_VARIED_LEN_MAX)
			return false;
		try_chunk(v, i, at, at + n, ret);
	}
	return true;
}

/* From both ends until nothing is proved any more; then what is left in the middle. How many are proved; fills *ret in. */
static uint32_t try_varied(const struct varied *v, struct pack_salvage *ret)
{
	uint32_t first = 0, end = v->nr, from = 0, to = v->total, nr_proved = 0;

	if (v->nr == 0 || v->nr > PACK_VARIED_MAX || v->total > v->data_len)
		return 0;
	memset(ret->proved, 0, sizeof(ret->proved));
	ret->chunk_len = PACK_VARIED;
	ret->nr_chunks = v->nr;
	while (first < end && len_of(v->d, first) <= to - from &&
	       try_chunk(v, first, from, from + len_of(v->d, first), ret))
		from += len_of(v->d, first++);
	while (first < end && len_of(v->d, end - 1) <= to - from &&
	       try_chunk(v, end - 1, to - len_of(v->d, end - 1), to, ret))
		to -= len_of(v->d, --end);
	if (!try_middle(v, first, end, from, to, ret))
		return 0;
	for (uint32_t i = 0; i < v->nr; i++)
		nr_proved += ret->proved[i];
	return nr_proved;
}

/* Number and sum of the lengths are told twice. *ret is filled in for the pair that most is proved of. */
static uint32_t salvage_varied(struct packs *p, const struct pack_table_disk *d, const uint8_t *data, uint32_t data_len,
			       uint32_t at_least, struct pack_salvage *ret)
{
	static const struct pack_varied_disk zero;
	uint32_t nr[2] = { le32_get(d->nr_chunks), PACK_VARIED_MAX }, best = at_least, n;
	struct varied v = { .p = p, .d = d, .data = data, .data_len = data_len }, best_v = v;

	while (nr[1] > 0 && memcmp(&d->varied[nr[1] - 1], &zero, sizeof(zero)) == 0)
		nr[1]--;
	for (unsigned i = 0; i < 2; i++) {
		uint32_t total[2] = { le32_get(d->stored_len), 0 };

		for (uint32_t k = 0; k < nr[i] && k < PACK_VARIED_MAX; k++)
			total[1] += len_of(d, k);
		for (unsigned k = 0; k < 2; k++) {
			v.nr = nr[i];
			v.total = total[k];
			n = try_varied(&v, ret);
			if (n > best) {
				best = n;
				best_v = v;
			}
		}
	}
	return best > at_least ? try_varied(&best_v, ret) : 0;
}

/* --- chunks of one length --- */

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
	n = r > 0 ? salvage_varied(p, &b->table, b->data, data_len, best, ret) : 0;
	if (r > 0 && n == 0 && best > 0) {
		try_length(p, &b->table, b->data, data_len, best_len, ret);
		decide_number(&b->table, ret);
		for (uint32_t i = 0; i < ret->nr_chunks; i++)
			ret->ends[i] = (i + 1) * best_len;
	}
	best = MAX(best, n);
	ret->pack = pack;
	ret->frame = frame;
	pack_buffer_put(&p->buffers, b);
	return r < 0 ? r : best > 0;
}

int packs_mend_table(struct packs *p, const struct pack_salvage *s)
{
	struct pack_table t = { .chunk_len = s->chunk_len, .nr_chunks = s->nr_chunks };
	struct pack_table_disk block;
	int r;

	memcpy(t.fps, s->fps, sizeof(t.fps));
	if (s->chunk_len == PACK_VARIED)
		memcpy(t.ends, s->ends, sizeof(t.ends));
	pack_table_encode(&t, p->conf.key, s->pack, s->frame, &block);
	r = write_block(p, s->pack, pack_table_off(s->frame), &block);
	if (r == 0)
		pack_places_remove(&p->damaged, s->pack, pack_table_off(s->frame));
	return r;
}

int packs_restore_table(struct packs *p, uint32_t pack, uint32_t frame)
{
	struct pack_table_disk block;
	struct pack_table t;
	struct table_view v;
	int r;

	if (!pack_tables_get(p->tables, pack, frame, 0, PACK_FRAME_BYTES, &v))
		return 0;
	pack_tables_put(p->tables, &v);
	if (v.frame || v.error < 0)
		return 0;
	t = (struct pack_table){ .chunk_len = v.chunk_len, .nr_chunks = v.nr_chunks, .coding = v.coding };
	memcpy(t.fps, v.fps, v.nr_chunks * sizeof(*t.fps));
	if (v.chunk_len == PACK_VARIED)
		memcpy(t.ends, v.ends, v.nr_chunks * sizeof(*t.ends));
	pack_table_encode(&t, p->conf.key, pack, frame, &block);
	r = write_block(p, pack, pack_table_off(frame), &block);
	if (r < 0)
		return r;
	pack_places_remove(&p->damaged, pack, pack_table_off(frame));
	return 1;
}

int packs_wipe_table(struct packs *p, uint32_t pack, uint32_t frame)
{
	static const uint8_t zeros[PACK_BLOCK];
	int r = write_block(p, pack, pack_table_off(frame), zeros);

	if (r == 0)
		pack_places_remove(&p->damaged, pack, pack_table_off(frame));
	return r;
}
