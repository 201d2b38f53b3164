/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-stat: figures of a ckptfs mount, file or directory.
 *
 * The daemon provides the figures (tools/stat/stat_ask.h). This program prints them as text, JSON or Prometheus
 * metrics, once or repeatedly, or writes an HTML report (tools/stat/report.h). Figures of a directory are sums over the
 * files below it.
 *
 * Exit status: 0 shown, 1 usage, 2 a path does not exist, is not readable or not on ckptfs, 3 a directory is damaged or
 * not sealed, 130 interrupted.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/command.h"
#include "base/mounts.h"
#include "base/sha256.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "client/figures.h"
#include "client/ioctl.h"
#include "tools/common/interrupt.h"
#include "tools/common/progress.h"
#include "tools/common/watchdog.h"
#include "tools/stat/report.h"
#include "tools/seal/seals.h"
#include "tools/stat/stat_ask.h"
#include "tools/stat/stat_exclusive.h"
#include "tools/stat/stat_show.h"
#include "tools/stat/stat_users.h"
#include "tools/stat/stat_variables.h"
#include "tools/stat/stat_watch.h"
#include "tools/seal/verify.h"

#define WATCH_MIN_S 0.1
#define WATCH_MAX_S 86400.0

enum exit_status { EXIT_SHOWN = 0, EXIT_USAGE = 1, EXIT_PATH = 2, EXIT_UNPROVEN = 3, EXIT_INTERRUPTED = 130 };
enum format { FORMAT_HUMAN, FORMAT_JSON, FORMAT_PROMETHEUS };

struct request {
	enum format format;
	uint64_t watch_ns; /* 0: once */
	bool json, prometheus, verbose;
	char *html; /* report to write; NULL: none */
	bool sealed; /* list sealed checkpoints */
	bool verify, quick; /* verify sealed checkpoints; quick: without reading data */
	bool users; /* space by user and group */
	bool variables; /* results of recoding, by variable */
	bool if_deleted; /* space that deleting all paths would free */

	char **paths; /* allocated, as are the arrays below; one entry per path */
	size_t nr;
	struct stat_reading *last; /* of mounts, for rates */
	bool *answered; /* has been read successfully */
	struct json_flat *mounts; /* for FORMAT_PROMETHEUS */
	size_t nr_mounts;
};

static void request_release(struct request *q)
{
	for (size_t i = 0; i < q->nr; i++)
		free(q->paths[i]);
	free(q->paths);
	free(q->last);
	free(q->answered);
	free(q->mounts);
}

/* The daemon's -EINVAL is not a usage error here. */
static int ask_exclusive(char *const paths[], size_t nr, struct ckptfs_exclusive *ret)
{
	int r = stat_exclusive(paths, nr, ret);

	return r == -EINVAL ? -EIO : r;
}

static int show_directory(const struct request *q, FILE *to, char *path)
{
	struct stat_sums sums;
	struct ckptfs_exclusive x;
	int r = stat_sum(path, &sums), asked = ask_exclusive(&path, 1, &x);

	if (q->format == FORMAT_JSON)
		stat_print_sums(to, path, &sums, asked == 0 ? &x : NULL);
	else
		stat_show_sums(to, path, &sums, asked == 0 ? &x : NULL);
	return r < 0 ? r : asked;
}

/* Anything but a directory. Only regular files have exclusive space. */
static int show_file(const struct request *q, FILE *to, char *path, const struct stat_answer *a)
{
	struct ckptfs_exclusive x;
	bool is_file = strcmp(json_flat_get(&a->j, "kind"), "file") == 0;
	int r = is_file ? ask_exclusive(&path, 1, &x) : 0;
	bool known = is_file && r == 0;

	if (q->format == FORMAT_JSON)
		stat_print_document(to, path, a->text, known ? &x : NULL);
	else
		stat_show_file(to, path, &a->j, known ? &x : NULL);
	return r;
}

