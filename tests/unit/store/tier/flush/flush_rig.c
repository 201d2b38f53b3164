/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/flush/flush_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"

char flush_logged[1000];

static void note_line(void *userdata _unused_, enum log_level level _unused_, const char *line)
{
	snprintf(flush_logged, sizeof(flush_logged), "%s", line);
}

void flush_rig_log(void)
{
	log_to_function(note_line, NULL);
}

struct tier_writer_conf flush_conf(void)
{
	static const uint8_t secret[FP_KEY_LEN] = "a secret of thirty-two bytes...";
	struct tier_writer_conf conf = checkpoint_writer;

	tier_key_init(&conf.key, FP_CLMUL, secret);
	return conf;
}

/* One writer's life. */
int flush_once(struct tier *t, const struct checkpoint *c, struct tier_flushed *ret)
{
	struct tier_writer_conf conf = flush_conf();
	struct tier_writer *w = NULL;
	int r = tier_writer_open(t, &conf, &w);

	if (r == 0)
		r = tier_flush(w, &c->c, ret);
	tier_writer_close(w);
	return r;
}

unsigned flush_check(struct memory *m, const struct checkpoint *a, const struct checkpoint *b)
{
	const struct checkpoint *v[] = { a, b };

	return checkpoints_check(memory_open(m, &(struct memory_faults){ 0 }), v, 2);
}

size_t flush_nr_packs(const struct memory *m)
{
	size_t nr = 0;

	for (size_t i = 0; i < memory_nr(m); i++)
		nr += strncmp(memory_name(m, i), "packs/", 6) == 0;
	return nr;
}

bool flush_has_manifest(const struct memory *m, uint64_t number)
{
	size_t len;

	return memory_find(m, tier_manifest_name(checkpoint_writer.store, number).s, &len);
}

void memory_replace(struct memory *m, const char *name, const void *data, size_t len)
{
	struct tier_request q = { .op = TIER_PUT, .name = name, .data = data, .len = len };

	assert_int_equal(tier_call(memory_open(m, &(struct memory_faults){ 0 }), &q), 0);
}

static bool begins_with(const char *s, const char *with)
{
	return strncmp(s, with, strlen(with)) == 0;
}

void memory_delete_all(struct memory *m, const char *prefix)
{
	struct tier *t = memory_open(m, &(struct memory_faults){ 0 });

	for (size_t i = memory_nr(m); i-- > 0;)
		if (begins_with(memory_name(m, i), prefix)) {
			struct tier_request q = { .op = TIER_DELETE, .name = memory_name(m, i) };

			assert_int_equal(tier_call(t, &q), 0);
		}
}
