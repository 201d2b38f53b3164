/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/damage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

int damage_open(struct rig *rig, uint32_t pack)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/packs/%08" PRIx32 ".pack", rig->path, pack);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

bool damage_table(struct rig *rig, uint32_t pack, uint32_t frame, struct pack_table *ret)
{
	static struct pack_table_disk d;
	int fd = damage_open(rig, pack);
	ssize_t n = pread(fd, &d, sizeof(d), pack_table_off(frame));

	close(fd);
	return n == (ssize_t)sizeof(d) && pack_table_decode(&d, sizeof(d), engine_key(rig->e), pack, frame, ret) == 0;
}

void damage_byte(struct rig *rig, uint32_t pack, uint64_t off)
{
	char name[32];

	snprintf(name, sizeof(name), "packs/%08" PRIx32 ".pack", pack);
	rig_flip(rig, name, off);
}

void damage_chunk(struct rig *rig, uint32_t pack, uint32_t frame, uint32_t i)
{
	static struct pack_table t;
	struct pack_cuts cuts;

	assert_true(damage_table(rig, pack, frame, &t));
	assert_int_equal(t.coding.codec, PACK_CODEC_NONE);
	assert_true(i < t.nr_chunks);
	cuts = pack_table_cuts(&t);
	damage_byte(rig, pack, pack_data_off(frame) + pack_cut_start(&cuts, i) + pack_cut_len(&cuts, i) / 2);
}

uint32_t damage_part(struct rig *rig, uint32_t pack, uint32_t frame, uint32_t part)
{
	static const uint8_t noise[64] = "what a broken disk may give instead of what was written there";
	static struct pack_table t;
	struct pack_cuts cuts;
	uint32_t nr = 0;
	uint64_t middle;
	int fd;

	assert_true(damage_table(rig, pack, frame, &t));
	assert_int_not_equal(t.coding.codec, PACK_CODEC_NONE);
	middle = pack_data_off(frame) + (pack_part_start(&t.coding, part) + t.coding.part_end[part]) / 2;
	fd = damage_open(rig, pack);
	assert_int_equal(pwrite(fd, noise, sizeof(noise), (off_t)middle), sizeof(noise));
	assert_int_equal(fsync(fd), 0);
	close(fd);
	cuts = pack_table_cuts(&t);
	for (uint32_t i = 0; i < t.nr_chunks; i++)
		nr += pack_cut_end(&cuts, i) > part * PACK_PART_BYTES &&
		      pack_cut_start(&cuts, i) < (part + 1) * PACK_PART_BYTES;
	return nr;
}
