/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Messages between agents: what was sent comes back, and nothing else does. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/util.h"
#include "mpi-agent/wire/peer_format.h"

static const struct mac_key key = { { 1, 2, 3 } };
static const struct peer_header header = {
	.type = PEER_CHUNKS, .from = 3, .to = 65534, .sequence = 7, .number = 1ull << 40
};

static void messages_come_back(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct peer_header h;

	peer_encode(&key, &header, "\1\1ab", 4, &b);
	assert_int_equal(b.len, sizeof(struct peer_header_wire) + 4);
	assert_int_equal(peer_decode(&key, b.data, b.len, &h), 0);
	assert_int_equal(h.type, header.type);
	assert_int_equal(h.from, header.from);
	assert_int_equal(h.to, header.to);
	assert_int_equal(h.sequence, header.sequence);
	assert_int_equal(h.number, header.number);
	assert_memory_equal(b.data + sizeof(struct peer_header_wire), "\1\1ab", 4);
}

static void any_changed_byte_is_found(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct peer_header h;

	peer_encode(&key, &header, "\1\1ab", 4, &b);
	for (size_t i = 0; i < b.len; i++) {
		b.data[i] ^= 1u << i % 8;
		assert_int_equal(peer_decode(&key, b.data, b.len, &h), -EBADMSG);
		b.data[i] ^= 1u << i % 8;
	}
	for (size_t len = 0; len < b.len; len++)
		assert_int_equal(peer_decode(&key, b.data, len, &h), -EBADMSG);
}

static void another_world_is_not_understood(void **state _unused_)
{
	struct mac_key other = mac_key_derive(&key, "session", "nonces", 6);
	_cleanup_(buf_release) struct buf b = BUF_EMPTY;
	struct peer_header h;

	peer_encode(&other, &header, NULL, 0, &b);
	assert_int_equal(peer_decode(&key, b.data, b.len, &h), -EBADMSG);
	assert_int_equal(peer_decode(&other, b.data, b.len, &h), 0);
}

/* Sealed rightly, by a node that does not keep to what is agreed. */
static void lies_are_refused(void **state _unused_)
{
	static const struct {
		enum peer_type type;
		size_t len;
	} lies[] = { { 0, 0 },
		     { PEER_DROPPED + 1, 0 },
		     { PEER_QUESTION - 1, 0 },
		     { PEER_ANSWER + 1, 0 },
		     { PEER_TWICE + 1, 0 },
		     { PEER_TWICE, 1 },
		     { PEER_COLLECT, 1 },
		     { PEER_BEGIN, 1 },
		     { PEER_END, 8 } };
	struct peer_header h;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		_cleanup_(buf_release) struct buf b = BUF_EMPTY;
		const struct peer_header lie = { .type = lies[i].type };

		peer_encode(&key, &lie, "12345678", lies[i].len, &b);
		assert_int_equal(peer_decode(&key, b.data, b.len, &h), -EBADMSG);
	}
}

static void keys_are_for_one_purpose(void **state _unused_)
{
	struct mac_key a = mac_key_derive(&key, "a", "x", 1), b = mac_key_derive(&key, "b", "x", 1),
			c = mac_key_derive(&key, "a", "y", 1);
	struct mac_key again = mac_key_derive(&key, "a", "x", 1);

	assert_memory_equal(&a, &again, sizeof(a));
	assert_memory_not_equal(&a, &b, sizeof(a));
	assert_memory_not_equal(&a, &c, sizeof(a));
}

/* RFC 4231, test case 2 has a key that is shorter; zeros behind it make no difference. */
static void macs_are_hmac_sha256(void **state _unused_)
{
	static const uint8_t expected[MAC_LEN] = { 0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
						    0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7 };
	static const struct mac_key jefe = { "Jefe" };
	uint8_t mac[MAC_LEN];

	mac_compute(&jefe, "what do ya want for nothing?", 28, mac);
	assert_memory_equal(mac, expected, sizeof(mac));
}

/* As docs/format.md has it, done in Python bit by bit. */
static void macs_of_long_messages_are_hmac_of_a_universal_hash(void **state _unused_)
{
	static const uint8_t expected[MAC_LEN] = { 0x89, 0x03, 0xbc, 0xd6, 0x61, 0x41, 0x2c, 0x62,
						    0x20, 0x65, 0x7c, 0x7a, 0x92, 0x69, 0x35, 0x05 };
	static const uint8_t with_head[MAC_LEN] = { 0x98, 0x02, 0x8b, 0x47, 0x87, 0xce, 0x39, 0x8f,
						     0x4b, 0x85, 0x6a, 0x4e, 0x3c, 0xe5, 0x0d, 0xbd };
	uint8_t bytes[MAC_LONG + 5], mac[MAC_LEN];

	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7);
	mac_compute(&key, bytes, sizeof(bytes), mac);
	assert_memory_equal(mac, expected, sizeof(mac));
	mac_compute_of(&key, "head", 4, bytes, sizeof(bytes), mac);
	assert_memory_equal(mac, with_head, sizeof(mac));
}

/* Where what is short is cut makes no difference. */
static void macs_cover_head_and_body(void **state _unused_)
{
	uint8_t whole[MAC_LEN], parts[MAC_LEN];

	mac_compute(&key, "head and body", 13, whole);
	mac_compute_of(&key, "head", 4, " and body", 9, parts);
	assert_memory_equal(whole, parts, sizeof(whole));
	assert_true(mac_is_valid_of(&key, "head", 4, " and body", 9, whole));
	assert_false(mac_is_valid_of(&key, "Head", 4, " and body", 9, whole));
	assert_false(mac_is_valid_of(&key, "head", 4, " and bodY", 9, whole));
}

static void any_changed_bit_of_what_is_long_is_found(void **state _unused_)
{
	static uint8_t bytes[3 * MAC_LONG + 5];
	struct mac_key other = mac_key_derive(&key, "session", "nonces", 6);
	uint8_t mac[MAC_LEN];

	mac_compute(&key, bytes, sizeof(bytes), mac);
	assert_true(mac_is_valid(&key, bytes, sizeof(bytes), mac));
	assert_false(mac_is_valid(&other, bytes, sizeof(bytes), mac));
	/* zeros, which fill up a block of the hash, too */
	assert_false(mac_is_valid(&key, bytes, sizeof(bytes) - 1, mac));
	for (size_t i = 0; i < sizeof(bytes); i += 97) {
		bytes[i] ^= (uint8_t)(1 << i % 8);
		assert_false(mac_is_valid(&key, bytes, sizeof(bytes), mac));
		bytes[i] ^= (uint8_t)(1 << i % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_come_back),
		cmocka_unit_test(any_changed_byte_is_found),
		cmocka_unit_test(another_world_is_not_understood),
		cmocka_unit_test(lies_are_refused),
		cmocka_unit_test(keys_are_for_one_purpose),
		cmocka_unit_test(macs_are_hmac_sha256),
		cmocka_unit_test(macs_of_long_messages_are_hmac_of_a_universal_hash),
		cmocka_unit_test(macs_cover_head_and_body),
		cmocka_unit_test(any_changed_bit_of_what_is_long_is_found),
	};

	return cmocka_run_group_tests_name("peer_format", tests, NULL, NULL);
}
