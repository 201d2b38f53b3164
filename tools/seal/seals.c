/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/seal/seals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/sha256.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/common/age.h"
#include "tools/common/daemon.h"
#include "tools/seal/seal_tier.h"

#define SCHEMA_VERSION 1

void seals_release(struct seals *s)
{
	for (size_t i = 0; i < s->nr; i++)
		free(s->v[i].path);
	free(s->v);
	free(s->by_directory);
}

static int add_seal(struct seals *s, const struct ckptfs_seal *one)
{
	char *path;

	if (s->nr == s->room) {
		size_t room = MAX(2 * s->room, (size_t)16);
		struct sealed *more = reallocarray(s->v, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->v = more;
		s->room = room;
	}
	path = strndup(one->path, sizeof(one->path));
	if (!path)
		return -ENOMEM;
	s->v[s->nr] = (struct sealed){
		.inode = one->inode,
		.sealed_ns = one->sealed_ns,
		.files = one->files,
		.directories = one->directories,
		.bytes = one->bytes,
		.new_bytes = one->new_bytes,
		.uid = one->uid,
		.facts = one->facts,
		.path = path,
	};
	memcpy(s->v[s->nr++].root, one->root, sizeof(one->root));
	return 0;
}

static int compare_times(const void *a, const void *b)
{
	const struct sealed *x = a, *y = b;

	if (x->sealed_ns != y->sealed_ns)
		return x->sealed_ns < y->sealed_ns ? -1 : 1;
	return (x->inode > y->inode) - (x->inode < y->inode);
}

static int ask_all(int fd, enum ckptfs_seal_command command, struct seals *ret)
{
	struct ckptfs_seal one = { .size = sizeof(one), .version = CKPTFS_IOC_VERSION, .command = command };
	int r = 0;

	while (r == 0 && ioctl(fd, CKPTFS_IOC_SEAL, &one) == 0)
		r = add_seal(ret, &one);
	if (r == 0 && errno != ENOENT)
		r = -errno;
	if (r == 0 && ret->nr > 0)
		qsort(ret->v, ret->nr, sizeof(*ret->v), compare_times);
	return r;
}

int seals_ask(int fd, struct seals *ret)
{
	return ask_all(fd, CKPTFS_SEAL_NEXT, ret);
}

/* Drops seals that are not visible below the mountpoint. */
static void place_all(struct seals *s)
{
	size_t nr = 0;

	for (size_t i = 0; i < s->nr; i++) {
		const char *inside = place_inside(&s->place, s->v[i].path);

		if (!inside) {
			free(s->v[i].path);
			continue;
		}
		memmove(s->v[i].path, inside, strlen(inside) + 1);
		s->v[nr++] = s->v[i];
	}
	s->nr = nr;
}

/* The absolute path of `inside`, which is relative to the mountpoint. */
static char *path_of(const struct seals *s, const char *inside, size_t inside_len)
{
	char *path;
	int len = asprintf(&path, "%s%.*s", s->place.point, (int)inside_len, inside);

	if (len < 0)
		return NULL;
	if (len > 1 && path[len - 1] == '/')
		path[len - 1] = '\0';
	return path;
}

char *seals_path(const struct seals *s, const struct sealed *one)
{
	return path_of(s, one->path, strlen(one->path));
}

static size_t parent_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

char *seals_directory(const struct seals *s, const struct sealed *one)
{
	return path_of(s, one->path, parent_len(one->path));
}

static int compare_parents(const struct sealed *x, const struct sealed *y)
{
	size_t a = parent_len(x->path), b = parent_len(y->path);
	int r = memcmp(x->path, y->path, MIN(a, b));

	return r != 0 ? r : (a > b) - (a < b);
}

/* By directory and owner, then in the order of the list. */
static int compare_owners(const void *a, const void *b)
{
	const struct sealed *x = *(struct sealed *const *)a, *y = *(struct sealed *const *)b;
	int r = compare_parents(x, y);

	return r != 0 ? r : x->uid != y->uid ? (x->uid > y->uid) - (x->uid < y->uid) : (x > y) - (x < y);
}

static int compare_directories(const void *a, const void *b)
{
	const struct sealed *x = *(struct sealed *const *)a, *y = *(struct sealed *const *)b;
	int r = compare_parents(x, y);

	return r != 0 ? r : (x > y) - (x < y);
}

size_t seals_in_directory(const struct seals *s, size_t first)
{
	size_t end = first + 1;

	while (end < s->nr && compare_parents(s->by_directory[end], s->by_directory[first]) == 0)
		end++;
	return end - first;
}

/* Of each owner, as retention counts them. */
static void mark_newest(struct seals *s)
{
	qsort(s->by_directory, s->nr, sizeof(struct sealed *), compare_owners);
	for (size_t i = 0; i < s->nr; i++) {
		struct sealed *one = s->by_directory[i], *next = i + 1 < s->nr ? s->by_directory[i + 1] : NULL;

		one->is_newest = !next || next->uid != one->uid || compare_parents(next, one) != 0;
	}
}

static int group_all(struct seals *s)
{
	if (s->nr == 0)
		return 0;
	s->by_directory = calloc(s->nr, sizeof(struct sealed *));
	if (!s->by_directory)
		return -ENOMEM;
	for (size_t i = 0; i < s->nr; i++)
		s->by_directory[i] = &s->v[i];
	mark_newest(s);
	qsort(s->by_directory, s->nr, sizeof(struct sealed *), compare_directories);
	return 0;
}

static void add_path(struct json *j, const char *key, const struct seals *s, const char *inside)
{
	_cleanup_(freep) char *path = path_of(s, inside, strlen(inside));

	json_string(j, key, path ? path : inside);
}

static size_t text_print_path(FILE *to, const struct seals *s, const char *inside)
{
	_cleanup_(freep) char *path = path_of(s, inside, strlen(inside));

	return text_print(to, path ? path : inside);
}

/* Where it is stored. */
static const char *durable(const struct sealed *e)
{
	bool is_dropped = e->facts & CKPTFS_SEAL_DROPPED;

	if (e->facts & CKPTFS_SEAL_REMOTE)
		return "node";
	if (is_dropped && e->is_removed)
		return "none";
	if (e->is_in_tier || e->facts & CKPTFS_SEAL_OF_TIER || is_dropped)
		return "tier";
	return e->facts & CKPTFS_SEAL_PROTECTED ? "partner" : "local";
}

static void add_count(struct json *j, const char *key, bool is_known, uint64_t v)
{
	if (is_known)
		json_u64(j, key, v);
	else
		json_null(j, key);
}

static void add_json_seal(struct json *j, const struct seals *s, const struct sealed *e)
{
	bool is_here = !(e->facts & CKPTFS_SEAL_REMOTE); /* otherwise only the node that sealed it has these figures */
	bool has_root = e->facts & CKPTFS_SEAL_HAS_ROOT, is_of_tier = e->facts & CKPTFS_SEAL_OF_TIER;

	json_open(j, NULL);
	add_path(j, "path", s, e->path);
	json_u64(j, "inode", e->inode);
	json_i64(j, "sealed_ns", e->sealed_ns);
	json_u64(j, "age_ns", age_since(e->sealed_ns));
	json_string(j, "state", "sealed");
	json_string(j, "durable", durable(e));
	json_bool(j, "dropped", e->facts & CKPTFS_SEAL_DROPPED);
	json_bool(j, "newest", e->is_newest);
	add_count(j, "uid", is_here, e->uid);
	add_count(j, "files", is_here, e->files);
	add_count(j, "directories", is_here, e->directories);
	add_count(j, "bytes", is_here, e->bytes);
	add_count(j, "new_bytes", has_root && !is_of_tier, e->new_bytes);
	json_string(j, "root", has_root ? sha256_hex(e->root).s : NULL);
	if (!s->has_tier || !is_here) {
		json_null(j, "tier");
	} else {
		json_open(j, "tier");
		json_bool(j, "complete", e->is_in_tier);
		json_bool(j, "removed", e->is_removed);
		json_u64(j, "flushed_bytes", e->flushed_bytes);
		add_count(j, "left_ns", e->is_in_tier || e->left_ns > 0, e->left_ns);
		json_u64(j, "errno", (uint64_t)-e->tier_error);
		json_close(j);
	}
	json_close(j);
}

static void print_json(FILE *to, const struct seals *s)
{
	struct json j = json_to_file(to);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	add_path(&j, "mountpoint", s, "");
	json_open_array(&j, "sealed");
	for (size_t i = 0; i < s->nr; i++)
		add_json_seal(&j, s, &s->v[i]);
	json_close_array(&j);
	json_end(&j);
}

/* Progress of the flush to the tier. */
static void print_tier(FILE *to, const struct sealed *e)
{
	bool is_dropped = e->facts & CKPTFS_SEAL_DROPPED;

	if (e->is_in_tier)
		fputs(is_dropped ? "  all, dropped here" : "  all", to);
	else if (e->is_removed)
		fputs(is_dropped ? "  lost: dropped here, and not in the tier" : "  removed by retention", to);
	else if (e->tier_error < 0)
		text_printf(to, "  cannot read: %s", strerror(-e->tier_error));
	else
		fprintf(to, "  %s of %s", human_size(e->flushed_bytes).s, human_size(e->bytes).s);
	if (!e->is_in_tier && e->left_ns > 0)
		fprintf(to, ", %s left", human_age(e->left_ns).s);
}

/* Width of the longest path. */
static size_t path_columns(const struct seals *s)
{
	_cleanup_(freep) char *text = NULL;
	size_t len, columns = strlen("CHECKPOINT");
	FILE *to = open_memstream(&text, &len);

	for (size_t i = 0; to && i < s->nr; i++)
		columns = MAX(columns, text_print_path(to, s, s->v[i].path));
	if (to)
		fclose(to);
	return columns;
}

static void print_text(FILE *to, const struct seals *s)
{
	size_t width = path_columns(s);

	if (s->nr == 0) {
		text_print_path(to, s, "");
		fputs(geteuid() == 0 ? ": no sealed directories\n" : ": no sealed directories of this user\n", to);
		return;
	}
	fprintf(to, "  %-*s  %-6s  %-7s  %10s  %10s  %9s  %5s%s\n", (int)width, "CHECKPOINT", "STATE", "DURABLE", "SIZE",
		"NEW", "FILES", "AGE", s->has_tier ? "  TIER" : "");
	for (size_t i = 0; i < s->nr; i++) {
		const struct sealed *e = &s->v[i];
		bool is_known = !(e->facts & CKPTFS_SEAL_REMOTE);
		bool has_new = (e->facts & (CKPTFS_SEAL_HAS_ROOT | CKPTFS_SEAL_OF_TIER)) == CKPTFS_SEAL_HAS_ROOT;
		char files[24] = "-";
		size_t columns;

		if (is_known)
			snprintf(files, sizeof(files), "%" PRIu64, e->files);
		fputs(e->is_newest ? "* " : "  ", to);
		columns = text_print_path(to, s, e->path);
		fprintf(to, "%*s  %-6s  %-7s  %10s  %10s  %9s  %5s", (int)(width - columns), "", "sealed", durable(e),
			is_known ? human_size(e->bytes).s : "-",
			has_new ? human_size(e->new_bytes).s : "-", files,
			human_age(age_since(e->sealed_ns)).s);
		if (s->has_tier && is_known)
			print_tier(to, e);
		fputc('\n', to);
	}
}

/* A node also has a longer name (NAME~ID): print paths with the name that the user gave. */
static int rename_node(struct seals *s, const char *path)
{
	static const char nodes[] = ".ckptfs/nodes/";
	_cleanup_(freep) char *real = realpath(path, NULL);
	const char *asked = real ? strstr(real, nodes) : NULL;
	size_t len, prefix = strlen(nodes);

	if (!asked)
		return 0;
	asked += prefix;
	len = strcspn(asked, "/");
	for (size_t i = 0; i < s->nr; i++) {
		struct sealed *e = &s->v[i];
		char *renamed;

		if (strncmp(e->path, nodes, prefix) != 0)
			continue;
		if (asprintf(&renamed, "%s%.*s%s", nodes, (int)len, asked,
			     e->path + prefix + strcspn(e->path + prefix, "/")) < 0)
			return -ENOMEM;
		free(e->path);
		e->path = renamed;
	}
	return 0;
}

static int get_all(const char *tool, const char *path, bool shown, struct seals *ret)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0) {
		r = -errno;
		report_unopened(tool, path, "a mountpoint, or a directory below it", r);
		return r;
	}
	r = shown ? ask_all(fd, CKPTFS_SEAL_OF_NODE, ret) : -ENODATA;
	if (r == -ENODATA)
		r = seals_ask(fd, ret);
	else if (r == 0)
		r = rename_node(ret, path);
	if (r == -ENOTTY)
		text_printf(stderr, "%s: %s: not on a ckptfs; give a mountpoint, or a directory below it\n", tool, path);
	else if (r == -ENOTUNIQ)
		text_printf(stderr, "%s: %s: contains sealed directories of several nodes; give one of its subdirectories\n", tool, path);
	else if (r < 0)
		report_refusal(tool, path, "it", "list sealed directories", r);
	if (r < 0)
		return r;
	r = place_find(fd, &ret->place);
	if (r < 0) {
		text_printf(stderr, "%s: %s: cannot find its mountpoint in /proc/self/mountinfo: %s\n", tool, path,
			strerror(-r));
		return r;
	}
	place_all(ret);
	r = group_all(ret);
	if (r < 0)
		text_printf(stderr, "%s: %s: %s\n", tool, path, strerror(-r));
	return r;
}