static int show_if_deleted(const struct request *q, FILE *to)
{
	struct ckptfs_exclusive x;
	int r = ask_exclusive(q->paths, q->nr, &x);

	if (r < 0)
		return r;
	if (q->format == FORMAT_JSON)
		stat_print_set(to, q->paths, q->nr, &x);
	else
		stat_show_set(to, q->paths, q->nr, &x);
	return 0;
}

static int show_seals(const struct request *q, FILE *to)
{
	int r = 0, one;

	for (size_t i = 0; i < q->nr; i++) {
		if (i > 0 && q->format == FORMAT_HUMAN)
			fputc('\n', to);
		watchdog_set_path(q->paths[i]);
		one = seals_list("ckptfs-stat", q->paths[i], q->format == FORMAT_JSON, to);
		r = one < 0 ? one : r;
	}
	return r == -EINVAL ? -EIO : r;
}

/* One mount after the other, separated by empty lines. */
static int show_mounts(const struct request *q, int (*one)(const char *mountpoint, bool json, FILE *to), FILE *to)
{
	int r = 0, this;

	for (size_t i = 0; i < q->nr && !interrupted(); i++) {
		if (i > 0 && q->format == FORMAT_HUMAN)
			fputc('\n', to);
		watchdog_set_path(q->paths[i]);
		this = one(q->paths[i], q->format == FORMAT_JSON, to);
		r = this < 0 ? this : r;
	}
	return r;
}

static void show_verified(const struct request *q, FILE *to, const char *path, const struct verify_result *v, int r)
{
	const char *state = r > 0 ? "valid" : v->is_sealed ? "damaged" : "unsealed";
	bool has_root = v->seal.facts & CKPTFS_SEAL_HAS_ROOT;
	struct json j = json_to_file(to);

	if (q->format == FORMAT_JSON) {
		json_open(&j, NULL);
		json_u64(&j, "schema_version", 1);
		json_string(&j, "kind", "sealed");
		json_string(&j, "path", path);
		json_string(&j, "state", state);
		json_u64(&j, "read_bytes", v->bytes);
		json_u64(&j, "files", v->seal.files);
		json_u64(&j, "bytes", v->seal.bytes);
		json_string(&j, "root", has_root ? sha256_hex(v->seal.root).s : NULL);
		json_string(&j, "why", v->why);
		json_end(&j);
		return;
	}
	text_print(to, path);
	if (r == 0)
		fprintf(to, ": %s\n", v->why);
	else if (has_root)
		fprintf(to, ": valid: %s, %s, %s read, root %s\n", human_nr(v->seal.files, "file").s,
			human_size(v->seal.bytes).s, human_size(v->bytes).s, sha256_hex(v->seal.root).s);
	else
		fprintf(to, ": valid: %s read; replica of a directory sealed by another node\n", human_size(v->bytes).s);
}

/* -EBADMSG: one is not valid. */
static int verify_seals(const struct request *q, FILE *to)
{
	struct verify_result v;
	struct progress p;
	int r = 0, one;

	progress_init(&p);
	for (size_t i = 0; i < q->nr && !interrupted(); i++) {
		watchdog_set_path(q->paths[i]);
		one = verify_seal(q->paths[i], !q->quick, &p, &v);
		if (one >= 0)
			show_verified(q, to, q->paths[i], &v, one);
		else if (one != -ECANCELED) {
			text_printf(stderr, "ckptfs-stat: %s", q->paths[i]);
			fprintf(stderr, ": %s\n", v.why); /* already escaped */
		}
		if (one < 0)
			r = one == -EBADMSG || one == -EINVAL ? -EIO : one;
		else if (one == 0 && r == 0)
			r = -EBADMSG;
	}
	return r;
}

/* Those that this user may see. 0 also if they cannot be listed. */
static size_t count_sealed(const char *path)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(seals_release) struct seals s = { 0 };

	return fd >= 0 && seals_ask(fd, &s) == 0 ? s.nr : 0;
}

