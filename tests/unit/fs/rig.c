/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/fs/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fs/fs.h"
#include "store/remote/cluster_calls.h"
#include "store/engine.h"

void rig_collect(struct fs *fs)
{
	const struct gc_conf conf = { .delete = true };
	const struct cluster_window win = { 0, 1, 7 };
	uint8_t filter[CLUSTER_FILTER_MIN] = { 0 };
	struct cluster_unpinned u;
	struct gc_report report;

	assert_int_equal(engine_cluster_mark(fs->engine, &win, filter, sizeof(filter)), 0);
	assert_int_equal(engine_cluster_unpin(fs->engine, &win, filter, sizeof(filter), &u), 0);
	engine_cluster_end_collection(fs->engine);
	assert_true(u.nr_dropped > 0);
	assert_int_equal(engine_gc(fs->engine, &conf, &report), 0);
	assert_true(report.freed_chunks > 0);
}
