/*
 * fsck.ckptfs: makes a new index from packs and journal. Called as fsck(8) does at boot (-a, -p, -y, -n), it has nothing to
 * do: a mount replays the journal by itself, and what is read is checked when it is read.
 *
 * Exit codes as fsck(8): 0 nothing to do, 1 corrected, 4 left uncorrected, 8 operational error, 16 usage.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "store/engine/engine.h"

enum { FSCK_CORRECTED = 1, FSCK_UNCORRECTED = 4, FSCK_OPERATIONAL = 8, FSCK_USAGE = 16 };

static const struct conf_key keys[] = {
	{ "cache", CONF_SIZE, offsetof(struct engine_conf, cache), "256M", NULL, "memory to work with" },
	{ "page", CONF_SIZE, offsetof(struct engine_conf, page), "4K", NULL, NULL },
	{ "dirty", CONF_SIZE, offsetof(struct engine_conf, dirty), "64M", NULL, NULL },
	{ 0 },
};

static void help(FILE *to)
{
	fprintf(to, "Usage: fsck.ckptfs --rebuild [--cache SIZE] STORE\n"
		    "       fsck.ckptfs -a|-p|-y|-n STORE\n"
		    "Make a new index for a store that is not mounted, from its packs and journal.\n\n"
		    "  --rebuild      remove index/ and make it again\n"
		    "  -a, -p, -y, -n as fsck(8) calls it at boot: nothing to do, a mount replays the journal\n"
		    "  --cache SIZE   memory to work with (default 256M)\n"
		    "  --help, --version\n\n"
		    "Exit codes: 0 nothing to do, 1 rebuilt, 4 damage that a rebuild cannot mend, 8 the store could not be opened, 16 usage.\n");
}

static int usage(const char *why)
{
	fprintf(stderr, "fsck.ckptfs: %s; see fsck.ckptfs --help\n", why);
	return FSCK_USAGE;
}

static int rebuild(const char *store, const struct engine_conf *conf)
{
	int r = engine_rebuild(store, conf);

	if (r == 0) {
		printf("%s: index rebuilt\n", store);
		return FSCK_CORRECTED;
	}
	fprintf(stderr, "fsck.ckptfs: %s: not rebuilt: %s\n", store, strerror(-r));
	return r == -EBADMSG ? FSCK_UNCORRECTED : FSCK_OPERATIONAL;
}

static int nothing_to_do(const char *store)
{
	if (access(store, F_OK) < 0) {
		fprintf(stderr, "fsck.ckptfs: %s: %s\n", store, strerror(errno));
		return FSCK_OPERATIONAL;
	}
	printf("%s: nothing to check before a mount, which replays the journal\n", store);
	return 0;
}

int main(int argc, char *argv[])
{
	static const struct option options[] = {
		{ "rebuild", no_argument, NULL, 'r' }, { "cache", required_argument, NULL, 'c' },
		{ "help", no_argument, NULL, 'h' },    { "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	struct engine_conf conf = { 0 };
	bool wants_rebuild = false, at_boot = false;
	const char *why;
	int c;

	if (conf_set_defaults(keys, &conf) < 0)
		return FSCK_OPERATIONAL;
	while ((c = getopt_long(argc, argv, "apynhV", options, NULL)) != -1)
		switch (c) {
		case 'r':
			wants_rebuild = true;
			break;
		case 'a':
		case 'p':
		case 'y':
		case 'n':
			at_boot = true;
			break;
		case 'c':
			if (conf_set(keys, &conf, "cache", optarg, &why) <= 0)
				return usage("--cache needs a size such as 256M");
			break;
		case 'h':
			help(stdout);
			return 0;
		case 'V':
			printf("fsck.ckptfs %s\n", CKPTFS_VERSION);
			return 0;
		default:
			return FSCK_USAGE;
		}
	if (optind + 1 != argc)
		return usage("exactly one STORE is needed");
	if (wants_rebuild && at_boot)
		return usage("--rebuild is not for -a, -p, -y or -n");
	if (at_boot)
		return nothing_to_do(argv[optind]);
	if (!wants_rebuild)
		return usage("nothing to do without --rebuild");
	return rebuild(argv[optind], &conf);
}
