/* SPDX-License-Identifier: GPL-3.0-or-later */
/* In place of peer.c in a build without the cluster: no store has peers. */
#include "tests/crash/peer.h"

int peer_begin(uint64_t seed, const char *log, bool records)
{
	(void)seed;
	(void)log;
	(void)records;
	return 0;
}

void peer_join(struct engine_conf *conf)
{
	(void)conf;
}

void peer_register(struct engine *e)
{
	(void)e;
}

void peer_end(void)
{
}
