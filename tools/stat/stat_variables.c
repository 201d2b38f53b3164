/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/stat_variables.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/stat/stat_ask.h"

#define KEY_WIDTH 36

static double coding_ratio(const struct ckptfs_variable *v)
{
	return v->after > 0 ? (double)v->coded / (double)v->after : 1;
}

static double mb_per_s(const struct ckptfs_variable *v)
{
	return v->code_ns > 0 ? (double)v->coded * 1000 / (double)v->code_ns : 0;
}

/* Bytes of no variable are merged by file in every scheme. */
static const char *scheme_name(const struct ckptfs_variable *v)
{
	bool turns = v->turns == CKPTFS_COMPACT_TURNS, aware = v->key[0] != '\0';

	return aware ? (turns ? "aware-block" : "aware") : turns ? "agnostic-block" : "agnostic";
}

static const char *shown_key(const struct ckptfs_variable *v)
{
	return v->key[0] ? v->key : "(no variable)";
}

static void add_variable(struct json *j, const struct ckptfs_variable *v)
{
	json_open(j, NULL);
	json_string(j, "key", shown_key(v));
	json_string(j, "type", v->type);
	json_string(j, "scheme", scheme_name(v));
	json_string(j, "coder", v->coder);
	json_u64(j, "coded_bytes", v->coded);
	json_u64(j, "before_bytes", v->before);
	json_u64(j, "after_bytes", v->after);
	json_real(j, "ratio", coding_ratio(v), 3);
	json_u64(j, "encode_ns", v->code_ns);
	json_real(j, "mb_per_s", mb_per_s(v), 1);
	json_u64(j, "last_ns", v->last_ns);
	json_close(j);
}

static void print_text_row(FILE *to, const struct ckptfs_variable *v)
{
	json_print_cell(to, shown_key(v), KEY_WIDTH); /* untrusted */
	text_printf(to, "  %-6s %10s %10s %7.3f %7.0f  %-14s %s\n", v->type, human_size(v->coded).s,
		    human_size(v->after).s, coding_ratio(v), mb_per_s(v), scheme_name(v), v->coder);
}

static int print_variables(int fd, const char *mountpoint, bool json, FILE *to)
{
	struct ckptfs_variable v = { .size = sizeof(v), .version = CKPTFS_IOC_VERSION };
	struct json j = json_to_file(to);
	int r;

	if (json) {
		json_open(&j, NULL);
		json_string(&j, "path", mountpoint);
		json_u64(&j, "schema_version", 1);
		json_string(&j, "kind", "variables");
		json_open_array(&j, "variables");
	} else {
		text_print(to, mountpoint);
		fprintf(to, "\n%-*s  %-6s %10s %10s %7s %7s  %-14s %s\n", KEY_WIDTH, "", "TYPE", "PLAIN", "STORED",
			"RATIO", "MB/S", "SCHEME", "CODER");
	}
	while (ioctl(fd, CKPTFS_IOC_VARIABLE, &v) == 0) {
		/* The answer may come from another user's filesystem. */
		v.type[sizeof(v.type) - 1] = v.coder[sizeof(v.coder) - 1] = v.key[sizeof(v.key) - 1] = '\0';
		if (json)
			add_variable(&j, &v);
		else
			print_text_row(to, &v);
	}
	r = errno == ENOENT ? 0 : -errno;
	if (json) {
		json_close_array(&j);
		json_end(&j);
	}
	return r;
}

int stat_variables(const char *mountpoint, bool json, FILE *to)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	int r = stat_ask(mountpoint, &a); /* before a table is begun */

	if (r < 0) {
		stat_complain(mountpoint, r, 0);
		return r;
	}
	fd = open(mountpoint, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : print_variables(fd, mountpoint, json, to);
	if (r == -EPERM)
		text_printf(stderr, "ckptfs-stat: %s: only root and the mounting user can list variables\n",
			mountpoint);
	else if (r < 0)
		text_printf(stderr, "ckptfs-stat: %s: cannot list variables: %s\n", mountpoint, strerror(-r));
	return r == -EINVAL ? -EIO : r;
}
