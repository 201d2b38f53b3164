/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Little-endian integers as they lie on disk and wire. They are bytes, so a forgotten conversion
 * does not compile, nothing is packed and any address will do.
 */
#pragma once

#include <stdint.h>

struct le16 { uint8_t b[2]; };
struct le32 { uint8_t b[4]; };
struct le64 { uint8_t b[8]; };

static inline uint16_t le16_get(struct le16 v)
{
	return (uint16_t)(v.b[0] | v.b[1] << 8);
}

static inline uint32_t le32_get(struct le32 v)
{
	return (uint32_t)v.b[0] | (uint32_t)v.b[1] << 8 | (uint32_t)v.b[2] << 16 | (uint32_t)v.b[3] << 24;
}

static inline uint64_t le64_get(struct le64 v)
{
	uint64_t n = 0;

	for (int i = 7; i >= 0; i--)
		n = n << 8 | v.b[i];
	return n;
}

static inline struct le16 le16_put(uint16_t n)
{
	return (struct le16){ { (uint8_t)n, (uint8_t)(n >> 8) } };
}

static inline struct le32 le32_put(uint32_t n)
{
	return (struct le32){ { (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), (uint8_t)(n >> 24) } };
}

static inline struct le64 le64_put(uint64_t n)
{
	struct le64 v;

	for (int i = 0; i < 8; i++, n >>= 8)
		v.b[i] = (uint8_t)n;
	return v;
}

/* Big-endian, for keys that must sort by number. */
static inline uint32_t be32_get(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void be32_put(uint8_t *p, uint32_t n)
{
	for (int i = 3; i >= 0; i--, n >>= 8)
		p[i] = (uint8_t)n;
}

static inline uint64_t be64_get(const uint8_t *p)
{
	uint64_t n = 0;

	for (int i = 0; i < 8; i++)
		n = n << 8 | p[i];
	return n;
}

static inline void be64_put(uint8_t *p, uint64_t n)
{
	for (int i = 7; i >= 0; i--, n >>= 8)
		p[i] = (uint8_t)n;
}
