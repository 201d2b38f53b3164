/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-tier: lists and reads a tier on any machine with access, without a mount and without a store.
 *
 * Exit status: 0 done; 1 usage; 2 failed, or not everything could be read; 3 a checkpoint is damaged, or the back end
 * cannot be used as a tier; 130 interrupted.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"
#include "base/json/json_write.h"
#include "base/text.h"
#include "base/util.h"
#include "store/tier/tier_open.h"
#include "store/tier/tier_probe.h"
#include "tools/tier/tier_access.h"
#include "tools/tier/tier_list.h"
#include "tools/tier/tier_restore.h"
#include "tools/tier/tier_usage.h"
#include "tools/tier/tier_verify.h"

#define TOOL "ckptfs-tier"
#define SCHEMA_VERSION 1

enum exit_status { EXIT_DONE = 0, EXIT_USAGE = 1, EXIT_FAILED = 2, EXIT_DAMAGED = 3, EXIT_INTERRUPTED = 130 };

struct request {
	char *tier_config;
	uint64_t cache;
	bool json, quiet;
	struct tier_restore get;
	const struct action *action;
	char **operands; /* behind the URL */
	int nr;
	struct tier_access access;
};

struct action {
	const char *name;
	int min_operands, max_operands; /* behind the URL */
	const char *operands; /* what must be given */
	bool has_json, has_quiet, is_get;
	int (*run)(struct request *q);
};

static int run_list(struct request *q)
{
	return tier_list(&q->access, q->json);
}

static int run_usage(struct request *q)
{
	return tier_usage(&q->access, q->json);
}

static int run_verify(struct request *q)
{
	return tier_verify(&q->access, q->operands, q->nr, q->json, q->quiet);
}

static void show_promises(const struct request *q, int r, const char *reason, const struct tier_promise_result *results)
{
	struct json j = json_to_file(stdout);

	json_open(&j, NULL);
	json_u64(&j, "schema_version", SCHEMA_VERSION);
	json_string(&j, "tier", q->access.conf.url);
	if (r == 0 || r == -EOPNOTSUPP)
		json_bool(&j, "usable", r == 0);
	else
		json_null(&j, "usable");
	json_string(&j, "why", r == 0 ? NULL : r == -EOPNOTSUPP ? reason : strerror(-r));
	json_open_array(&j, "promises");
	for (enum tier_promise p = 0; p < TIER_NR_PROMISES; p++) {
		json_open(&j, NULL);
		json_string(&j, "promise", tier_promise_text(p));
		json_u64(&j, "held", results[p].nr_held);
		json_bool(&j, "broken", results[p].is_broken);
		json_close(&j);
	}
	json_close_array(&j);
	json_end(&j);
}

static void print_promises(const char *url, int r, const struct tier_promise_result *results)
{
	for (enum tier_promise p = 0; p < TIER_NR_PROMISES; p++) {
		printf("%s: ", tier_promise_text(p));
		if (results[p].is_broken)
			puts("no");
		else if (results[p].nr_held > 0)
			printf("yes, tried %s\n", human_nr(results[p].nr_held, "time").s);
		else
			puts("not tried");
	}
	if (r == 0)
		text_printf(stdout, "%s: can be used as a tier\n", url);
}

static int run_probe(struct request *q)
{
	struct tier_promise_result results[TIER_NR_PROMISES];
	char reason[TIER_PROBE_REASON_MAX];
	int r;

	atomic_store(&q->access.waits, true);
	r = tier_probe_each(q->access.tier, reason, results); /* logs a failure */
	atomic_store(&q->access.waits, false);
	tier_access_begin_output(&q->access);
	if (q->json)
		show_promises(q, r, reason, results);
	else
		print_promises(q->access.conf.url, r, results);
	tier_access_end_output(&q->access);
	return r == -EOPNOTSUPP ? -EBADMSG : r;
}

static int run_get(struct request *q)
{
	q->get.checkpoint = q->operands[0];
	q->get.directory = q->operands[1];
	q->get.quiet = q->quiet;
	return tier_restore(&q->access, &q->get);
}

static const struct action actions[] = {
	{ "list", 0, 0, "one URL", .has_json = true, .run = run_list },
	{ "verify", 0, COMMAND_OPERANDS_MAX, "a URL", .has_json = true, .has_quiet = true, .run = run_verify },
	{ "usage", 0, 0, "one URL", .has_json = true, .run = run_usage },
	{ "probe", 0, 0, "one URL", .has_json = true, .run = run_probe },
	{ "get", 2, 2, "a URL, a checkpoint and a new directory", .has_quiet = true, .is_get = true, .run = run_get },
};

