/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Repair of damaged chunks: writing the same content again makes a second copy, to which all files are redirected. */
#pragma once

#include <stdint.h>

#include "store/pack/pack.h"

struct engine;
struct repairs;

struct repairs *repairs_new(void); /* NULL: -ENOMEM */
void repairs_free(struct repairs *r); /* NULL is fine; forgets what is noted */

/* the same chunk was stored again at `to` */
void repair_note(struct engine *e, struct addr damaged, uint32_t len, struct addr to);
int repair_tend(struct engine *e); /* called often by the background thread */
int repair_now(struct engine *e); /* repair everything noted, unless a collection is running */
