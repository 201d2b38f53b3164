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

static bool have_instruction(void)
{
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

static bool have_instruction(void)
{
	return getauxval(AT_HWCAP) & HWCAP_CRC32;
}

#endif

#if defined(INSTRUCTION_TARGET)

/* Both architectures are little-endian here, so a plain load has the first byte lowest, as it must be. */
INSTRUCTION_TARGET static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8) {
		uint64_t v;

		memcpy(&v, p, sizeof(v));
		crc = crc_u64(crc, v);
	}
	for (; len > 0; p++, len--)
		crc = crc_u8(crc, *p);
	return crc;
}

#else

#define crc_by_instruction crc_by_table

static bool have_instruction(void)
{
	return false;
}

#endif

static crc_fn crc_best; /* constant after choose() */

__attribute__((constructor)) static void choose(void)
{
	if (have_instruction()) {
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
