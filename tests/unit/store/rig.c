/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/rig.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <glob.h>
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
#include "store/check/check.h"
#include "tests/unit/moment.h"
#include "tests/unit/place.h"

static void shell(const char *fmt, ...) _printf_(1, 2);
static void shell(const char *fmt, ...)
{
	char cmd[1024];
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

	snprintf(rig->path, sizeof(rig->path), "%s/ckptfs-unit-XXXXXX", test_place());
	if (!mkdtemp(rig->path))
		return -1;
	rig->conf = (struct engine_conf){ .page = 4096, .cache = MiB(32), .dirty = MiB(32), .processors = 2 };
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

void rig_copy_as_it_is(struct rig *rig)
{
	assert_int_equal(moment_copy(rig->path), 0);
}

void rig_close_to_copy(struct rig *rig)
{
	engine_close(TAKE(rig->e));
	assert_int_equal(moment_restore(rig->path), 0);
}

void rig_crash(struct rig *rig)
{
	rig_copy_as_it_is(rig);
	rig_close_to_copy(rig);
	rig_open(rig);
}

void rig_remove_index(struct rig *rig)
{
	shell("rm -rf %s/index", rig->path);
}

void rig_path_of(const struct rig *rig, const char *pattern, char ret[RIG_PATH_MAX])
{
	char path[RIG_PATH_MAX];
	glob_t g;

	snprintf(path, sizeof(path), "%s/%s", rig->path, pattern);
	assert_int_equal(glob(path, 0, NULL, &g), 0);
	snprintf(ret, RIG_PATH_MAX, "%s", g.gl_pathv[g.gl_pathc - 1]);
	globfree(&g);
}

void rig_flip(const struct rig *rig, const char *pattern, uint64_t off)
{
	char path[RIG_PATH_MAX];
	uint8_t b;
	int fd;

	rig_path_of(rig, pattern, path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &b, 1, (off_t)off), 1);
	b ^= 0x10;
	assert_int_equal(pwrite(fd, &b, 1, (off_t)off), 1);
	assert_int_equal(fsync(fd), 0);
	close(fd);
}

/* Files that a test has made have neither names nor attributes: that is told, and not meant. */
static void fail_with_finding(void *userdata, const struct check_finding *f)
{
	if (f->area != CHECK_NAMES && f->area != CHECK_CONTENTS)
		fail_msg("%s: %s", check_area_name(f->area), f->text);
	(void)userdata;
}

void rig_fsck(struct rig *rig)
{
	struct check_conf conf = { .cache = MiB(16), .read_data = true, .finding = fail_with_finding };
	struct check_result res;

	rig_close(rig);
	assert_int_equal(check_store(rig->path, &conf, &res), 0);
	rig_open(rig);
}

void rig_pattern(uint8_t *p, size_t len, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

	/* words of a plain type: under a sanitizer each byte that is stored by itself is checked by itself */
	for (size_t i = 0; i < len; i += sizeof(x)) {
		uint64_t word;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		word = htole64(x);
		if (len - i >= sizeof(word))
			memcpy(p + i, &word, sizeof(word));
		else
			memcpy(p + i, &word, len - i);
	}
}

uint8_t *rig_bytes(size_t len, uint64_t seed)
{
	uint8_t *p = malloc(len);

	assert_non_null(p);
	rig_pattern(p, len, seed);
	return p;
}

uint8_t *rig_soft_bytes(size_t len, uint64_t seed)
{
	uint8_t *p = rig_bytes(len, seed);

	for (size_t i = 0; i < len; i++)
		p[i] = i % 8 < 4 ? p[i] : 7;
	return p;
}

struct content *rig_content(struct rig *rig, uint64_t ino)
{
	struct content *c;

	assert_int_equal(content_open(rig->e, ino, &c), 0);
	return c;
}

void rig_write(struct rig *rig, uint64_t ino, size_t len, uint64_t seed)
{
	_cleanup_(freep) uint8_t *p = rig_bytes(len, seed);

	rig_write_bytes(rig, ino, p, len);
}

void rig_write_soft(struct rig *rig, uint64_t ino, size_t len, uint64_t seed)
{
	_cleanup_(freep) uint8_t *p = rig_soft_bytes(len, seed);

	rig_write_bytes(rig, ino, p, len);
}

