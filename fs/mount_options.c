#include "fs/options.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/autoseal.h"
#include "fs/metrics_address.h"

static const struct conf_key keys[] = {
	{ "chunking", CONF_CHOICE, offsetof(struct options, chunking), "page", "page|cdc|auto",
	  "how new data is cut into chunks: pages, or where its content says, or pages that are found again where they have moved to" },
	{ "cdc", CONF_STRING, offsetof(struct options, cdc), "512:4K:32K", NULL,
	  "MIN:MEAN:MAX of chunks that are cut by content" },
	{ "page", CONF_SIZE, offsetof(struct options, engine.page), "4K", NULL, "chunk size, a power of two, 4K to 1M" },
	{ "compress", CONF_STRING, offsetof(struct options, compress), "none", NULL,
	  "compression of new data: none, lz4, zstd, zstd:LEVEL or auto" },
	{ "hash", CONF_CHOICE, offsetof(struct options, hash), "auto", "auto|xxh3|sha256|clmul",
	  "fingerprint, chosen at the first mount (auto: as stored, or clmul)" },
	{ "verify", CONF_FLAG, offsetof(struct options, engine.verify), NULL, NULL,
	  "compare bytes before sharing a chunk" },
	{ "cache", CONF_SIZE, offsetof(struct options, engine.cache), "256M", NULL, "memory for look-ups" },
	{ "dirty", CONF_SIZE, offsetof(struct options, engine.dirty), "256M", NULL, "memory for data not yet in packs" },
	{ "commit", CONF_NUMBER, offsetof(struct options, engine.commit_s), "5", NULL,
	  "seconds after which a change is durable at the latest" },
	{ "write_rate", CONF_SIZE, offsetof(struct options, engine.write_rate), "0", NULL,
	  "limit on pack writes per second, 0: none" },
	{ "read_rate", CONF_SIZE, offsetof(struct options, engine.read_rate), "0", NULL,
	  "limit on pack reads per second, 0: none" },
	{ "dedup", CONF_CHOICE, offsetof(struct options, dedup), "auto", "auto|global|group|user",
	  "whose equal chunks are stored once, chosen at the first mount: all, those of a file's group, of its owner (auto: as stored, or global)" },
	{ "cluster", CONF_STRING, offsetof(struct options, cluster), NULL, NULL,
	  "key file shared by the stores of a cluster, first mount only" },
	{ "agent", CONF_STRING, offsetof(struct options, agent), NULL, NULL,
	  "socket where ckptfs-agent finds a store of a cluster; else agent.sock in the store" },
	{ "replicas", CONF_NUMBER, offsetof(struct options, replicas), "2", NULL,
	  "nodes of the cluster that store what several have, 1 to 4" },
	{ "protect", CONF_CHOICE, offsetof(struct options, protect), "none", "none|partner|xor",
	  "partner: what is sealed is also with another node of the cluster, on another host; xor: others have parity of it" },
	{ "pending", CONF_SIZE, offsetof(struct options, engine.pending), "64M", NULL,
	  "memory for data that waits for what other nodes have" },
	{ "log", CONF_STRING, offsetof(struct options, log), NULL, NULL, "log to this file instead of syslog" },
	{ "log_level", CONF_CHOICE, offsetof(struct options, log_level), "info", "error|warning|notice|info|debug",
	  "how much to log" },
	{ "metrics", CONF_STRING, offsetof(struct options, metrics), NULL, NULL,
	  "[HOST:]PORT where Prometheus gets figures over HTTP; loopback unless HOST says otherwise" },
	{ "autoseal", CONF_STRING, offsetof(struct options, autoseal), NULL, NULL,
	  "what seals a directory by itself: rename (from a temporary name) and names of files, with colons between" },
	{ "compact", CONF_CHOICE, offsetof(struct options, compact), "off", "off|auto",
	  "auto: variables of what is sealed are stored side by side, coded by what they are, while nobody writes" },
	{ "compact_budget", CONF_NUMBER, offsetof(struct options, compact_budget), "10", NULL,
	  "CPU seconds that this may take for each GB" },
	{ "compact_names", CONF_STRING, offsetof(struct options, compact_names), NULL, NULL,
	  "file of rules that say which variables are called otherwise" },
	{ "compact_group", CONF_NUMBER, offsetof(struct options, compact_group), "0", NULL,
	  "nodes of the cluster that form a group: what is sealed goes to its collectors, which compact it; 0: each node has its own" },
	{ "nonempty", CONF_FLAG, offsetof(struct options, nonempty), NULL, NULL,
	  "mount over a directory that has entries" },
	{ "private", CONF_FLAG, offsetof(struct options, private), NULL, NULL,
	  "only for the user who mounts; else root's mounts are for all" },
	{ 0 },
};

