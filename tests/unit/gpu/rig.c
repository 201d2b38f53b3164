#include "rig.h"

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
