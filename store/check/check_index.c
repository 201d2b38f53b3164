/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Opens the index, which may be damaged in ways that crash RocksDB, and reads its 'M' records. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/le.h"
#include "base/log.h"
#include "index/db.h"
#include "index/fingerprints.h"
#include "store/check/check_internal.h"

#define PROBE_KEYS 65536u
#define PROBE_EACH 64u /* look up every 64th key: enough to read every block of a filter */

static int get_meta(struct check *k, const char *name, struct buf *ret)
{
	struct ns_key key = ns_key_meta(name);

	buf_clear(ret);
	return db_get(k->db, DB_VIEW, key.b, key.len, ret);
}

static int get_number(struct check *k, const char *name, uint64_t *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_meta(k, name, &value);
	struct le64 n;

	if (r <= 0 || value.len != sizeof(n))
		return r < 0 ? r : r == 0 ? 0 : -EBADMSG;
	memcpy(&n, value.data, sizeof(n));
	*ret = le64_get(n);
	return 0;
}

static int get_marks(struct check *k, const char *name, struct pack_marks *ret)
{
	_cleanup_(buf_release) struct buf value = BUF_EMPTY;
	int r = get_meta(k, name, &value);

	return r <= 0 ? r : marks_decode(value.data, value.len, ret);
}

static int read_meta(struct check *k)
{
	int r;

	memset(&k->meta, 0, sizeof(k->meta));
	k->meta.next_number = NS_ROOT_INO + 1;
	k->meta.marks.next_pack = 1;
	r = get_number(k, "commit", &k->meta.commit);
	if (r == 0)
		r = get_number(k, "logical", &k->meta.logical);
	if (r == 0)
		r = get_number(k, "next_number", &k->meta.next_number);
	if (r == 0)
		r = get_number(k, "backrefs", &k->meta.backrefs);
	if (r == 0)
		r = get_number(k, "layers", &k->meta.layers);
	if (r == 0)
		r = get_marks(k, "marks", &k->meta.marks);
	if (r == 0)
		r = get_marks(k, "absorbed", &k->meta.absorbed);
	return r;
}

/* Reads the whole index through every kind of access used later. */
static void read_all(struct db *db)
{
	_cleanup_(freep) uint64_t *keys = malloc(PROBE_KEYS * sizeof(*keys));
	struct db_iter *it;
	const void *key, *value;
	size_t key_len, value_len, n = 0;
	uint64_t from = 0;

	if (db_iter_new(db, NULL, NULL, 0, NULL, 0, &it) < 0)
		return;
	while (db_iter_next(it, &key, &key_len, &value, &value_len) > 0)
		if (n++ % PROBE_EACH == 0)
			(void)db_get(db, DB_VIEW, key, key_len, NULL);
	db_iter_free(it);
	while (keys && fingerprints_scan(db, from, keys, PROBE_KEYS, &n) == 0 && n > 0) {
		for (size_t i = 0; i < n; i += PROBE_EACH) {
			uint8_t be[8];

			be64_put(be, keys[i]);
			(void)db_get(db, DB_FINGERPRINTS, be, sizeof(be), NULL);
		}
		from = keys[n - 1] + 1;
		if (n < PROBE_KEYS || from == 0) /* the last key is the largest possible one */
			break;
	}
}

/* Has this process no other thread, so that a forked child may do anything? Threads of RocksDB never end. */
static bool is_single_threaded(void)
{
	DIR *d = opendir("/proc/self/task");
	unsigned nr = 0;
	struct dirent *e;

	while (d && (e = readdir(d)))
		nr += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return nr == 1;
}

/*
 * RocksDB aborts on some kinds of damage instead of returning an error. So a child process reads the whole index first,
 * where an abort does no harm. true: the child survives, whatever it finds; or this cannot be tried, because an index
 * has been opened in this process before.
 */
static bool survives_reading(const char *dir, const struct db_conf *conf)
{
	struct db *db;
	int status = 0;
	pid_t pid;

	if (!is_single_threaded())
		return true;
	pid = fork();
	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
		dup2(null, STDERR_FILENO);
		if (db_open(dir, conf, &db) == 0)
			read_all(db);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

bool check_index_unusable(int r)
{
	return r == -EBADMSG || r == -EIO || r == -ENOENT || r == -ENOTDIR;
}

int check_index_open(struct check *k)
{
	struct db_conf conf = { .cache = k->conf->cache / 4, .read_only = true };
	_cleanup_(freep) char *dir = NULL;
	int r;

	if (asprintf(&dir, "%s/index", k->path) < 0)
		return -ENOMEM;
	memset(&k->meta, 0, sizeof(k->meta));
	if (!survives_reading(dir, &conf)) {
		log_error("index %s: damaged; RocksDB crashes when reading it", dir);
		return 0;
	}
	r = db_open(dir, &conf, &k->db);
	if (r == 0)
		r = read_meta(k);
	if (!check_index_unusable(r))
		return r;
	db_close(TAKE(k->db)); /* the repair depends on the journal */
	return 0;
}
