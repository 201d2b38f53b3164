/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What nodes show each other: bytes, which nodes go together, and which are on one host. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"
#include "mpi-agent/wire/card.h"
#include "tests/unit/golden.h"

static const struct card card = { .hash = FP_CLMUL,
				  .incompat = 3,
				  .replicas = 2,
				  .popular_max = 1u << 17,
				  .store_id = { 1 },
				  .nonce = { 9 },
				  .name = "a",
				  .host = "x" };

static void cards_come_back(void **state _unused_)
{
	struct card_wire d;
	struct card c;

	card_encode(&card, &d);
	assert_int_equal(card_decode(&d, &c), 0);
	assert_memory_equal(&c, &card, sizeof(c));
}

static void cards_have_these_bytes(void **state _unused_)
{
	struct card_wire d;

	card_encode(&card, &d);
	golden_expect("card/v1.txt", "the card of a node", &d, sizeof(d));
}

static void an_agent_without_a_daemon_says_only_that(void **state _unused_)
{
	const struct card none = { .error = -ENOENT, .name = "unknown", .host = "x" };
	struct card_wire d;
	struct card c;

	card_encode(&none, &d);
	assert_int_equal(card_decode(&d, &c), 0);
	assert_int_equal(c.error, -ENOENT);
}

static void lies_are_refused(void **state _unused_)
{
	static const struct {
		size_t off;
		uint8_t value;
		int r;
	} lies[] = {
		{ offsetof(struct card_wire, version), CARD_VERSION + 1, -EOPNOTSUPP },
		{ offsetof(struct card_wire, error) + 1, 0x10, -EBADMSG },
		{ offsetof(struct card_wire, hash), 0, -EBADMSG },
		{ offsetof(struct card_wire, replicas), 0, -EBADMSG },
		{ offsetof(struct card_wire, replicas), 5, -EBADMSG },
		{ offsetof(struct card_wire, reserved), 1, -EBADMSG },
		{ offsetof(struct card_wire, popular_max) + 2, 0, -EBADMSG },
		{ offsetof(struct card_wire, name), 0, -EBADMSG },
		{ offsetof(struct card_wire, name), '\n', -EBADMSG },
		{ offsetof(struct card_wire, name) + 10, 'x', -EBADMSG },
		{ offsetof(struct card_wire, host), 0x9b, -EBADMSG },
		{ offsetof(struct card_wire, zeros) + 47, 1, -EBADMSG },
	};
	struct card c;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		struct card_wire d;

		card_encode(&card, &d);
		((uint8_t *)&d)[lies[i].off] = lies[i].value;
		assert_int_equal(card_decode(&d, &c), lies[i].r);
	}
}

static void those_that_agree_are_one_cluster(void **state _unused_)
{
	struct card cards[] = { card, card, card };
	struct card_quarrel q;

	cards[1].store_id[0] = 2;
	cards[2].store_id[0] = 3;
	cards[2].popular_max = 5; /* of this the least will do */
	assert_int_equal(cards_agree(cards, 3, &q), 0);
	assert_int_equal(cards_agree(cards, 1, &q), 0);
}

static void a_mismatch_names_the_node_that_differs(void **state _unused_)
{
	static const struct {
		size_t off;
		uint32_t value;
		const char *why;
	} differences[] = {
		{ offsetof(struct card, hash), 2,
		  "node b on y (rank 1) differs from node a on x (rank 0) in the kind of fingerprints (hash=): sha256, not clmul" },
		{ offsetof(struct card, incompat), 4,
		  "node b on y (rank 1) differs from node a on x (rank 0) in features of the store: 4, not 3" },
		{ offsetof(struct card, replicas), 1,
		  "node b on y (rank 1) differs from node a on x (rank 0) in replicas=: 1, not 2" },
		{ offsetof(struct card, store_id), 1,
		  "node a on x (rank 0) and node b on y (rank 1) have the same store id: one store is a copy of the other, or both are the same" },
		{ offsetof(struct card, error), (uint32_t)-ENOENT, "y (rank 1) has no daemon; see the message of its agent" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(differences); i++) {
		struct card cards[] = { card, card };
		struct card_quarrel q;

		cards[1].store_id[0] = 2;
		cards[1].name[0] = 'b';
		cards[1].host[0] = 'y';
		memcpy((char *)&cards[1] + differences[i].off, &differences[i].value, sizeof(uint32_t));
		assert_int_equal(cards_agree(cards, 2, &q), -EINVAL);
		assert_string_equal(q.why, differences[i].why);
	}
}

static void hosts_have_numbers_by_rank(void **state _unused_)
{
	static const char *const hosts[] = { "z", "b", "z", "a", "b", "c" };
	static const uint32_t expected[] = { 0, 1, 0, 2, 1, 3 };
	struct card cards[ARRAY_SIZE(hosts)];
	uint32_t numbers[ARRAY_SIZE(hosts)];

	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		cards[i] = card;
		cards[i].host[0] = hosts[i][0];
	}
	assert_int_equal(cards_number_hosts(cards, ARRAY_SIZE(hosts), numbers), 0);
	assert_memory_equal(numbers, expected, sizeof(expected));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cards_come_back),
		cmocka_unit_test(cards_have_these_bytes),
		cmocka_unit_test(an_agent_without_a_daemon_says_only_that),
		cmocka_unit_test(lies_are_refused),
		cmocka_unit_test(those_that_agree_are_one_cluster),
		cmocka_unit_test(a_mismatch_names_the_node_that_differs),
		cmocka_unit_test(hosts_have_numbers_by_rank),
	};

	return cmocka_run_group_tests_name("card", tests, NULL, NULL);
}
