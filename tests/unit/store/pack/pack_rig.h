/* SPDX-License-Identifier: GPL-3.0-or-later */
/* A store of packs in a scratch directory, and chunks. The bytes of a chunk follow from a number. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "store/pack/pack.h"
#include "store/pack/pack_format.h"
#include "tests/unit/place.h"

struct rig {
	char dir[64];
	int dirfd;
	struct fp_key key;
	struct packs_conf conf;
	struct pack_marks marks; /* of the last rig_sync() */
	struct packs *p;
};

/* How all packs of a test are compressed that does not say it. */
static struct pack_compression rig_compression;

static inline void rig_open(struct rig *rig)
{
	rig->conf.key = &rig->key;
	assert_int_equal(packs_open(rig->dirfd, &rig->conf, &rig->marks, &rig->p), 0);
}

static inline void rig_init(struct rig *rig, struct packs_conf conf)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";

	*rig = (struct rig){ .conf = conf, .marks = { .next_pack = 1 } };
	if (conf.compression.kind == PACK_COMPRESS_NONE)
		rig->conf.compression = rig_compression;
	snprintf(rig->dir, sizeof(rig->dir), "%s/ckptfs-test-packs-XXXXXX", test_place());
	assert_non_null(mkdtemp(rig->dir));
	rig->dirfd = open(rig->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(rig->dirfd >= 0);
	fp_key_init(&rig->key, FP_XXH3, secret);
	memcpy(rig->conf.store_id, "store of a test", 16);
	rig_open(rig);
}

/* As after a crash: what was not synced is cut. */
static inline void rig_reopen(struct rig *rig)
{
	packs_close(rig->p);
	rig_open(rig);
}

static inline void rig_release(struct rig *rig)
{
	DIR *d;
	struct dirent *e;

	packs_close(rig->p);
	d = fdopendir(rig->dirfd);
	assert_non_null(d);
	rewinddir(d);
	while ((e = readdir(d)))
		if (e->d_name[0] != '.')
			assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
	closedir(d);
	assert_int_equal(rmdir(rig->dir), 0);
}

static inline int packs_sync(struct packs *p, struct pack_marks *ret)
{
	packs_sync_begin(p);
	return packs_sync_end(p, ret);
}

static inline void rig_sync(struct rig *rig)
{
	assert_int_equal(packs_sync(rig->p, &rig->marks), 0);
}

/* Three bytes of every eight: every codec finds something. */
static inline void fill_chunk(void *p, uint64_t number, uint32_t len)
{
	uint64_t *words = p, x = number * 0x9e3779b97f4a7c15 + 1;

	for (uint32_t i = 0; i < len / 8; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		words[i] = x & 0xffffff;
	}
}

static inline void *aligned_bytes(size_t len)
{
	void *p = aligned_alloc(PACK_BLOCK, round_up(len, PACK_BLOCK));

	assert_non_null(p);
	return p;
}

/* A frame that holds chunks number, number + 1 ... The memory it borrows is returned, to be freed after the write. */
static inline struct pack_frame *rig_fill_frame(struct rig *rig, enum pack_stream s, uint32_t chunk_len,
						uint64_t number, unsigned nr, struct addr *ret_first, void **ret_memory)
{
	uint8_t *memory = aligned_bytes((size_t)nr * chunk_len);
	struct pack_frame *f;

	*ret_first = ADDR_NONE;
	assert_int_equal(packs_frame_open(rig->p, s, chunk_len, &f), 0);
	for (unsigned i = 0; i < nr; i++) {
		uint8_t *chunk = memory + (size_t)i * chunk_len;
		struct addr a;

		fill_chunk(chunk, number + i, chunk_len);
		a = pack_frame_add(f, fp_of(&rig->key, chunk, chunk_len), chunk);
		if (i == 0)
			*ret_first = a;
		else
			assert_int_equal(a.off, ret_first->off + i * chunk_len);
	}
	*ret_memory = memory;
	return f;
}

static inline struct addr rig_write_frame(struct rig *rig, enum pack_stream s, uint32_t chunk_len, uint64_t number,
					  unsigned nr)
{
	struct addr first = ADDR_NONE;
	void *memory;
	struct pack_frame *f = rig_fill_frame(rig, s, chunk_len, number, nr, &first, &memory);

	assert_int_equal(packs_frame_write(rig->p, f), 0);
	free(memory);
	return first;
}

/* 0: the chunks from `number` on are at `a`; else what packs_read() said, or 1: other bytes. */
static inline int rig_check(struct rig *rig, struct addr a, uint32_t chunk_len, uint64_t number, unsigned nr)
{
	size_t len = (size_t)nr * chunk_len;
	uint8_t *got = aligned_bytes(len), *want = aligned_bytes(len);
	int r;

	for (unsigned i = 0; i < nr; i++)
		fill_chunk(want + (size_t)i * chunk_len, number + i, chunk_len);
	r = packs_read(rig->p, a, (uint32_t)len, got);
	if (r == 0)
		r = memcmp(got, want, len) != 0;
	free(got);
	free(want);
	return r;
}

static inline void assert_mark(struct pack_mark m, uint32_t pack, uint32_t nr_frames)
{
	assert_int_equal(m.pack, pack);
	assert_int_equal(m.nr_frames, nr_frames);
}

static inline void assert_counts(struct pack_counts got, struct pack_counts expected)
{
	assert_int_equal(got.nr_frames, expected.nr_frames);
	assert_int_equal(got.nr_chunks, expected.nr_chunks);
	assert_int_equal(got.chunk_bytes, expected.chunk_bytes);
}

static inline bool pack_exists(struct rig *rig, uint32_t pack)
{
	return faccessat(rig->dirfd, pack_name(pack).s, F_OK, 0) == 0;
}

static inline struct stat pack_stat(struct rig *rig, uint32_t pack)
{
	struct stat st;

	assert_int_equal(fstatat(rig->dirfd, pack_name(pack).s, &st, 0), 0);
	return st;
}

/* Change one byte of a pack behind its back. */
static inline void flip_byte(struct rig *rig, uint32_t pack, uint64_t off)
{
	int fd = openat(rig->dirfd, pack_name(pack).s, O_RDWR | O_CLOEXEC);
	uint8_t b;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	close(fd);
}