int seals_get(const char *tool, const char *path, struct seals *ret)
{
	return get_all(tool, path, false, ret);
}

int seals_get_shown(const char *tool, const char *path, struct seals *ret)
{
	return get_all(tool, path, true, ret);
}

/* Adds the state in the tier. A directory that was just unsealed is shown as not flushed. */
static void add_tier_states(const char *path, struct seals *s)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ckptfs_tier t;

	s->has_tier = fd >= 0 && seal_tier_get(fd, 0, &t) == 0;
	for (size_t i = 0; i < s->nr && s->has_tier; i++) {
		struct sealed *e = &s->v[i];

		if (e->facts & CKPTFS_SEAL_REMOTE || seal_tier_get(fd, e->inode, &t) < 0)
			continue;
		e->is_in_tier = t.facts & CKPTFS_TIER_HAS;
		e->is_removed = t.facts & CKPTFS_TIER_REMOVED;
		e->tier_error = -t.directory_error;
		e->flushed_bytes = t.flushed_bytes;
		e->left_ns = t.directory_left_ns;
	}
}

int seals_list(const char *tool, const char *path, bool json, FILE *to)
{
	_cleanup_(seals_release) struct seals s = { 0 };
	int r = seals_get_shown(tool, path, &s);

	if (r < 0)
		return r;
	add_tier_states(path, &s);
	if (json)
		print_json(to, &s);
	else
		print_text(to, &s);
	return 0;
}
