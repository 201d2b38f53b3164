/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Usage: compare [SEED [ROUNDS]]
 *
 * Random chains of versions, taken on the GPU and by the twin on the CPU. Every object must be the same, byte by byte,
 * and give the content back. A round has its own chunk length, limit of the table, buffers (of any length and address,
 * with gaps between them) and patterns of change; some versions are abandoned and some forgotten.
 */
#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/util.h"
#include "gpu/format/delta_record.h"
#include "gpu/kernels/delta_gpu.h"
#include "tests/unit/gpu/format/delta_apply.h"
#include "tests/unit/gpu/format/whole_object.h"

#define NR_VERSIONS 9
#define BUFFERS_MAX 6

#define CHECK(ok, ...)                                                         \
	do {                                                                   \
		if (!(ok)) {                                                   \
			fprintf(stderr, "FAILED %s:%d: ", __FILE__, __LINE__); \
			fprintf(stderr, __VA_ARGS__);                          \
			fprintf(stderr, "\n");                                 \
			exit(1);                                               \
		}                                                              \
	} while (0)

struct chain {
	uint64_t seed, seed_given;
	uint32_t chunk_len;
	size_t max; /* bytes of content */
	struct leaf_key key;
	struct delta_record *twin;
	struct delta_gpu *gpu;
	struct buf versions[NR_VERSIONS + 1]; /* content, by number */
	bool forgotten[NR_VERSIONS + 1];
	uint32_t last;
	uint8_t *device; /* max bytes and room for odd addresses */
	struct buf object; /* the GPU's */
};

static uint64_t next_random(uint64_t *seed) /* splitmix64 */
{
	uint64_t n = *seed += 0x9e3779b97f4a7c15;

	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

static uint64_t below(struct chain *c, uint64_t n)
{
	return n > 0 ? next_random(&c->seed) % n : 0;
}

static void noise(struct chain *c, uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8) {
		uint64_t n = next_random(&c->seed);

		memcpy(p, &n, 8);
	}
	for (; len > 0; len--)
		*p++ = (uint8_t)next_random(&c->seed);
}

/* --- patterns --- */

static void change_chunks(struct chain *c, uint8_t *p, size_t len, bool zeros)
{
	uint64_t nr = len / c->chunk_len, changed = below(c, nr / (1 + below(c, 60)) + 2);

	for (uint64_t i = 0; nr > 0 && i < changed; i++) {
		uint8_t *chunk = p + below(c, nr) * c->chunk_len;

		if (zeros)
			memset(chunk, 0, c->chunk_len);
		else
			chunk[below(c, c->chunk_len)] ^= (uint8_t)(1 + below(c, 255));
	}
}

static void change_stretches(struct chain *c, uint8_t *p, size_t len)
{
	for (int i = 0; i < 3 && len > 0; i++) {
		size_t off = below(c, len);

		noise(c, p + off, below(c, len - off) / 4);
	}
}

/* Stretches move by whole chunks, or by any number of bytes. */
static void move_stretches(struct chain *c, uint8_t *p, size_t len, size_t align)
{
	for (int i = 0; i < 4 && len >= align; i++) {
		size_t from = below(c, len / align) * align, to = below(c, len / align) * align;

		memmove(p + to, p + from, below(c, (len - MAX(from, to)) / align + 1) * align / (1 + below(c, 3)));
	}
}

static void repeat(struct chain *c, uint8_t *p, size_t len)
{
	size_t period = c->chunk_len * (1 + below(c, 3)), off = below(c, len), n = below(c, len - off);

	for (size_t i = MAX(off, period); i < off + n; i++)
		p[i] = p[i - period];
}

static void bring_back(struct chain *c, uint8_t *p, size_t len)
{
	const struct buf *old = &c->versions[1 + below(c, c->last)];
	size_t align = c->chunk_len, to = below(c, len / align + 1) * align,
	       from = below(c, old->len / align + 1) * align;

	if (c->last == 0)
		return;
	if (below(c, 2))
		from = to;
	if (from < old->len && to < len)
		memcpy(p + to, old->data + from, below(c, MIN(old->len - from, len - to)));
}

static void change(struct chain *c, struct buf *b)
{
	for (uint64_t n = 1 + below(c, 3); n > 0; n--) {
		switch (below(c, 10)) {
		case 0:
		case 1:
			change_chunks(c, b->data, b->len, false);
			break;
		case 2:
			change_chunks(c, b->data, b->len, true);
			break;
		case 3:
			change_stretches(c, b->data, b->len);
			break;
		case 4:
			move_stretches(c, b->data, b->len, c->chunk_len);
			break;
		case 5:
			move_stretches(c, b->data, b->len, 1 + below(c, 8));
			break;
		case 6:
			repeat(c, b->data, b->len);
			break;
		case 7:
			bring_back(c, b->data, b->len);
			break;
		case 8: /* another length */
			if (below(c, 2)) {
				size_t len = below(c, c->max);

				if (len > b->len)
					memset(b->data + b->len, 0, len - b->len);
				if (len > b->len && below(c, 2))
					noise(c, b->data + b->len, len - b->len);
				b->len = len;
			}
			break;
		default:
			if (below(c, 4) == 0)
				noise(c, b->data, b->len);
			break;
		}
	}
}

