/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/util.h"

#define NR_PATTERNS 50u

void model_start(struct model *m, unsigned seed)
{
	m->seed = seed;
	for (unsigned f = 0; f < MODEL_FILES; f++) {
		m->bytes[f] = calloc(1, MODEL_SPACE);
		assert_non_null(m->bytes[f]);
		m->size[f] = 0;
	}
}

void model_finish(struct model *m)
{
	for (unsigned f = 0; f < MODEL_FILES; f++) {
		model_check(m, f);
		free(m->bytes[f]);
		rig_drop(m->rig, model_ino(f));
	}
}

unsigned model_some(struct model *m, unsigned below)
{
	return (unsigned)rand_r(&m->seed) % below;
}

uint64_t model_ino(unsigned f)
{
	return 101 + f;
}

void model_grow(struct model *m, unsigned f, size_t size)
{
	if (size > m->size[f])
		memset(m->bytes[f] + m->size[f], 0, size - m->size[f]);
	m->size[f] = MAX(m->size[f], size);
}

void model_write(struct model *m, unsigned f, struct content *c, const struct model_writes *writes)
{
	size_t near = MIN(m->size[f] + 10000, MODEL_SPACE - 1);
	size_t off = model_some(m, 3) == 0 ? m->size[f] : model_some(m, (unsigned)near);
	size_t len = 1 + model_some(m, model_some(m, writes->long_each) == 0 ? 1500000 : writes->short_max);
	size_t from = model_some(m, MODEL_SPACE / 2);
	unsigned kind = model_some(m, writes->zeros + writes->copies + writes->others);

	off = MIN(off, MODEL_SPACE - 1);
	len = MIN(len, MODEL_SPACE - off);
	model_grow(m, f, off + len);
	if (kind < writes->zeros)
		memset(m->bytes[f] + off, 0, len);
	else if (kind < writes->zeros + writes->copies)
		memmove(m->bytes[f] + off, m->bytes[model_some(m, MODEL_FILES)] + from, len);
	else
		rig_pattern(m->bytes[f] + off, len, model_some(m, NR_PATTERNS));
	assert_int_equal(content_write(c, m->bytes[f] + off, len, off), 0);
}

void model_truncate(struct model *m, unsigned f, struct content *c, size_t size)
{
	assert_int_equal(content_truncate(c, size), 0);
	model_grow(m, f, size);
	m->size[f] = size;
}

void model_punch(struct model *m, unsigned f, struct content *c, size_t off, size_t len)
{
	assert_int_equal(content_punch(c, off, len), 0);
	if (off < m->size[f])
		memset(m->bytes[f] + off, 0, MIN(len, m->size[f] - off));
}

void model_check(struct model *m, unsigned f)
{
	rig_check_bytes(m->rig, model_ino(f), m->bytes[f], m->size[f]);
}
