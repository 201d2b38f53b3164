/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * ckptfs-init: creates a store, and sets what cannot be changed later.
 *
 * The first mount creates a store as well, with the same options. This program refuses a store that exists, so its
 * success means that the choices are in force.
 *
 * Exit status: 0 created, 1 usage, 2 not created.
 */
#include <errno.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"
#include "base/log.h"
#include "base/medium.h"
#include "base/text.h"
#include "base/util.h"
#include "store/engine.h"
#include "tools/common/daemon.h"

#define TOOL "ckptfs-init"

enum exit_status { EXIT_CREATED = 0, EXIT_USAGE = 1, EXIT_FAILED = 2 };

struct request {
	int hash; /* as engine_conf.hash */
	int dedup; /* as engine_conf.dedup, one less */
	char *cluster;
	bool quiet;
};

static void report_created(const struct request *q, const char *path)
{
	static const char *const hashes[] = { "clmul", "xxh3", "sha256", "clmul" };
	static const char *const domains[] = { "global", "group", "user" };

	text_printf(stdout, "%s: created: hash=%s, dedup=%s, %s\n", path, hashes[q->hash], domains[q->dedup],
		    q->cluster ? "shares chunks with the stores of its cluster" : "not part of a cluster");
	text_printf(stdout, "Mount it with: ckptfs mount %s MOUNTPOINT\n", path);
}

static bool is_without_parent(const char *path)
{
	_cleanup_(freep) char *copy = strdup(path);

	return copy && access(dirname(copy), F_OK) < 0 && errno == ENOENT;
}

static void caution(const char *path)
{
	struct medium m;

	if (medium_of(path, &m) == 0)
		medium_log_caution(path, &m);
}

static enum exit_status create(const struct request *q, const char *path)
{
	const struct engine_conf conf = {
		.page = 4096,
		.cache = MiB(16),
		.dirty = MiB(32),
		.hash = q->hash,
		.dedup = 1 + q->dedup,
		.cluster = q->cluster,
	};
	struct engine *e;

	if (is_store(path)) {
		text_printf(stderr,
			    TOOL ": %s: is a store already, and what was chosen then cannot be changed; mount it, or "
				 "create another one\n",
			    path);
		return EXIT_FAILED;
	}
	if (is_without_parent(path)) {
		text_printf(stderr, TOOL ": %s: its parent directory does not exist; mkdir it first\n", path);
		return EXIT_FAILED;
	}
	if (engine_open(path, &conf, &e) < 0)
		return EXIT_FAILED; /* already logged */
	if (engine_close(e) < 0) {
		text_printf(stderr, TOOL ": %s: created, but not everything is durable; see above\n", path);
		return EXIT_FAILED;
	}
	caution(path);
	if (!q->quiet)
		report_created(q, path);
	return EXIT_CREATED;
}

#define OF(field) offsetof(struct request, field)

static const struct conf_key options[] = {
	{ "hash", CONF_CHOICE, OF(hash), .choices = "auto|xxh3|sha256|clmul",
	  .help = "fingerprint of chunks: clmul has a proven bound on collisions, sha256 is cryptographic and slower, "
		  "xxh3 is for processors without carry-less multiplication; auto: clmul (default auto)" },
	{ "dedup", CONF_CHOICE, OF(dedup), .choices = "global|group|user",
	  .help = "which files share equal chunks: all, those of a group, those of an owner (default global)" },
	{ "cluster", CONF_STRING, OF(cluster), .value = "FILE",
	  .help = "key file that all stores of a cluster are created with: at least 32 random bytes, private" },
	COMMAND_QUIET(struct request, quiet, "print errors only"),
	COMMAND_END,
};

static const char *check(void *request, int nr _unused_)
{
	const struct request *q = request;

	return q->cluster && !CKPTFS_HAVE_CLUSTER ?
		       "--cluster: this ckptfs-init was built without the cluster (meson -Dmpi=disabled)" :
		       NULL;
}

static int run(void *request, char *operands[], int nr _unused_)
{
	log_to_caller(TOOL);
	log_set_level(LOG_LEVEL_NOTICE);
	return (int)create(request, operands[0]);
}

int main(int argc, char *argv[])
{
	static const struct command command = {
		.name = TOOL,
		.usage = TOOL " [--hash NAME] [--dedup DOMAIN] [--cluster FILE] [--quiet] STORE\n",
		.about = "Create a store, and set the properties that cannot be changed later. The directory must be empty or not "
			 "exist. Without this the first mount creates it, with the options of the same names.",
		.options = options,
		.footer = "Exit status: 0 created, 1 usage, 2 not created.",
		.exit_usage = EXIT_USAGE,
		.exit_failed = EXIT_FAILED,
		.min_operands = 1,
		.max_operands = 1,
		.operands = "one directory for the store",
		.check = check,
		.run = run,
	};
	struct request q = { 0 };

	return command_main(&command, &q, argc, argv);
}
