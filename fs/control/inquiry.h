/*
 * Questions that take long: what would deleting some names free? Begun, told which names, started, asked about and
 * ended by ioctl; each runs in a thread of its own. One that nobody asks about any more is given up, so whoever asked
 * may die.
 *
 * A question is known by a number that cannot be guessed: who has it has begun it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/engine/engine.h"

struct inquiries;

struct inquiry_status {
	bool running;
	int error; /* of one that has ended */
	struct exclusive_report report; /* so far, or in the end */
};

int inquiries_new(struct engine *e, struct inquiries **ret);
void inquiries_free(struct inquiries *q); /* gives up what is running; NULL is fine */

int inquiry_begin(struct inquiries *q, uint64_t *ret); /* -EBUSY: there are too many */
/* All names of a directory (cookie 0), or one. -ESTALE: no such question, or it is started. -E2BIG: more than it can
 * hold. */
int inquiry_add(struct inquiries *q, uint64_t number, struct exclusive_name name);
/* All files of a user or a group instead: of a question that has no names. */
int inquiry_add_owner(struct inquiries *q, uint64_t number, struct fp_domain owner);
int inquiry_start(struct inquiries *q, uint64_t number);
int inquiry_status(struct inquiries *q, uint64_t number, struct inquiry_status *ret);
int inquiry_end(struct inquiries *q, uint64_t number); /* does not wait for it */