/* Limits of sizes and numbers, beyond what the table's types say. */
static const struct {
	size_t off;
	const char *name;
	uint64_t min, max;
	const char *why;
} limits[] = {
	{ offsetof(struct options, engine.page), "page", KiB(4), MiB(1), "must be a power of two, 4K to 1M" },
	{ offsetof(struct options, engine.cache), "cache", MiB(16), UINT64_MAX, "must be at least 16M" },
	{ offsetof(struct options, engine.dirty), "dirty", MiB(32), UINT64_MAX, "must be at least 32M" },
	{ offsetof(struct options, engine.commit_s), "commit", 1, 3600, "must be 1 to 3600 seconds" },
	{ offsetof(struct options, replicas), "replicas", 1, 4, "must be 1 to 4" },
	{ offsetof(struct options, compact_budget), "compact_budget", 1, 1000000, "must be 1 to 1000000 seconds" },
	{ offsetof(struct options, compact_group), "compact_group", 0, 65536, "must be 0 to 65536 nodes" },
	{ offsetof(struct options, engine.pending), "pending", MiB(4), GiB(16), "must be 4M to 16G" },
};

enum kernel_kind { KERNEL_PASS, KERNEL_IGNORE };

/* Options without a value that are not ours. Of `ro` and `rw` the last one counts, so they are not passed on as they
 * come. */
static const struct {
	const char *name;
	enum kernel_kind kind;
} kernel_options[] = {
	{ "ro", KERNEL_IGNORE },	  { "nosuid", KERNEL_PASS },
	{ "suid", KERNEL_PASS },	  { "nodev", KERNEL_PASS },
	{ "dev", KERNEL_PASS },		  { "noexec", KERNEL_PASS },
	{ "exec", KERNEL_PASS },	  { "noatime", KERNEL_PASS },
	{ "atime", KERNEL_IGNORE },	  { "sync", KERNEL_PASS },
	{ "dirsync", KERNEL_PASS },	  { "async", KERNEL_IGNORE },
	{ "rw", KERNEL_IGNORE },	  { "relatime", KERNEL_IGNORE },
	{ "nodiratime", KERNEL_IGNORE },  { "norelatime", KERNEL_IGNORE },
	{ "strictatime", KERNEL_IGNORE }, { "lazytime", KERNEL_IGNORE },
	{ "nolazytime", KERNEL_IGNORE },  { "default_permissions", KERNEL_IGNORE },
	{ "allow_other", KERNEL_PASS },	  { "defaults", KERNEL_IGNORE },
	{ "auto", KERNEL_IGNORE },	  { "noauto", KERNEL_IGNORE },
	{ "user", KERNEL_IGNORE },	  { "users", KERNEL_IGNORE },
	{ "nouser", KERNEL_IGNORE },	  { "owner", KERNEL_IGNORE },
	{ "group", KERNEL_IGNORE },	  { "_netdev", KERNEL_IGNORE },
	{ "nofail", KERNEL_IGNORE },
};

int options_init(struct options *o)
{
	*o = (struct options){ .kernel = BUF_EMPTY };
	return conf_set_defaults(keys, o);
}

