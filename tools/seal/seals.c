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
#include "base/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "tools/common/daemon.h"

#define SCHEMA_VERSION 1

void seals_release(struct seals *s)
{
	free(s->v);
}

static int add_seal(struct seals *s, const struct ckptfs_seal *one)
{
	if (s->nr == s->room) {
		size_t room = MAX(2 * s->room, (size_t)16);
		struct ckptfs_seal *more = reallocarray(s->v, room, sizeof(*more));

		if (!more)
			return -ENOMEM;
		s->v = more;
		s->room = room;
	}
	s->v[s->nr++] = *one;
	return 0;
}

static int compare_times(const void *a, const void *b)
{
	const struct ckptfs_seal *x = a, *y = b;

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

/* What is not to be seen from there on is left out. */
static void place_all(struct seals *s)
{
	size_t nr = 0;

	for (size_t i = 0; i < s->nr; i++) {
		const char *inside = place_inside(&s->place, s->v[i].path);

		if (!inside)
			continue;
		memmove(s->v[i].path, inside, strlen(inside) + 1);
		if (nr != i)
			s->v[nr] = s->v[i];
		nr++;
	}
	s->nr = nr;
}

char *seals_path(const struct seals *s, const struct ckptfs_seal *one)
{
	char *path;
	int len = asprintf(&path, "%s%s", s->place.point, one->path);

	if (len < 0)
		return NULL;
	if (len > 1 && path[len - 1] == '/')
		path[len - 1] = '\0';
	return path;
}

static size_t parent_len(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? (size_t)(slash - path) : 0;
}

bool seals_is_newest(const struct seals *s, const struct ckptfs_seal *one)
{
	size_t len = parent_len(one->path);

	for (const struct ckptfs_seal *later = one + 1; later < s->v + s->nr; later++)
		if (parent_len(later->path) == len && memcmp(later->path, one->path, len) == 0)
			return false;
	return true;
}

static void add_path(struct json *j, const char *key, const struct seals *s, const struct ckptfs_seal *one)
{
	_cleanup_(freep) char *path = seals_path(s, one);

	json_string(j, key, path ? path : one->path);
}

static size_t text_print_path(FILE *to, const struct seals *s, const struct ckptfs_seal *one)
{
	_cleanup_(freep) char *path = seals_path(s, one);

	return text_print(to, path ? path : one->path);
}

static uint64_t age_ns(const struct ckptfs_seal *e)
{
	int64_t now = (int64_t)now_ns();

	return now > e->sealed_ns ? (uint64_t)(now - e->sealed_ns) : 0;
}

/* Where it is. */
static const char *durable(const struct ckptfs_seal *e)
{
	return e->facts & CKPTFS_SEAL_REMOTE ? "node" : e->facts & CKPTFS_SEAL_PROTECTED ? "partner" : "local";
}

static void add_count(struct json *j, const char *key, bool is_known, uint64_t v)
{
	if (is_known)
		json_u64(j, key, v);
	else
		json_null(j, key);
}

static void add_json_seal(struct json *j, const struct seals *s, const struct ckptfs_seal *e)
{
	bool is_here = !(e->facts & CKPTFS_SEAL_REMOTE); /* else only its node has these figures */
	bool has_root = e->facts & CKPTFS_SEAL_HAS_ROOT;

	json_open(j, NULL);
	add_path(j, "path", s, e);
	json_u64(j, "inode", e->inode);
	json_i64(j, "sealed_ns", e->sealed_ns);
	json_u64(j, "age_ns", age_ns(e));
	json_string(j, "state", "sealed");
	json_string(j, "durable", durable(e));
	json_bool(j, "newest", seals_is_newest(s, e));
	add_count(j, "uid", is_here, e->uid);
	add_count(j, "files", is_here, e->files);
	add_count(j, "directories", is_here, e->directories);
	add_count(j, "bytes", is_here, e->bytes);
	add_count(j, "new_bytes", has_root, e->new_bytes);
	json_string(j, "root", has_root ? sha256_hex(e->root).s : NULL);
	json_close(j);
}

static void print_json(FILE *to, const struct seals *s)
{
	struct json j = json_to_file(to);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	add_path(&j, "mountpoint", s, &(struct ckptfs_seal){ 0 });
	json_open_array(&j, "sealed");
	for (size_t i = 0; i < s->nr; i++)
		add_json_seal(&j, s, &s->v[i]);
	json_close_array(&j);
	json_end(&j);
}

/* "45s", "12m", "3h", "5d": whole ones. */
static struct human human_age(uint64_t ns)
{
	static const struct {
		uint64_t s;
		char unit;
	} units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
	uint64_t s = ns / 1000000000;
	struct human h;
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(units) && s < units[i].s)
		i++;
	snprintf(h.s, sizeof(h.s), "%" PRIu64 "%c", s / units[i].s, units[i].unit);
	return h;
}