void rig_write_next(struct rig *rig, uint64_t ino, uint64_t champion, const uint8_t *p, size_t len, size_t step)
{
	struct content *c = rig_content(rig, ino);

	content_set_champions(c, &champion, champion != 0);
	for (size_t done = 0; done < len; done += step)
		assert_int_equal(content_write(c, p + done, MIN(step, len - done), done), 0);
	assert_int_equal(content_flush(c), 0);
	content_set_champions(c, NULL, 0);
	content_close(c);
}

void rig_write_bytes(struct rig *rig, uint64_t ino, const uint8_t *p, size_t len)
{
	struct content *c = rig_content(rig, ino);

	assert_int_equal(content_write(c, p, len, 0), 0);
	assert_int_equal(content_flush(c), 0);
	content_close(c);
}

void rig_check(struct rig *rig, uint64_t ino, size_t len, uint64_t seed)
{
	_cleanup_(freep) uint8_t *want = rig_bytes(len, seed);

	rig_check_bytes(rig, ino, want, len);
}

void rig_check_bytes(struct rig *rig, uint64_t ino, const uint8_t *want, size_t len)
{
	_cleanup_(freep) uint8_t *got = malloc(len + 1);
	struct content *c = rig_content(rig, ino);

	assert_int_equal(content_read(c, got, len + 1, 0), len);
	assert_memory_equal(got, want, len);
	content_close(c);
}

void rig_check_steps(struct rig *rig, uint64_t first_ino, unsigned nr, unsigned dropped, size_t len,
		     void (*fill)(uint8_t *p, unsigned step))
{
	uint8_t *p = malloc(len);

	for (unsigned i = 0; i < nr; i++) {
		fill(p, i);
		if (!(dropped >> i & 1))
			rig_check_bytes(rig, first_ino + i, p, len);
	}
	free(p);
}

void rig_check_absent(struct rig *rig, uint64_t ino)
{
	struct content *c = rig_content(rig, ino);
	struct ns_content st;

	content_stat(c, &st);
	assert_int_equal(st.size, 0);
	content_close(c);
}

void rig_drop(struct rig *rig, uint64_t ino)
{
	_cleanup_(engine_tx_release) struct engine_tx tx = ENGINE_TX_EMPTY;

	engine_tx_drop_content(&tx, ino);
	assert_int_equal(engine_tx_apply(rig->e, &tx), 0);
}

struct gc_report rig_collect(struct rig *rig, const struct gc_conf *conf)
{
	struct gc_report report;

	assert_int_equal(engine_gc(rig->e, conf, &report), 0);
	return report;
}

struct scrub_report rig_scrub(struct rig *rig, const struct scrub_conf *conf)
{
	struct scrub_report report;

	assert_int_equal(engine_scrub(rig->e, conf, &report), 0);
	return report;
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

void rig_wait_until_repaired(struct rig *rig, uint64_t nr)
{
	struct engine_stats st;

	for (unsigned i = 0; i < 6000; i++) {
		engine_stats(rig->e, &st);
		if (st.nr_repaired >= nr)
			break;
		usleep(10000);
	}
	assert_int_equal(st.nr_repaired, nr);
}

struct engine_stats rig_stats(struct rig *rig)
{
	struct engine_stats st;

	assert_int_equal(engine_sync(rig->e), 0);
	engine_stats(rig->e, &st);
	return st;
}

size_t rig_pieces(struct rig *rig, uint64_t ino, struct content_piece *ret, size_t max)
{
	struct content *c = rig_content(rig, ino);
	uint64_t off = 0;
	size_t nr = 0;
	int n;

	while ((n = content_pieces(c, off, ret + nr, MIN(max - nr, (size_t)100))) > 0)
		for (int i = 0; i < n; i++)
			off += ret[nr++].len;
	assert_int_equal(n, 0);
	content_close(c);
	return nr;
}

uint64_t rig_find(struct rig *rig, const char *name)
{
	struct ns_dirent d;

	return ns_find(engine_db(rig->e), engine_key(rig->e), NS_ROOT_INO, name, &d) > 0 ? d.ino : 0;
}