static void show_mount(struct request *q, FILE *to, size_t i, const struct json_flat *j)
{
	struct stat_reading now = stat_reading_of(j);

	stat_show_head(to, j);
	if (q->watch_ns > 0)
		stat_show_rates(to, &q->last[i], &now);
	q->last[i] = now;
	stat_show_mount(to, j, q->watch_ns > 0 ? 0 : count_sealed(q->paths[i]), q->verbose);
}

/* Keeps the figures: Prometheus requires all mounts of a metric together. */
static int keep_mount(struct request *q, const char *path, struct stat_answer *a)
{
	if (strcmp(json_flat_get(&a->j, "kind"), "mount") != 0) {
		text_printf(stderr, "ckptfs-stat: %s: --prometheus is for mounts; give the mountpoint\n", path);
		return -EINVAL;
	}
	q->mounts[q->nr_mounts++] = a->j;
	a->j = (struct json_flat){ 0 };
	return 0;
}

static int show_path(struct request *q, FILE *to, size_t i)
{
	_cleanup_(stat_answer_release) struct stat_answer a = { 0 };
	char *path = q->paths[i];
	const char *kind;
	int r;

	watchdog_set_path(path);
	r = stat_ask(path, &a);
	if (r < 0) {
		stat_complain(path, r, q->answered[i]);
		return r;
	}
	q->answered[i] = true;
	kind = json_flat_get(&a.j, "kind");
	if (q->format == FORMAT_PROMETHEUS)
		return keep_mount(q, path, &a);
	if (strcmp(kind, "directory") == 0)
		return show_directory(q, to, path);
	if (strcmp(kind, "tier") == 0 && q->format != FORMAT_JSON) {
		stat_show_tier(to, &a.j);
		return 0;
	}
	if (strcmp(kind, "mount") != 0 && strcmp(kind, "tier") != 0)
		return show_file(q, to, path, &a);
	if (q->format == FORMAT_JSON)
		stat_print_document(to, path, a.text, NULL);
	else
		show_mount(q, to, i, &a.j);
	return 0;
}

/* One path after the other, separated by empty lines. */
static int show_all(struct request *q, FILE *to)
{
	int r = 0, one;

	if (q->if_deleted)
		return show_if_deleted(q, to);
	if (q->sealed)
		return show_seals(q, to);
	if (q->users || q->variables)
		return show_mounts(q, q->users ? stat_users : stat_variables, to);
	if (q->verify)
		return verify_seals(q, to);
	for (size_t i = 0; i < q->nr && !interrupted(); i++) {
		if (i > 0 && q->format == FORMAT_HUMAN)
			fputc('\n', to);
		one = show_path(q, to, i);
		r = one < 0 ? one : r;
	}
	if (q->nr_mounts > 0)
		figures_print_metrics(to, q->mounts, q->nr_mounts);
	while (q->nr_mounts > 0)
		json_flat_release(&q->mounts[--q->nr_mounts]);
	return r;
}

/* Redraws a terminal in place; otherwise appends. */
static void draw_output(const struct request *q, const char *text, size_t len, bool first)
{
	struct winsize size = { 0 };

	if (q->format == FORMAT_HUMAN && isatty(STDOUT_FILENO)) {
		ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
		stat_draw(stdout, text, len, size.ws_row, size.ws_col);
		return;
	}
	if (q->format == FORMAT_HUMAN && !first)
		fputc('\n', stdout);
	fwrite(text, 1, len, stdout);
}

/* One reading. Buffers all output, so that a terminal does not flicker. */
static int watch_once(struct request *q, bool first)
{
	_cleanup_(freep) char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	int r;

	if (!to)
		return -ENOMEM;
	r = show_all(q, to);
	if (fclose(to) != 0)
		return -ENOMEM;
	if (r < 0 || interrupted())
		return r;
	draw_output(q, text, len, first);
	if (fflush(stdout) != 0) {
		text_printf(stderr, "ckptfs-stat: standard output: %s\n", strerror(errno));
		return -EIO;
	}
	return 0;
}