/* How wide is the longest? */
static size_t path_columns(const struct seals *s)
{
	_cleanup_(freep) char *text = NULL;
	size_t len, columns = strlen("EPOCH");
	FILE *to = open_memstream(&text, &len);

	for (size_t i = 0; to && i < s->nr; i++)
		columns = MAX(columns, text_print_path(to, s, &s->v[i]));
	if (to)
		fclose(to);
	return columns;
}

static void print_text(FILE *to, const struct seals *s)
{
	size_t width = path_columns(s);

	if (s->nr == 0) {
		text_print_path(to, s, &(struct ckptfs_seal){ 0 });
		fputs(geteuid() == 0 ? ": no sealed directories\n" : ": no sealed directories of yours\n", to);
		return;
	}
	fprintf(to, "  %-*s  %-6s  %-7s  %10s  %10s  %9s  %5s\n", (int)width, "EPOCH", "STATE", "DURABLE", "SIZE",
		"NEW", "FILES", "AGE");
	for (size_t i = 0; i < s->nr; i++) {
		const struct ckptfs_seal *e = &s->v[i];
		bool is_known = !(e->facts & CKPTFS_SEAL_REMOTE);
		char files[24] = "-";
		size_t columns;

		if (is_known)
			snprintf(files, sizeof(files), "%" PRIu64, e->files);
		fputs(seals_is_newest(s, e) ? "* " : "  ", to);
		columns = text_print_path(to, s, e);
		fprintf(to, "%*s  %-6s  %-7s  %10s  %10s  %9s  %5s\n", (int)(width - columns), "", "sealed", durable(e),
			is_known ? human_size(e->bytes).s : "-",
			e->facts & CKPTFS_SEAL_HAS_ROOT ? human_size(e->new_bytes).s : "-", files,
			human_age(age_ns(e)).s);
	}
}

/* A node has a longer name, too (NAME~ID): paths are told with the one by which it was asked for. */
static void rename_node(struct seals *s, const char *path)
{
	static const char nodes[] = ".ckptfs/nodes/";
	_cleanup_(freep) char *real = realpath(path, NULL);
	const char *asked = real ? strstr(real, nodes) : NULL;
	size_t len;

	if (!asked)
		return;
	asked += strlen(nodes);
	len = strcspn(asked, "/");
	for (size_t i = 0; i < s->nr; i++) {
		struct ckptfs_seal *e = &s->v[i];
		char renamed[sizeof(e->path)];
		size_t prefix = strlen(nodes);
		int n;

		if (strncmp(e->path, nodes, prefix) != 0)
			continue;
		n = snprintf(renamed, sizeof(renamed), "%s%.*s%s", nodes, (int)len, asked,
			     e->path + prefix + strcspn(e->path + prefix, "/"));
		if (n > 0 && (size_t)n < sizeof(renamed))
			memcpy(e->path, renamed, (size_t)n + 1);
	}
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
		rename_node(ret, path);
	if (r == -ENOTTY)
		text_printf(stderr, "%s: %s: not on a ckptfs; give a mountpoint, or a directory below it\n", tool, path);
	else if (r == -ENOTUNIQ)
		text_printf(stderr, "%s: %s: contains sealed directories of several nodes; give one of its subdirectories\n", tool, path);
	else if (r < 0)
		report_refusal(tool, path, "it", "list sealed directories", r);
	if (r < 0)
		return r;
	r = place_find(fd, &ret->place);
	if (r < 0)
		text_printf(stderr, "%s: %s: cannot find its mountpoint in /proc/self/mountinfo: %s\n", tool, path,
			strerror(-r));
	else
		place_all(ret);
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

int seals_list(const char *tool, const char *path, bool json, FILE *to)
{
	_cleanup_(seals_release) struct seals s = { 0 };
	int r = seals_get_shown(tool, path, &s);

	if (r < 0)
		return r;
	if (json)
		print_json(to, &s);
	else
		print_text(to, &s);
	return 0;
}
