/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Any bytes as what a node shows before all else: refused, or cards that give the same bytes when they are encoded, and
 * that can be compared. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/util.h"
#include "mpi-agent/wire/card.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CARDS_MAX 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct card cards[CARDS_MAX];
	uint32_t hosts[CARDS_MAX], nr = (uint32_t)MIN(size / sizeof(struct card_wire), (size_t)CARDS_MAX);
	struct card_quarrel q;

	for (uint32_t i = 0; i < nr; i++) {
		struct card_wire d, again;

		memcpy(&d, data + i * sizeof(d), sizeof(d));
		if (card_decode(&d, &cards[i]) < 0)
			return 0;
		card_encode(&cards[i], &again);
		assert(memcmp(&d, &again, sizeof(d)) == 0);
	}
	if (nr == 0)
		return 0;
	(void)cards_agree(cards, nr, &q);
	if (cards_number_hosts(cards, nr, hosts) == 0)
		for (uint32_t i = 0; i < nr; i++)
			assert(hosts[i] <= i && strcmp(cards[i].host, cards[0].host) != 0 ? hosts[i] > 0 : hosts[i] == 0);
	return 0;
}
