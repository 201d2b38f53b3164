/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Another node of the cluster, for a store that is one: it offers some of the pages that the store does, and keeps its
 * bytes in a file that no crash of the store touches. Half of the seeds have one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct engine_conf;

/* `log`: of the run; its bytes are beside it. `records`: there are rounds, and it begins without any. */
int peer_begin(uint64_t seed, const char *log, bool records);
void peer_join(struct engine_conf *conf);
void peer_register(struct engine *e); /* the store that takes part in its rounds */
void peer_end(void);