/* --- the command line --- */

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "tier-config", CONF_STRING, OF(tier_config), .value = "FILE",
	  .help = "credentials and endpoint of S3, as mount option tier_config (ckptfs-tier(7))" },
	{ "cache", CONF_SIZE, OF(cache), .fallback = "256M", .min = MiB(16), .must = "must be at least 16M",
	  .help = "memory for content" },
	COMMAND_JSON(struct request, json),
	{ "trust", CONF_FLAG, OF(get.trust),
	  .help = "restore devices, set-user-ID programs and capabilities, too: only if all users that can write to the tier are "
		  "trusted" },
	{ "no-owner", CONF_FLAG, OF(get.no_owner), .help = "restore no owners and groups; only root can restore them" },
	{ "no-xattrs", CONF_FLAG, OF(get.no_xattrs), .help = "restore no extended attributes and access lists" },
	COMMAND_QUIET(struct request, quiet, "no progress, and only what is damaged"),
	COMMAND_END,
};

static int run_action(void *userdata)
{
	struct request *q = userdata;

	return q->action->run(q);
}

static enum exit_status status_of(int r)
{
	return r == 0 ? EXIT_DONE : r == -EINTR ? EXIT_INTERRUPTED : r == -EBADMSG ? EXIT_DAMAGED : EXIT_FAILED;
}

static enum exit_status run_on_tier(struct request *q, const char *url)
{
	const struct tier_access_conf conf = {
		.tool = TOOL, .url = url, .config_file = q->tier_config, .cache = q->cache, .quiet = q->quiet
	};
	bool hangs = false;
	int r = tier_access_open(&conf, &q->access);

	if (r < 0)
		return EXIT_FAILED;
	r = tier_access_run(&q->access, run_action, q, &hangs);
	if (hangs || !tier_access_close(&q->access)) {
		fflush(stdout);
		text_printf(stderr, TOOL ": %s: does not answer; ended with requests in flight\n", url);
		_exit((int)status_of(r));
	}
	return status_of(r);
}

/* The reason to refuse the command line; NULL: none. */
static const char *refusal(const struct request *q)
{
	const struct action *a = q->action;
	static char reason[200];

	if (q->nr < a->min_operands || q->nr > a->max_operands)
		snprintf(reason, sizeof(reason), "%s must be given", a->operands);
	else if (q->json && !a->has_json)
		return "has no option --json";
	else if (q->quiet && !a->has_quiet)
		return "has no option --quiet";
	else if (!a->is_get && (q->get.trust || q->get.no_owner || q->get.no_xattrs))
		return "--trust, --no-owner and --no-xattrs go with get only";
	else
		return NULL;
	return reason;
}

static int run(void *request, char *operands[], int nr)
{
	struct request *q = request;
	const char *object = operands[0], *why = "no such action";
	struct nearest n = { .word = operands[0] };

	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (strcmp(actions[i].name, operands[0]) == 0)
			q->action = &actions[i];
	for (size_t i = 0; i < ARRAY_SIZE(actions) && !q->action; i++)
		nearest_offer(&n, actions[i].name);
	q->operands = operands + 2;
	q->nr = nr - 2;
	if (q->action)
		why = refusal(q);
	if (!why) {
		object = operands[1];
		why = tier_url_refusal(object);
	}
	if (!why)
		return (int)run_on_tier(q, operands[1]);
	text_printf(stderr, TOOL ": %s: %s; %s%s%stry " TOOL " --help\n", object, why, n.name ? "did you mean " : "",
		    n.name ? n.name : "", n.name ? "? " : "");
	return EXIT_USAGE;
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = TOOL,
		.usage = TOOL " list [--tier-config FILE] [--json] URL\n"
			 "       " TOOL " verify [--tier-config FILE] [--cache SIZE] [--json] [--quiet] URL [CHECKPOINT...]\n"
			 "       " TOOL " usage [--tier-config FILE] [--json] URL\n"
			 "       " TOOL " probe [--tier-config FILE] [--json] URL\n"
			 "       " TOOL " get [--tier-config FILE] [--cache SIZE] [--trust] [--no-owner] [--no-xattrs] [--quiet]\n"
			 "                   URL CHECKPOINT DIRECTORY\n",
		.about = "Read a tier, a shared directory (dir:/path) or an object store (s3://bucket/prefix) with sealed "
			 "checkpoints, on any machine with access, without a mount.\n"
			 "list: the sealed checkpoints. * marks the newest one of its owner in its directory.\n"
			 "verify: read every chunk of all checkpoints, or of some, and compare it with what was sealed.\n"
			 "usage: objects and bytes by kind, store and checkpoint. EXCLUSIVE: in packs that no other uses.\n"
			 "probe: test whether a directory or bucket can hold a tier. Its objects are deleted again.\n"
			 "get: restore a checkpoint as ordinary files in DIRECTORY, which must not exist. It appears when it is "
			 "complete and durable.",
		.options = options,
		.footer = "CHECKPOINT is a path, which stands for its newest seal, or a number in the list; or, as in a mounted tier, "
			  ".ckptfs/stores/STORE/PATH or .ckptfs/sealed/STORE/NUMBER.\n"
			  "Exit status: 0 done, 1 usage, 2 failed, 3 a checkpoint or the back end is unusable, "
			  "130 interrupted.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.min_operands = 2,
		.max_operands = COMMAND_OPERANDS_MAX,
		.operands = "an action and the URL of a tier",
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