/* --- both sides --- */

/* Cuts the content into buffers, at addresses of any kind. What lies between them becomes zeros, in `b`, too. */
static size_t place(struct chain *c, struct buf *b, struct delta_buffer ret[BUFFERS_MAX])
{
	size_t nr = 0, at = 0, shift = 0;

	while (nr < BUFFERS_MAX - 1 && below(c, 3) == 0 && at < b->len) {
		size_t len = below(c, b->len - at), end;

		ret[nr++] = (struct delta_buffer){ c->device + at + shift, len, at };
		end = MIN(round_up(at + len, DELTA_PAGE) + below(c, 3) * DELTA_PAGE, b->len);
		memset(b->data + at + len, 0, MAX(end, at + len) - (at + len));
		at = round_up(MAX(end, at + len), DELTA_PAGE);
		shift += below(c, 2) ? 16 : below(c, 16);
	}
	if (at < b->len || nr == 0) {
		ret[nr++] = (struct delta_buffer){ c->device + at + shift, b->len - at, at };
	} else { /* the content ends where the last one does */
		b->len = ret[nr - 1].off + ret[nr - 1].len;
	}
	for (size_t i = 0; i < nr; i++)
		CHECK(cudaMemcpy((void *)ret[i].p, b->data + ret[i].off, ret[i].len, cudaMemcpyHostToDevice) ==
			      cudaSuccess,
		      "copy to the device");
	return nr;
}

static void say_difference(struct chain *c, const struct buf *twin)
{
	struct delta_tables a, b;
	struct delta_region x, y;
	struct delta_iter i, k;

	if (delta_decode(twin->data, twin->len, &a) < 0 || delta_decode(c->object.data, c->object.len, &b) < 0) {
		fprintf(stderr, "an object cannot be decoded: %zu and %zu bytes\n", twin->len, c->object.len);
		return;
	}
	fprintf(stderr, "encodings %d %d, GPU %d %d; payload %" PRIu64 ", GPU %" PRIu64 "; fingerprints %s\n",
		a.header.first_encoding, a.header.shifted_encoding, b.header.first_encoding, b.header.shifted_encoding,
		a.header.payload_len, b.header.payload_len,
		digest_equal(a.header.fingerprint, b.header.fingerprint) ? "equal" : "DIFFER");
	i = delta_iter(&a);
	k = delta_iter(&b);
	for (int n = 0;; n++) {
		int r = delta_iter_next(&i, &x), s = delta_iter_next(&k, &y);

		if (r <= 0 && s <= 0)
			return;
		if (r == s && memcmp(&x, &y, sizeof(x)) == 0)
			continue;
		fprintf(stderr,
			"region %d: %d %" PRIu64 "+%" PRIu64 " from %" PRIu32 ":%" PRIu64 ", GPU %d %" PRIu64
			"+%" PRIu64 " from %" PRIu32 ":%" PRIu64 " (chunk %u)\n",
			n, r > 0 ? (int)x.kind : -1, x.off, x.len, x.version, x.src_off, s > 0 ? (int)y.kind : -1,
			y.off, y.len, y.version, y.src_off, c->chunk_len);
		return;
	}
}

static ssize_t read_version(void *userdata, uint32_t version, uint64_t off, void *p, size_t len)
{
	const struct chain *c = userdata;
	size_t n;

	CHECK(version > 0 && version <= c->last && !c->forgotten[version], "version %u is no source", version);
	n = off < c->versions[version].len ? MIN(len, c->versions[version].len - (size_t)off) : 0;
	if (n > 0)
		memcpy(p, c->versions[version].data + off, n);
	return (ssize_t)n;
}

static void check_content(struct chain *c, const struct buf *b)
{
	_cleanup_(freep) uint8_t *got = malloc(b->len + 1);

	memset(got, 0xee, b->len + 1);
	CHECK(delta_apply(c->object.data, c->object.len, &c->key, read_version, c, got, b->len) == 0,
	      "seed %" PRIu64 ": the object does not give its content", c->seed_given);
	CHECK(b->len == 0 || memcmp(got, b->data, b->len) == 0, "seed %" PRIu64 ": other content", c->seed_given);
}

static void collect(struct chain *c, const struct delta_object *o)
{
	buf_clear(&c->object);
	for (size_t i = 0; i < o->nr_parts; i++)
		buf_add(&c->object, o->parts[i].iov_base, o->parts[i].iov_len);
	CHECK(buf_error(&c->object) == 0, "memory");
}

