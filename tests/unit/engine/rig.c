#include "tests/unit/engine/rig.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "index/db.h"

static void shell(const char *fmt, ...) _printf_(1, 2);
static void shell(const char *fmt, ...)
{
	char cmd[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	assert_int_equal(system(cmd), 0);
}

void rig_open(struct rig *rig)
{
	assert_int_equal(engine_open(rig->path, &rig->conf, &rig->e), 0);
}

void rig_close(struct rig *rig)
{
	assert_int_equal(engine_close(TAKE(rig->e)), 0);
}

void rig_reopen(struct rig *rig)
{
	rig_close(rig);
	rig_open(rig);
}

int rig_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	snprintf(rig->path, sizeof(rig->path), "/tmp/ckptfs-unit-XXXXXX");
	if (!mkdtemp(rig->path))
		return -1;
	rig->conf = (struct engine_conf){ .page = 4096, .cache = MiB(32), .dirty = MiB(32) };
	rig_open(rig);
	*state = rig;
	return 0;
}

int rig_teardown(void **state)
{
	struct rig *rig = *state;

	engine_close(rig->e);
	shell("rm -rf %s", rig->path);
	free(rig);
	return 0;
}

void rig_crash(struct rig *rig)
{
	char copy[80];

	snprintf(copy, sizeof(copy), "%s.crash", rig->path);
	/* A temporary may vanish while it is copied: once more then. */
	for (unsigned i = 0; i < 2; i++)
		shell("test -d %s/packs || cp -a --sparse=always %s %s 2>/dev/null || rm -rf %s", copy, rig->path, copy, copy);
	engine_close(TAKE(rig->e));
	shell("rm -rf %s && mv %s %s", rig->path, copy, rig->path);
	rig_open(rig);
}

void rig_remove_index(struct rig *rig)
{
	shell("rm -rf %s/index", rig->path);
}

void rig_pattern(uint8_t *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
		p[i] = (uint8_t)(x >> (i % 8 * 8));
	}
}

struct content *rig_content(struct rig *rig, uint64_t ino)
{
	struct content *c;

	assert_int_equal(content_open(rig->e, ino, &c), 0);
	return c;
}

void rig_write(struct rig *rig, uint64_t ino, size_t len, uint64_t seed)
{
	_cleanup_(freep) uint8_t *p = malloc(len);
	struct content *c = rig_content(rig, ino);

	rig_pattern(p, len, seed);
	assert_int_equal(content_write(c, p, len, 0), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
}

void rig_check(struct rig *rig, uint64_t ino, size_t len, uint64_t seed)
{
	_cleanup_(freep) uint8_t *want = malloc(len), *got = malloc(len + 1);
	struct content *c = rig_content(rig, ino);

	rig_pattern(want, len, seed);
	assert_int_equal(content_read(c, got, len + 1, 0), len);
	assert_memory_equal(got, want, len);
	content_close(c);
}

void rig_check_absent(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino);
	struct ns_content st;

	content_stat(c, &st);
	assert_int_equal(st.size, 0);
	content_close(c);
}

void rig_name(struct rig *rig, const char *name, uint64_t ino)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	struct ns_dirent d;

	assert_int_equal(ns_find(engine_db(rig->e), engine_key(rig->e), NS_ROOT_INO, name, &d), 0);
	d.ino = ino;
	d.type = DT_REG;
	d.name_len = (uint8_t)strlen(name);
	strcpy(d.name, name);
	ns_dirent_encode(&d, &value);
	engine_tx_put(&tx, ns_key_dirent(NS_ROOT_INO, d.cookie), value.data, value.len);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

/* What is stored, with everything written to its place first. */
struct engine_stats rig_stats(struct rig *rig)
{
	struct engine_stats st;

	assert_int_equal(engine_sync(rig->e), 0);
	engine_stats(rig->e, &st);
	return st;
}

uint64_t rig_find(struct rig *rig, const char *name)
{
	struct ns_dirent d;

	return ns_find(engine_db(rig->e), engine_key(rig->e), NS_ROOT_INO, name, &d) > 0 ? d.ino : 0;
}
