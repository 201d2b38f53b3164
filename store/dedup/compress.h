/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Compression of new data, and with compress=auto the decision whether there is time for it. */
#pragma once

#include "store/engine.h"
#include "store/pack/pack.h"

struct pack_compression compress_for_pack(struct compress c);
/* compress=auto: is there time to compress? Depends on the counts of jobs and waiters; takes leaf locks only. */
struct pacer;
struct pacer *pacer_new(void); /* NULL: -ENOMEM */
void pacer_free(struct pacer *p); /* NULL is fine */
enum pack_time compress_time_for(void *engine, uint32_t bytes);
bool compress_is_disturbed(void *engine);
void compress_job_begins(struct engine *e);
void compress_job_ends(struct engine *e);
void compress_wait_begins(struct engine *e); /* the caller waits for jobs or a commit */
void compress_wait_ends(struct engine *e);