void options_release(struct options *o)
{
	conf_release(keys, o);
	buf_release(&o->kernel);
}

void options_help(FILE *to)
{
	fputs("Usage: mount.ckptfs STORE MOUNTPOINT [-sfnv] [-o OPTION,...] [--foreground]\n"
	      "Mount the deduplicating store in directory STORE, which is created if it is not there.\n\n"
	      "  -o OPTION,...       options, see below\n"
	      "  -s                  ignore options that are not known\n"
	      "  -f                  check options and paths, mount nothing\n"
	      "  -n                  accepted and without effect: there is no mtab\n"
	      "  -v                  say what is done\n"
	      "  -d, --foreground    do not become a daemon; log to standard error\n"
	      "  -h, --help          this text\n"
	      "  -V, --version       the version\n\n"
	      "Options:\n",
	      to);
	conf_help(keys, to);
	fputs("\nOf the kernel's: ro rw nosuid nodev noexec noatime relatime sync dirsync allow_other.\n"
	      "Exit status: 0 mounted, 1 usage or permission, 2 system error, 32 mount failed.\n",
	      to);
}

static void kernel_add(struct options *o, const char *name)
{
	if (o->kernel.len > 0)
		buf_add_u8(&o->kernel, ',');
	buf_add(&o->kernel, name, strlen(name));
}

/* 1 known, 0 not. */
static int kernel_option(struct options *o, const char *name, const char *value)
{
	if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 || strcmp(name, "comment") == 0)
		return 1;
	if (value)
		return strcmp(name, "user") == 0; /* "user=NAME" is mount(8)'s note to itself */
	for (size_t i = 0; i < ARRAY_SIZE(kernel_options); i++) {
		if (strcmp(kernel_options[i].name, name) != 0)
			continue;
		if (kernel_options[i].kind == KERNEL_PASS)
			kernel_add(o, name);
		if (strcmp(name, "ro") == 0 || strcmp(name, "rw") == 0)
			o->engine.read_only = name[1] == 'o';
		else if (strcmp(name, "noatime") == 0)
			o->noatime = true;
		else if (strcmp(name, "sync") == 0 || strcmp(name, "dirsync") == 0)
			o->sync = true;
		return 1;
	}
	return 0;
}

/* One request of 1 MiB would take seconds, and the last commit before an unmount hours. */
static bool is_too_slow(uint64_t rate)
{
	return rate > 0 && rate < MiB(1);
}

static int check_limits(struct options *o, const char *name, const char **ret_why)
{
	struct metrics_address address;

	if (strcmp(name, "compress") == 0 && compress_parse(o->compress, strlen(o->compress), &o->engine.compress) < 0) {
		*ret_why = "must be none, lz4, zstd, zstd:1 to zstd:19 or auto";
		return -EINVAL;
	}
	if (strcmp(name, "agent") == 0 && *o->agent == '\0') {
		*ret_why = "must be a path";
		return -EINVAL;
	}
	if (strcmp(name, "metrics") == 0 && metrics_address_parse(o->metrics, &address) < 0) {
		*ret_why = "must be PORT, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535";
		return -EINVAL;
	}
	if (strcmp(name, "autoseal") == 0 && autoseal_check(o->autoseal) < 0) {
		*ret_why = "must be names of files, or rename, with colons between";
		return -EINVAL;
	}
	if (strcmp(name, "cdc") == 0 && chunking_parse_sizes(o->cdc, &o->engine.cdc) < 0) {
		*ret_why = "must be MIN:MEAN:MAX with 256 <= MIN, 2 MIN <= MEAN, 2 MEAN <= MAX <= 64K";
		return -EINVAL;
	}
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		uint64_t v = *(const uint64_t *)((const char *)o + limits[i].off);

		if (strcmp(limits[i].name, name) == 0 && (v < limits[i].min || v > limits[i].max)) {
			*ret_why = limits[i].why;
			return -EINVAL;
		}
	}
	if (o->engine.page & (o->engine.page - 1)) {
		*ret_why = "must be a power of two, 4K to 1M";
		return -EINVAL;
	}
	if (is_too_slow(o->engine.read_rate) || is_too_slow(o->engine.write_rate)) {
		*ret_why = "must be 0 (no limit) or at least 1M";
		return -EINVAL;
	}
	return 0;
}