static int watch_paths(struct request *q)
{
	uint64_t next = monotonic_ns(), now;
	bool first = true;
	int r = 0;

	while (r == 0 && !interrupted()) {
		r = watch_once(q, first);
		first = false;
		next += q->watch_ns;
		now = monotonic_ns();
		if (next < now)
			next = now; /* reading took longer than the interval */
		if (r == 0)
			interrupt_sleep(next - now);
	}
	return r;
}

static int add_path(struct request *q, const char *path)
{
	char **more = reallocarray(q->paths, q->nr + 1, sizeof(*more));

	if (!more)
		return -ENOMEM;
	q->paths = more;
	q->paths[q->nr] = strdup(path);
	return q->paths[q->nr] ? (q->nr++, 0) : -ENOMEM;
}

static int add_mounts(struct request *q)
{
	_cleanup_(mounts_close) struct mounts m = { 0 };
	int r = 0;

	if (mounts_open(&m) == 0)
		while (r == 0 && mounts_next(&m) > 0)
			r = add_path(q, m.point);
	if (r == 0 && q->nr == 0) {
		fputs("ckptfs-stat: no ckptfs is mounted; mount.ckptfs STORE MOUNTPOINT mounts one\n", stderr);
		return -ENOENT;
	}
	return r;
}

static int add_paths(struct request *q, int nr, char *paths[])
{
	int r = nr == 0 ? add_mounts(q) : 0;

	for (int i = 0; i < nr && r == 0; i++)
		r = add_path(q, paths[i]);
	if (r < 0)
		return r;
	q->last = calloc(q->nr, sizeof(*q->last));
	q->answered = calloc(q->nr, sizeof(*q->answered));
	q->mounts = calloc(q->nr, sizeof(*q->mounts));
	return q->last && q->answered && q->mounts ? 0 : -ENOMEM;
}

static enum exit_status status_of(const struct request *q, int r)
{
	if (r == -EINVAL) /* the option does not apply to the path */
		return EXIT_USAGE;
	return r == 0 ? EXIT_SHOWN : q->verify && r == -EBADMSG ? EXIT_UNPROVEN : EXIT_PATH;
}

/* --- the command line --- */

#define OF(field) offsetof(struct request, field)

static int parse_watch(const struct conf_key *k, void *request, const char *value, const char **ret_why)
{
	uint64_t *ns = conf_field(k, request);
	char *end;
	double seconds = strtod(value, &end);

	*ret_why = "not a number of seconds from 0.1 to 86400";
	if (*value < '0' || *value > '9' || *end || !(seconds >= WATCH_MIN_S && seconds <= WATCH_MAX_S))
		return -EINVAL;
	*ns = (uint64_t)(seconds * 1e9);
	return 0;
}

static const struct conf_key options[] = {
	{ "sealed", CONF_FLAG, OF(sealed),
	  .help = "list the sealed directories of a mount; *: the newest of its owner in its directory, NEW: bytes that it added" },
	{ "verify", CONF_FLAG, OF(verify), .help = "read all of a sealed directory and compare it with what was sealed" },
	{ "quick", CONF_FLAG, OF(quick), .help = "compare names, attributes and fingerprints only, and read no bytes" },
	{ "if-deleted", CONF_FLAG, OF(if_deleted),
	  .help = "how much would be freed if all PATHs, with everything below them, were deleted together" },
	{ "users", CONF_FLAG, OF(users),
	  .help = "space by user, then by group; EXCLUSIVE: bytes that are stored for them only" },
	{ "variables", CONF_FLAG, OF(variables), .help = "recoded variables: coder, size, speed" },
	{ "json", CONF_FLAG, OF(json), .help = "exact figures, one JSON document a line; keys keep their meaning (schema_version)" },
	{ "prometheus", CONF_FLAG, OF(prometheus), .help = "text exposition format, mounts only" },
	{ "html", CONF_STRING, OF(html), .value = "FILE",
	  .help = "write a report on one mount; writing it again adds to its history" },
	{ "verbose", CONF_FLAG, OF(verbose), .letter = 'v', .help = "show memory, fast paths and latencies of a mount, too" },
	{ "watch", CONF_PARSED, OF(watch_ns), .parse = parse_watch, .missing = "1", .value = "SECONDS",
	  .help = "repeat every second, or every SECONDS, with the rates in between" },
	COMMAND_END,
};

