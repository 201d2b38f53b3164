/* SPDX-License-Identifier: GPL-3.0-or-later */
/* Choosing an operation, its names, places and bytes, and telling what differs. */
#include "model_op.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statfs.h>
#include <unistd.h>

#define NAME_POOL 24

uint64_t roll(struct worker *w, uint64_t n)
{
	w->rng ^= w->rng << 13, w->rng ^= w->rng >> 7, w->rng ^= w->rng << 17;
	return (w->rng >> 11) % n;
}

size_t random_len(struct worker *w, size_t max)
{
	static const size_t typical[] = { 1, 100, 4095, 4096, 4097, 8192, 65536, 131072, 1000000, 1048576 };
	size_t n = typical[roll(w, sizeof(typical) / sizeof(typical[0]))];

	if (roll(w, 2))
		n = 1 + roll(w, n);
	return n > max ? max : n;
}

uint64_t random_off(struct worker *w, uint64_t size)
{
	uint64_t off = roll(w, 4) ? roll(w, size + 1) : size + roll(w, 300000);

	if (roll(w, 2))
		off &= ~(uint64_t)(PAGE - 1);
	return off < FILE_MAX_SIZE ? off : FILE_MAX_SIZE - 1;
}

/* Pages of one of few contents, zeros and unique ones, so that whatever shares pages has something to do. */
void random_data(struct worker *w, uint8_t *p, uint64_t off, size_t len)
{
	size_t i = 0;

	while (i < len) {
		size_t in = (off + i) % PAGE, n = PAGE - in < len - i ? PAGE - in : len - i, k;
		unsigned kind = roll(w, 10);
		uint64_t x = kind < 4 ? 77 + roll(w, 12) : w->rng;

		if (kind < 6) {
			for (k = 0; k < n; k++) {
				uint64_t word = mix(x, (in + k) / 8);

				p[i + k] = word >> ((in + k) % 8 * 8);
			}
		} else if (kind < 8) {
			memset(p + i, 0, n);
		} else {
			for (k = 0; k < n; k++)
				p[i + k] = (x += 0x9e3779b97f4a7c15) >> 40;
		}
		i += n;
	}
}

void random_name(struct worker *w, char *ret)
{
	unsigned k = roll(w, NAME_POOL);

	if (k >= 2) {
		snprintf(ret, NAME_SIZE, "n%u", k);
		return;
	}
	memset(ret, 'l', NAME_SIZE - 1);
	ret[0] = '0' + k;
	ret[NAME_SIZE - 1] = 0;
}

int random_dent(struct worker *w, unsigned types)
{
	struct tree *t = w->tree;
	int i, found = -1;
	unsigned n = 0;

	for (i = 0; i < NR_DENTS; i++)
		if (t->dent[i].node >= 0 && (types >> t->node[t->dent[i].node].type & 1) && roll(w, ++n) == 0)
			found = i;
	return found;
}

int random_dir(struct worker *w)
{
	int d = roll(w, 3) ? random_dent(w, A(DIR)) : -1;

	return d < 0 ? 0 : w->tree->dent[d].node;
}

static bool mount_is_dead(struct worker *w)
{
	struct statfs st;

	return fstatfs(w->dirfd, &st) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

int differs(struct worker *w, int line, const char *format, ...)
{
	char text[4096];
	va_list ap;

	if (w->may_die && mount_is_dead(w))
		return OP_DEAD;
	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	printf("not ok %s, operation %llu, line %d: %s\n", w->tree->name, (unsigned long long)w->tree->nr_ops, line,
	       text);
	fflush(stdout);
	_exit(EXIT_FAILURE);
}


void dent_path(struct worker *w, int d, char *path)
{
	path_of(w->tree, w->tree->dent[d].dir, w->tree->dent[d].name, path, PATH_SIZE);
}

int same_bytes(struct worker *w, const char *path, const uint8_t *got, const uint8_t *want, uint64_t off, size_t len)
{
	size_t i;

	for (i = 0; i < len && got[i] == want[i]; i++)
		;
	if (i < len)
		return differs(w, __LINE__, "%s: byte %llu is %#x, expected %#x (read of %zu at %llu)", path,
			       (unsigned long long)(off + i), got[i], want[i], len, (unsigned long long)off);
	return OP_OK;
}

bool random_file(struct worker *w, int *ret_node, char *path)
{
	int d = random_dent(w, A(FILE));

	if (d < 0)
		return false;
	*ret_node = w->tree->dent[d].node;
	dent_path(w, d, path);
	return true;
}

sigjmp_buf bus_jump;

static void on_bus(int sig)
{
	(void)sig;
	siglongjmp(bus_jump, 1);
}

void catch_bus(void)
{
	signal(SIGBUS, on_bus);
}

int op_random(struct worker *w)
{
	static const struct {
		int (*run)(struct worker *w);
		unsigned weight;
	} ops[] = {
		{ op_create, 9 },     { op_mkdir, 4 },	 { op_special, 3 },    { op_link, 3 },	    { op_unlink, 8 },
		{ op_rename, 7 },     { op_exchange, 2 }, { op_write, 22 },    { op_truncate, 6 },  { op_fallocate, 7 },
		{ op_clone, 7 },      { op_mmap, 8 },	 { op_tmpfile, 2 },    { op_replace, 4 },   { op_orphan, 2 },
		{ op_attributes, 5 }, { op_xattr, 4 },	 { op_fsync, 2 },      { op_read, 12 },	    { op_stat, 6 },
		{ op_readdir, 4 },    { op_seek, 3 },	 { op_held, 12 },
	};
	unsigned i, sum = 0, pick;
	int r;

	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		sum += ops[i].weight;
	pick = roll(w, sum);
	for (i = 0; pick >= ops[i].weight; i++)
		pick -= ops[i].weight;
	r = ops[i].run(w);
	if (r == OP_OK)
		op_end(w->tree);
	return r;
}
