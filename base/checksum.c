/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CPU is asked once, before main(): x86-64 without SSE4.2 and the first ARMv8 cores lack the
 * instruction and take the table instead.
 */
#include "base/checksum.h"

#include <stdbool.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/util.h"

#define POLYNOMIAL 0x82f63b78u /* bits reversed */

/* All take and give the register itself: callers have inverted it. */
typedef uint32_t (*crc_fn)(uint32_t crc, const uint8_t *p, size_t len);

/* table[k][b]: what byte b contributes when k more bytes follow it. */
static uint32_t table[8][256];

static void table_fill(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[0][i] = crc;
	}
	for (size_t k = 1; k < ARRAY_SIZE(table); k++)
		for (size_t i = 0; i < 256; i++)
			table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8) {
		crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
		crc = table[7][crc & 0xff] ^ table[6][crc >> 8 & 0xff] ^ table[5][crc >> 16 & 0xff] ^
		      table[4][crc >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
	}
	for (; len > 0; p++, len--)
		crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
	return crc;
}

#if defined(__x86_64__)

#define INSTRUCTION_TARGET __attribute__((target("sse4.2")))
#define crc_u8(crc, v) __builtin_ia32_crc32qi(crc, v)
#define crc_u64(crc, v) ((uint32_t)__builtin_ia32_crc32di(crc, v))
#define LANES_PAY true

static bool have_instruction(void)
{
	__builtin_cpu_init(); /* choose() may come before the constructor that does */
	return __builtin_cpu_supports("sse4.2");
}

#elif defined(__aarch64__)

#if defined(__clang__)
#define INSTRUCTION_TARGET __attribute__((target("crc")))
#define crc_u8(crc, v) __builtin_arm_crc32cb(crc, v)
#define crc_u64(crc, v) __builtin_arm_crc32cd(crc, v)
#else
#define INSTRUCTION_TARGET __attribute__((target("+crc")))
#define crc_u8(crc, v) __builtin_aarch64_crc32cb(crc, v)
#define crc_u64(crc, v) __builtin_aarch64_crc32cx(crc, v)
#endif

#define LANES_PAY false

static bool have_instruction(void)
{
	return getauxval(AT_HWCAP) & HWCAP_CRC32;
}

#endif

#if defined(INSTRUCTION_TARGET)

/*
 * On x86-64 the instruction takes three cycles, and the next one can begin after one: three stretches of the input at a
 * time are twice as fast as one. A stretch that others come behind counts as if as many zeros came behind it: zeros[]
 * says what LANE of them make of each byte of the register.
 */
#define LANE 1024u
static uint32_t zeros[4][256];

static uint32_t add_zeros(uint32_t crc)
{
	return zeros[0][crc & 0xff] ^ zeros[1][crc >> 8 & 0xff] ^ zeros[2][crc >> 16 & 0xff] ^ zeros[3][crc >> 24];
}

/* Both architectures are little-endian here, so a plain load has the first byte lowest, as it must be. */
static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

INSTRUCTION_TARGET static void zeros_fill(void)
{
	for (uint32_t k = 0; k < 4; k++)
		for (uint32_t b = 0; b < 256; b++) {
			uint32_t crc = b << 8 * k;

			for (uint32_t i = 0; i < LANE; i += 8)
				crc = crc_u64(crc, 0);
			zeros[k][b] = crc;
		}
}

INSTRUCTION_TARGET static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; LANES_PAY && len >= 3 * LANE; p += 3 * LANE, len -= 3 * LANE) {
		uint32_t second = 0, third = 0;

		for (size_t i = 0; i < LANE; i += 8) {
			crc = crc_u64(crc, load64(p + i));
			second = crc_u64(second, load64(p + LANE + i));
			third = crc_u64(third, load64(p + 2 * LANE + i));
		}
		crc = add_zeros(add_zeros(crc) ^ second) ^ third;
	}
	for (; len >= 8; p += 8, len -= 8)
		crc = crc_u64(crc, load64(p));
	for (; len > 0; p++, len--)
		crc = crc_u8(crc, *p);
	return crc;
}

#else

#define crc_by_instruction crc_by_table

static void zeros_fill(void)
{
}

static bool have_instruction(void)
{
	return false;
}

#endif

static crc_fn crc_best; /* constant after choose() */

/* Before constructors without a number: one of them may begin a thread. */
__attribute__((constructor(101))) static void choose(void)
{
	if (have_instruction()) {
		zeros_fill();
		crc_best = crc_by_instruction;
	} else {
		table_fill();
		crc_best = crc_by_table;
	}
}

uint32_t crc32c(const void *p, size_t len)
{
	return crc32c_add(0, p, len);
}

uint32_t crc32c_add(uint32_t crc, const void *p, size_t len)
{
	return ~crc_best(~crc, p, len);
}
