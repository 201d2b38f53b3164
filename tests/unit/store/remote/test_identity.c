/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The identity of a store in its cluster, and whether a round has chunks to decide about. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tests/unit/store/rig.h"
#include "store/remote/cluster_calls.h"
#include "tests/unit/place.h"

static void key_file(char path[], uint8_t byte)
{
	uint8_t key[32];
	int fd = mkstemp(path);

	memset(key, byte, sizeof(key));
	assert_true(fd >= 0);
	assert_int_equal(write(fd, key, sizeof(key)), sizeof(key));
	close(fd);
}

static struct cluster_identity identity_of_new_store(const char *keyfile)
{
	struct cluster_identity id;
	struct rig *rig = calloc(1, sizeof(*rig));
	void *state = rig;

	assert_non_null(rig);
	snprintf(rig->path, sizeof(rig->path), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(rig->path));
	rig->conf = (struct engine_conf){ .page = 4096, .cache = MiB(16), .dirty = MiB(16), .cluster = keyfile };
	rig_open(rig);
	assert_int_equal(engine_cluster_identity(rig->e, &id), 1);
	assert_memory_equal(id.id, engine_store_id(rig->e), sizeof(id.id));
	rig_teardown(&state);
	return id;
}

static void stores_of_a_cluster_can_prove_it_to_each_other(void **state)
{
	char ours[] = "/tmp/ckptfs-key-XXXXXX", other[] = "/tmp/ckptfs-key-XXXXXX";
	struct cluster_identity a, b, c;

	(void)state;
	key_file(ours, 1);
	key_file(other, 2);
	a = identity_of_new_store(ours);
	b = identity_of_new_store(ours);
	c = identity_of_new_store(other);
	assert_int_equal(a.hash, FP_CLMUL);
	assert_int_equal(a.incompat, b.incompat);
	assert_memory_equal(a.proof_key, b.proof_key, sizeof(a.proof_key));
	assert_memory_not_equal(a.id, b.id, sizeof(a.id));
	assert_memory_not_equal(a.proof_key, c.proof_key, sizeof(a.proof_key));
	unlink(ours);
	unlink(other);
}

static bool is_there(void *userdata)
{
	(void)userdata;
	fail_msg("a store of its own asks others");
	return false;
}

static void a_store_of_its_own_is_of_no_cluster(void **state)
{
	static const struct cluster_calls calls = { .is_there = is_there };
	struct rig *rig = *state;
	struct cluster_identity id;

	assert_int_equal(engine_cluster_identity(rig->e, &id), 0);
	rig_close(rig);
	rig->conf.cluster_calls = &calls;
	rig_open(rig);
	rig_write(rig, 1, MiB(2), 1);
	assert_int_equal(engine_sync(rig->e), 0);
	rig_check(rig, 1, MiB(2), 1);
	assert_false(engine_cluster_pending(rig->e));
}

struct asked {
	struct rig *rig;
	atomic_uint nr, nr_pending;
};

static bool is_asked(void *userdata)
{
	(void)userdata;
	return true;
}

static int decide_nothing(void *userdata, const struct fp *offer, size_t nr, struct cluster_decision *ret)
{
	struct asked *a = userdata;

	(void)offer, (void)nr, (void)ret;
	a->nr++;
	a->nr_pending += engine_cluster_pending(a->rig->e);
	return -ENOTCONN;
}

/* Else a round that begins meanwhile would find that this node has nothing, and the commit would come to a round of its
 * own. */
static void what_is_on_its_way_to_a_round_is_pending(void **state)
{
	char keyfile[] = "/tmp/ckptfs-key-XXXXXX";
	struct asked asked = { .rig = *state };
	const struct cluster_calls calls = { .userdata = &asked, .is_there = is_asked, .decide = decide_nothing };
	void *rig = asked.rig;

	rig_teardown(&rig);
	asked.rig = calloc(1, sizeof(*asked.rig));
	*state = asked.rig;
	key_file(keyfile, 3);
	snprintf(asked.rig->path, sizeof(asked.rig->path), "%s/ckptfs-unit-XXXXXX", test_place());
	assert_non_null(mkdtemp(asked.rig->path));
	asked.rig->conf = (struct engine_conf){
		.page = 4096, .cache = MiB(16), .dirty = MiB(16), .cluster = keyfile, .cluster_calls = &calls
	};
	rig_open(asked.rig);
	assert_false(engine_cluster_pending(asked.rig->e));
	rig_write(asked.rig, 1, MiB(2), 1);
	assert_true(engine_cluster_pending(asked.rig->e));
	assert_int_equal(engine_sync(asked.rig->e), 0);
	assert_true(asked.nr > 0);
	assert_int_equal(asked.nr_pending, asked.nr);
	assert_false(engine_cluster_pending(asked.rig->e));
	unlink(keyfile);
	rig_close(asked.rig); /* before `asked` is gone */
	asked.rig->conf.cluster = NULL;
	asked.rig->conf.cluster_calls = NULL;
	rig_open(asked.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stores_of_a_cluster_can_prove_it_to_each_other),
		rig_test(a_store_of_its_own_is_of_no_cluster),
		rig_test(what_is_on_its_way_to_a_round_is_pending),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
