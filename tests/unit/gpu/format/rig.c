/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/gpu/format/rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const uint8_t rig_key[LEAF_KEY_LEN] = { 0,  1,	2,  3,	4,  5,	6,  7,	8,  9,	10, 11, 12, 13, 14, 15,
					16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31 };

uint64_t rig_random(uint64_t *seed) /* splitmix64 */
{
	uint64_t n = *seed += 0x9e3779b97f4a7c15;

	n = (n ^ n >> 30) * 0xbf58476d1ce4e5b9;
	n = (n ^ n >> 27) * 0x94d049bb133111eb;
	return n ^ n >> 31;
}

void rig_noise(uint64_t *seed, uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(rig_random(seed) >> 40);
}

struct digest rig_fingerprint(const struct leaf_key *k, const void *p, size_t len, uint32_t chunk_len)
{
	struct content_hash c;

	content_hash_init(&c, k, chunk_len);
	content_hash_add(&c, p, len);
	return content_hash_finish(&c, len);
}

static void input_row(struct rig_input *in, uint64_t off, const char *hex)
{
	unsigned byte;

	for (; sscanf(hex, "%2x", &byte) == 1; hex += 2, off++) {
		assert_true(off < in->object.len);
		in->object.data[off] = (uint8_t)byte;
	}
}

void rig_input_load(struct rig_input *in, const char *path)
{
	char line[256], hex[80];
	FILE *f = fopen(path, "re");
	uint64_t n;

	assert_non_null(f);
	*in = (struct rig_input){ 0 };
	while (fgets(line, sizeof(line), f)) {
		if (line[0] == '#' || sscanf(line, "expect %15s", in->expect) == 1)
			continue;
		if (sscanf(line, "object %" SCNu64, &n) == 1) {
			assert_int_equal(buf_reserve(&in->object, n), 0);
			memset(in->object.data, 0, n);
			in->object.len = n;
		} else if (strncmp(line, "region ", 7) == 0)
			buf_add(&in->regions, line + 7, strlen(line + 7));
		else if (sscanf(line, "%8" SCNx64 " %79s", &n, hex) == 2)
			input_row(in, n, hex);
		else
			fail_msg("%s: %s", path, line);
	}
	fclose(f);
}

void rig_input_release(struct rig_input *in)
{
	buf_release(&in->object);
	buf_release(&in->regions);
}

void rig_region(struct buf *lines, const struct delta_region *r)
{
	static const char *const kinds[] = {
		[DELTA_FIRST] = "first",
		[DELTA_SHIFTED] = "shifted",
		[DELTA_REPEATED] = "repeated",
		[DELTA_LITERAL] = "literal",
	};
	char line[128];

	if (r->kind == DELTA_FIRST || r->kind == DELTA_LITERAL)
		snprintf(line, sizeof(line), "%s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", kinds[r->kind], r->off, r->len,
			 r->payload_off);
	else
		snprintf(line, sizeof(line), "%s %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu64 "\n", kinds[r->kind],
			 r->off, r->len, r->version, r->src_off);
	buf_add(lines, line, strlen(line));
}
