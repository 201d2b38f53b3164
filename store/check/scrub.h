/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The scrub record of a store. engine.h has engine_scrub(). */
#pragma once

struct engine;
struct scrub_record;

struct scrub_record *scrub_record_new(void); /* NULL: -ENOMEM */
void scrub_record_free(struct scrub_record *r); /* NULL is fine */
int scrub_load(struct engine *e); /* at open */