static void take_and_compare(struct chain *c, struct buf *b, const struct delta_take *how)
{
	_cleanup_(buf_release) struct buf twin = BUF_EMPTY;
	struct delta_buffer buffers[BUFFERS_MAX];
	struct delta_object object;
	size_t nr = place(c, b, buffers);
	int r;

	r = delta_record_take(c->twin, b->data, b->len, how, &twin);
	CHECK(r == 0, "twin: %s", strerror(-r));
	r = delta_gpu_take(c->gpu, buffers, nr, how, NULL);
	CHECK(r == 0, "GPU: take: %s", strerror(-r));
	for (size_t i = 0; i < nr; i++) /* the buffers may be written again */
		CHECK(cudaMemset((void *)buffers[i].p, 0x55, buffers[i].len) == cudaSuccess, "memset");
	r = delta_gpu_finish(c->gpu, &object);
	CHECK(r == 0, "GPU: finish: %s", strerror(-r));
	collect(c, &object);
	if (twin.len != c->object.len || memcmp(twin.data, c->object.data, twin.len) != 0) {
		say_difference(c, &twin);
		CHECK(false,
		      "seed %" PRIu64
		      ", version %u, chunks of %u, %zu bytes in %zu buffers, method %d: objects differ (%zu, GPU %zu)",
		      c->seed_given, how->number, c->chunk_len, b->len, nr, how->method, twin.len, c->object.len);
	}
	check_content(c, b);
}

/* --- rounds --- */

static void chain_init(struct chain *c, uint64_t seed, size_t nr_chunks)
{
	struct delta_record_params params = { .lineage = "lineage-of-test", .chunk_len = c->chunk_len };
	uint64_t entries = below(c, 2) ? UINT64_C(1) << 30 : below(c, nr_chunks * 2), slots = entries;
	int r;

	c->seed_given = seed;
	c->max = nr_chunks * c->chunk_len;
	for (size_t i = 0; i < sizeof(params.key); i++)
		params.key[i] = (uint8_t)below(c, 256);
	leaf_key_init(&c->key, params.key);
	/* The same number of entries on both sides: see delta_table.c. */
	while (slots > 0 && slots - slots / 8 - 1 < entries)
		slots++;
	params.table_limit = entries > 0 ? slots * 36 : 0;
	CHECK(delta_record_new(&params, &c->twin) == 0, "twin");
	params.table_limit = entries * 32;
	r = delta_gpu_new(&params, &c->gpu);
	CHECK(r == 0, "GPU: %s", strerror(-r));
	CHECK(cudaMalloc((void **)&c->device, c->max + KiB(64)) == cudaSuccess, "device memory");
}

static void chain_release(struct chain *c)
{
	for (size_t i = 0; i <= NR_VERSIONS; i++)
		buf_release(&c->versions[i]);
	buf_release(&c->object);
	delta_record_free(c->twin);
	delta_gpu_free(c->gpu);
	cudaFree(c->device);
}

static void run_round(uint64_t seed, uint32_t chunk_len, size_t nr_chunks)
{
	_cleanup_(chain_release) struct chain c = { .seed = seed, .chunk_len = chunk_len };
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;

	chain_init(&c, seed, nr_chunks);
	CHECK(buf_reserve(&b, c.max + 1) == 0, "memory");
	b.len = c.max / 2 + below(&c, c.max / 2);
	noise(&c, b.data, b.len);
	if (below(&c, 2))
		repeat(&c, b.data, b.len);
	while (c.last < NR_VERSIONS) {
		struct delta_take how = { .method = below(&c, 3) ? DELTA_METHOD_TREE : below(&c, 4),
					  .number = c.last + 1 };

		how.compare = below(&c, 3) == 0;
		take_and_compare(&c, &b, &how);
		if (below(&c, 5) == 0) {
			delta_record_abandon(c.twin);
			delta_gpu_abandon(c.gpu);
			change(&c, &b);
			continue;
		}
		delta_record_commit(c.twin);
		CHECK(delta_gpu_commit(c.gpu) == 0, "commit");
		c.last++;
		buf_add(&c.versions[c.last], b.data, b.len);
		CHECK(buf_error(&c.versions[c.last]) == 0, "memory");
		if (below(&c, 5) == 0) {
			uint32_t number = 1 + (uint32_t)below(&c, c.last);

			delta_record_forget(c.twin, number);
			CHECK(delta_gpu_forget(c.gpu, number) == 0, "forget");
			c.forgotten[number] = true;
		}
		change(&c, &b);
	}
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, rounds = argc > 2 ? strtoull(argv[2], NULL, 0) : 60;
	int nr = 0;

	if (cudaGetDeviceCount(&nr) != cudaSuccess || nr == 0) {
		fprintf(stderr, "no GPU here\n");
		return 77;
	}
	for (uint64_t i = 0; i < rounds; i++) {
		uint32_t chunk_len = 32u << i % 8;
		/* Every fourth is so large that it is taken in several segments. */
		size_t nr_chunks = i % 4 == 0 ? (chunk_len <= 128 ? 600000 : 150000) / (chunk_len > 512 ? 4 : 1) :
						1 + next_random(&(uint64_t){ seed + i }) % (i % 2 ? 20000 : 300);

		run_round(seed + i, chunk_len, nr_chunks);
	}
	printf("%" PRIu64 " chains of %d versions: the same on the GPU as on the CPU\n", rounds, NR_VERSIONS);
	return 0;
}