/* Rejects combinations of options. */
static const char *check(void *request, int nr)
{
	struct request *q = request;
	bool is_of_mounts = q->html || q->prometheus;

	q->format = q->prometheus ? FORMAT_PROMETHEUS : q->json ? FORMAT_JSON : FORMAT_HUMAN;
	if (q->json && q->prometheus)
		return "--json and --prometheus exclude each other";
	if ((q->users || q->variables) && (is_of_mounts || q->if_deleted || q->sealed || q->verify || q->quick ||
					   q->watch_ns > 0 || (q->users && q->variables)))
		return q->users ? "--users goes with --json only" : "--variables goes with --json only";
	if (q->quick && !q->verify)
		return "--quick goes with --verify only";
	if (q->verify && (is_of_mounts || q->if_deleted || q->sealed || q->watch_ns > 0))
		return "--verify goes with --quick and --json only";
	if (q->verify && nr == 0)
		return "--verify needs the sealed directories to verify";
	if (q->sealed && (is_of_mounts || q->if_deleted))
		return "--sealed goes with --json and --watch only";
	if (q->if_deleted && is_of_mounts)
		return q->html ? "--if-deleted and --html exclude each other" : "--if-deleted and --prometheus exclude each other";
	if (q->if_deleted && nr == 0)
		return "--if-deleted needs the files and directories that would be deleted";
	if (q->html && (nr > 1 || q->watch_ns > 0 || q->format != FORMAT_HUMAN))
		return "--html shows one mount, and goes with no other option: --html FILE MOUNTPOINT";
	if (q->html && strcmp(q->html, "-") == 0)
		return "--html needs a file, in which the page keeps its readings";
	return NULL;
}

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;
	int r;

	r = add_paths(q, nr, operands);
	if (r == 0)
		watchdog_begin("ckptfs-stat", q->paths[0], EXIT_PATH);
	interrupt_catch();
	if (r == 0 && q->html && q->nr != 1) {
		fputs("ckptfs-stat: --html shows one mount, and several are mounted: --html FILE MOUNTPOINT\n", stderr);
		request_release(q);
		return EXIT_USAGE;
	}
	if (r == 0 && q->html)
		r = report_write(q->html, q->paths[0]);
	else if (r == 0)
		r = q->watch_ns > 0 ? watch_paths(q) : show_all(q, stdout);
	request_release(q);
	return interrupted() ? EXIT_INTERRUPTED : (int)status_of(q, r);
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = "ckptfs-stat",
		.usage = "ckptfs-stat [--json | --prometheus | --html FILE] [--verbose] [--watch [SECONDS]] [PATH...]\n"
			 "       ckptfs-stat --sealed [--json] [--watch [SECONDS]] [MOUNTPOINT...]\n"
			 "       ckptfs-stat --verify [--quick] [--json] DIRECTORY...\n"
			 "       ckptfs-stat --if-deleted [--json] [--watch [SECONDS]] PATH...\n"
			 "       ckptfs-stat --users [--json] [MOUNTPOINT...]\n"
			 "       ckptfs-stat --variables [--json] [MOUNTPOINT...]\n",
		.about = "Show what ckptfs stores and saves: of a whole mount (PATH is the mountpoint; no PATH: all mounts), of a "
			 "file, or of all files below a directory.",
		.options = options,
		.footer = "Exit status: 0 shown, 1 usage, 2 not there, not readable or not on ckptfs, 3 a directory is damaged or "
			  "not sealed, 130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_PATH,
		.max_operands = COMMAND_OPERANDS_MAX,
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