/* `option` is "name" or "name=value"; it is cut at the '='. */
static int option_set(struct options *o, char *option)
{
	char *value = strchr(option, '=');
	const char *why = NULL;
	int r;

	if (value)
		*value++ = '\0';
	r = conf_set(keys, o, option, value, &why);
	if (r == -EINVAL || (r > 0 && check_limits(o, option, &why) < 0)) {
		log_error("option %s%s%s: %s", option, value ? "=" : "", value ? value : "", why);
		return -EINVAL;
	}
	if (r != 0)
		return r < 0 ? r : 0;
	if (kernel_option(o, option, value) > 0)
		return 0;
	if (strcmp(option, "remount") == 0) {
		log_error("option remount: no option can be changed while mounted; umount, and mount with the new ones");
		return -EINVAL;
	}
	if (o->sloppy) {
		log_info("option %s: not known, ignored", option);
		return 0;
	}
	log_error("option %s: not known; mount.ckptfs --help lists all", option);
	return -EINVAL;
}

int options_parse_list(struct options *o, const char *list)
{
	_cleanup_(freep) char *copy = strdup(list);
	char *rest = copy, *one;
	int r;

	if (!copy)
		return -ENOMEM;
	while ((one = strsep(&rest, ",")))
		if (*one != '\0') {
			r = option_set(o, one);
			if (r < 0)
				return r;
		}
	o->engine.chunking = (enum chunking)o->chunking;
	o->engine.hash = o->hash;
	o->engine.dedup = o->dedup;
	o->engine.cluster = o->cluster;
	return buf_error(&o->kernel);
}

static int parse_positional(struct options *o, int argc, char *argv[])
{
	if (argc < 2) {
		log_error("%s missing; mount.ckptfs --help tells the usage",
			  argc == 0 ? "STORE and MOUNTPOINT" : "MOUNTPOINT");
		return -EINVAL;
	}
	if (argc > 2) {
		log_error("%s: too many arguments; STORE and MOUNTPOINT are all", argv[2]);
		return -EINVAL;
	}
	o->store = argv[0];
	o->mountpoint = argv[1];
	return 0;
}

int options_parse(struct options *o, int argc, char *argv[])
{
	static const struct option longs[] = {
		{ "foreground", no_argument, NULL, 'd' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ 0 },
	};
	const char *lists[64];
	size_t nr = 0;
	int c, r;

	while ((c = getopt_long(argc, argv, "sfnvdhVo:t:N:", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			o->sloppy = true;
			break;
		case 'f':
			o->fake = true;
			break;
		case 'v':
			o->verbose = true;
			break;
		case 'd':
			o->foreground = true;
			break;
		case 'h':
			o->help = true;
			return 0;
		case 'V':
			o->version = true;
			return 0;
		case 'o':
			if (nr == ARRAY_SIZE(lists)) {
				log_error("-o given more than %zu times", nr);
				return -EINVAL;
			}
			lists[nr++] = optarg;
			break;
		case 'n': /* no mtab to write */
		case 't': /* the type by which mount(8) found us */
		case 'N': /* mount(8) has entered the namespace already */
			break;
		default:
			fputs("mount.ckptfs --help tells the usage\n", stderr); /* getopt has said why */
			return -EINVAL;
		}
	}
	/* After the loop: -s counts wherever it stands. */
	for (size_t i = 0; i < nr; i++) {
		r = options_parse_list(o, lists[i]);
		if (r < 0)
			return r;
	}
	return parse_positional(o, argc - optind, argv + optind);
}
