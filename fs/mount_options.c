/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/mount_options.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"
#include "base/conf.h"
#include "base/log.h"
#include "base/util.h"
#include "fs/cluster_hooks.h"
#include "fs/seal/autoseal.h"
#include "fs/control/metrics_address.h"
#include "fs/background/flush_note.h"
#include "store/tier/tier_open.h"

static int check_page(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	const struct options *o = conf;

	(void)value;
	if ((o->engine.page & (o->engine.page - 1)) == 0)
		return 0;
	*ret_why = "must be a power of two, 4K to 1M";
	return -EINVAL;
}

static int parse_cdc(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	struct options *o = conf;

	*ret_why = "must be MIN:MEAN:MAX with 256 <= MIN, 2 MIN <= MEAN, 2 MEAN <= MAX <= 64K";
	return chunking_parse_sizes(value, &o->engine.cdc) < 0 ? -EINVAL : 0;
}

static int parse_compress(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	struct options *o = conf;

	*ret_why = "must be none, lz4, zstd, zstd:1 to zstd:19 or auto";
	return compress_parse(value, strlen(value), &o->engine.compress) < 0 ? -EINVAL : 0;
}

static int check_metrics(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	struct metrics_address address;

	(void)conf;
	*ret_why = "must be PORT, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535";
	return metrics_address_parse(value, &address) < 0 ? -EINVAL : 0;
}

static int check_autoseal(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	(void)conf;
	*ret_why = "must be names of files, or rename, with colons between";
	return autoseal_check(value) < 0 ? -EINVAL : 0;
}

/* One request of 1 MiB would take seconds, and the last commit before an unmount hours. */
static int check_rate(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	uint64_t rate = 0;

	(void)conf;
	*ret_why = "must be 0 (no limit) or at least 1M";
	return parse_size(value, &rate) == 0 && (rate == 0 || rate >= MiB(1)) ? 0 : -EINVAL;
}

static int check_tier(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	(void)conf;
	*ret_why = strlen(value) > FLUSH_NOTE_URL_MAX ? "is too long" : tier_url_refusal(value);
	return *ret_why ? -EINVAL : 0;
}

static int check_tier_config(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why)
{
	(void)conf;
	*ret_why = "must be a path that begins with a slash"; /* the daemon changes its working directory */
	return value[0] == '/' ? 0 : -EINVAL;
}

static const struct conf_key keys[] = {
	{ "chunking", CONF_CHOICE, offsetof(struct options, chunking), .group = "Stored data", .fallback = "page",
	  .choices = "page|cdc|auto",
	  .help = "how new data is cut into chunks: into pages, by content, or into pages that are found again where they "
		  "have moved to" },
	{ "compress", CONF_STRING, offsetof(struct options, compress), .fallback = "none", .parse = parse_compress,
	  .value = "NAME", .help = "compression of new data: none, lz4, zstd, zstd:LEVEL or auto" },
	{ "page", CONF_SIZE, offsetof(struct options, engine.page), .fallback = "4K", .parse = check_page, .min = KiB(4),
	  .max = MiB(1), .must = "must be a power of two, 4K to 1M", .help = "chunk size, a power of two, 4K to 1M" },
	{ "dedup", CONF_CHOICE, offsetof(struct options, dedup), .fallback = "auto", .choices = "auto|global|group|user",
	  .help = "which files share equal chunks, chosen at the first mount: all, those of a group, those of an owner; "
		  "auto: as the store, global for a new one" },
	{ "autoseal", CONF_STRING, offsetof(struct options, autoseal), .parse = check_autoseal, .value = "NAME[:NAME]...",
	  .help = "seal directories automatically: rename (from a temporary name), or names of files that mark them as "
		  "complete" },
	{ "compact", CONF_CHOICE, offsetof(struct options, compact), .fallback = "off", .choices = "off|auto",
	  .help = "auto: recode the variables of sealed directories while no program writes" },

	{ "cache", CONF_SIZE, offsetof(struct options, engine.cache), .group = "Memory", .fallback = "256M",
	  .min = MiB(16), .must = "must be at least 16M", .help = "memory for look-ups" },
	{ "dirty", CONF_SIZE, offsetof(struct options, engine.dirty), .fallback = "256M", .min = MiB(32),
	  .must = "must be at least 32M", .help = "memory for data not yet in packs" },

	{ "commit", CONF_NUMBER, offsetof(struct options, engine.commit_s), .group = "Durability", .fallback = "5",
	  .min = 1, .max = 3600, .must = "must be 1 to 3600 seconds", .value = "SECONDS",
	  .help = "unsynced changes become durable within this time" },

	{ "cluster", CONF_STRING, offsetof(struct options, cluster), .group = "Cluster", .value = "FILE",
	  .help = "key file shared by the stores of a cluster, first mount only" },
	{ "replicas", CONF_NUMBER, offsetof(struct options, replicas), .fallback = "2", .min = 1, .max = 4,
	  .must = "must be 1 to 4", .help = "nodes that store a chunk that several nodes have, 1 to 4" },
	{ "protect", CONF_CHOICE, offsetof(struct options, protect), .fallback = "none", .choices = "none|partner|xor",
	  .help = "partner: replicate sealed directories on another host; xor: store parity of them on other hosts" },
	{ "compact_group", CONF_NUMBER, offsetof(struct options, compact_group), .fallback = "0", .max = 65536,
	  .must = "must be 0 to 65536 nodes",
	  .help = "nodes that form a group, which gathers and recodes its sealed directories; 0: none" },

	{ "tier", CONF_STRING, offsetof(struct options, tier), .group = "Tier", .parse = check_tier, .value = "URL",
	  .help = "flush sealed checkpoints to storage that outlives the node: dir:/path or s3://bucket/prefix" },
	{ "tier_config", CONF_STRING, offsetof(struct options, tier_config), .parse = check_tier_config,
	  .value = "FILE", .help = "credentials and endpoint of S3, in a file without access for others" },
	{ "tier_rate", CONF_SIZE, offsetof(struct options, tier_rate), .fallback = "0", .parse = check_rate,
	  .help = "limit on bytes sent to the tier per second, 0: none" },

	{ "private", CONF_FLAG, offsetof(struct options, private), .group = "Access and reports",
	  .help = "only the mounting user has access; otherwise a mount by root is for all users" },
	{ "log", CONF_STRING, offsetof(struct options, log), .value = "FILE",
	  .help = "log to this file instead of syslog" },
	{ "log_level", CONF_CHOICE, offsetof(struct options, log_level), .fallback = "info",
	  .choices = "error|warning|notice|info|debug", .value = "LEVEL",
	  .help = "how much to log: error, warning, notice, info or debug" },
	{ "metrics", CONF_STRING, offsetof(struct options, metrics), .parse = check_metrics, .value = "[HOST:]PORT",
	  .help = "address at which Prometheus gets figures over HTTP; the default host is 127.0.0.1" },

	{ "agent", CONF_STRING, offsetof(struct options, agent), .group = "Expert options", .value = "SOCKET",
	  .help = "socket of ckptfs-agent, in a store of a cluster; otherwise agent.sock in the store" },
	{ "cdc", CONF_STRING, offsetof(struct options, cdc), .fallback = "512:4K:32K", .parse = parse_cdc,
	  .value = "MIN:MEAN:MAX", .help = "lengths of chunks cut by content" },
	{ "compact_budget", CONF_NUMBER, offsetof(struct options, compact_budget), .fallback = "10", .min = 1,
	  .max = 1000000, .must = "must be 1 to 1000000 seconds", .value = "SECONDS",
	  .help = "CPU seconds per GB that compact=auto may take" },
	{ "compact_names", CONF_STRING, offsetof(struct options, compact_names), .value = "FILE",
	  .help = "rules that map names of variables, for compact=auto" },
	{ "hash", CONF_CHOICE, offsetof(struct options, hash), .fallback = "auto", .choices = "auto|xxh3|sha256|clmul",
	  .help = "fingerprint, chosen at the first mount; auto: as the store, clmul for a new one" },
	{ "nonempty", CONF_FLAG, offsetof(struct options, nonempty), .help = "mount over a directory that has entries" },
	{ "pending", CONF_SIZE, offsetof(struct options, engine.pending), .fallback = "64M", .min = MiB(4),
	  .max = GiB(16), .must = "must be 4M to 16G", .help = "memory for data that waits for a round of the cluster" },
	{ "read_rate", CONF_SIZE, offsetof(struct options, engine.read_rate), .fallback = "0", .parse = check_rate,
	  .help = "limit on pack reads per second, 0: none" },
	{ "tier_cache", CONF_SIZE, offsetof(struct options, tier_cache), .fallback = "256M", .min = MiB(1),
	  .must = "must be at least 1M", .help = "memory to look up chunks in the tier; chunks beyond it are sent again" },
	{ "tier_parallel", CONF_NUMBER, offsetof(struct options, tier_parallel), .fallback = "0",
	  .max = TIER_PARALLEL_MAX, .must = "must be 0 to 64 requests",
	  .help = "requests to the tier at a time; 0: 4 when flushing, 16 for a mounted tier" },
	{ "tier_takeover", CONF_FLAG, offsetof(struct options, tier_takeover),
	  .help = "continue flushing after another machine has flushed as this store; give it once" },
	{ "tier_timeout", CONF_TIME, offsetof(struct options, tier_timeout_ns), .fallback = "60s",
	  .help = "a read from a tier, mounted by itself or of a dropped checkpoint, fails when the tier has not answered for "
		  "this time" },
	{ "verify", CONF_FLAG, offsetof(struct options, engine.verify), .help = "compare bytes before sharing a chunk" },
	{ "write_rate", CONF_SIZE, offsetof(struct options, engine.write_rate), .fallback = "0", .parse = check_rate,
	  .help = "limit on pack writes per second, 0: none" },
	{ "writeback", CONF_FLAG, offsetof(struct options, writeback),
	  .help = "gather small writes in the page cache until close, fsync or the kernel's write-back" },
	{ .name = NULL },
};

enum kernel_kind { KERNEL_PASS, KERNEL_IGNORE };

/* Options without a value that are not ours. The last one of `ro` and `rw` counts, so they are not passed on. */
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
	{ "nodiratime", KERNEL_IGNORE },  { "nolazytime", KERNEL_IGNORE },
	{ "default_permissions", KERNEL_IGNORE },
	{ "allow_other", KERNEL_PASS },	  { "defaults", KERNEL_IGNORE },
	{ "auto", KERNEL_IGNORE },	  { "noauto", KERNEL_IGNORE },
	{ "user", KERNEL_IGNORE },	  { "users", KERNEL_IGNORE },
	{ "nouser", KERNEL_IGNORE },	  { "owner", KERNEL_IGNORE },
	{ "group", KERNEL_IGNORE },	  { "_netdev", KERNEL_IGNORE },
	{ "nofail", KERNEL_IGNORE },
};

int options_init(struct options *o)
{
	*o = (struct options){ .kernel = BUF_EMPTY, .own = BUF_EMPTY, .flags = BUF_EMPTY, .lists = BUF_EMPTY };
	return conf_set_defaults(keys, o);
}

void options_release(struct options *o)
{
	conf_release(keys, o);
	buf_release(&o->kernel);
	buf_release(&o->own);
	buf_release(&o->flags);
	buf_release(&o->lists);
}

static void list_add(struct buf *list, const char *name, const char *value)
{
	if (list->len > 0)
		buf_add_u8(list, ',');
	buf_add(list, name, strlen(name));
	if (value) {
		buf_add_u8(list, '=');
		buf_add(list, value, strlen(value));
	}
}

/* Only a remount can set these: libfuse does not know them. */
static bool is_of_remount(const char *name)
{
	return strcmp(name, "symfollow") == 0 || strcmp(name, "nosymfollow") == 0;
}

/* mount(8) adds these to a remount, as the kernel lists them. */
static bool is_shown_by_kernel(const char *name)
{
	return strcmp(name, "user_id") == 0 || strcmp(name, "group_id") == 0 || strcmp(name, "max_read") == 0 ||
	       strcmp(name, "blksize") == 0;
}

/* 1 known, 0 unknown. */
static int kernel_option(struct options *o, const char *name, const char *value)
{
	if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 || strcmp(name, "comment") == 0)
		return 1;
	if (value)
		return strcmp(name, "user") == 0 || /* "user=NAME" is for the internal use of mount(8) */
		       (o->remount && is_shown_by_kernel(name));
	if (o->remount && is_of_remount(name)) {
		list_add(&o->flags, name, NULL);
		return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(kernel_options); i++) {
		if (strcmp(kernel_options[i].name, name) != 0)
			continue;
		if (kernel_options[i].kind == KERNEL_PASS)
			list_add(&o->kernel, name, NULL);
		if (o->remount)
			list_add(&o->flags, name, NULL);
		if (strcmp(name, "nodiratime") == 0)
			list_add(&o->own, name, NULL); /* unknown to the kernel, which cannot list it */
		if (strcmp(name, "ro") == 0 || strcmp(name, "rw") == 0)
			o->engine.read_only = name[1] == 'o';
		else if (strcmp(name, "noatime") == 0)
			o->noatime = true;
		else if (strcmp(name, "nodiratime") == 0)
			o->nodiratime = true;
		else if (strcmp(name, "sync") == 0 || strcmp(name, "dirsync") == 0)
			o->sync = true;
		return 1;
	}
	return 0;
}

/* Ignoring such an option would make a store that no other node can share chunks with. */
static bool is_of_cluster(const char *option)
{
	static const char *const names[] = { "cluster", "agent", "replicas", "protect", "pending", "compact_group" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(option, names[i]) == 0)
			return true;
	return false;
}

/* Times of files are maintained in one way only. */
static const char *why_not_supported(const char *option)
{
	if (strcmp(option, "strictatime") == 0 || strcmp(option, "norelatime") == 0)
		return "the kernel answers reads from its cache, so read times are kept as with relatime";
	if (strcmp(option, "lazytime") == 0)
		return "the daemon keeps the times of files, not the kernel";
	return NULL;
}

static void complain_unknown(const char *option)
{
	struct nearest n = { .word = option };

	for (const struct conf_key *k = keys; k->name; k++)
		if (k->help && (cluster_hooks() || !is_of_cluster(k->name)))
			nearest_offer(&n, k->name);
	for (size_t i = 0; i < ARRAY_SIZE(kernel_options); i++)
		nearest_offer(&n, kernel_options[i].name);
	log_error("option %s: not known; %s%s%smount.ckptfs --help lists all", option, n.name ? "did you mean " : "",
		  n.name ? n.name : "", n.name ? "? " : "");
}

/* `option` is "name" or "name=value"; it is cut at the '='. */
static int option_set(struct options *o, char *option)
{
	char *value = strchr(option, '=');
	const char *why = NULL;
	int r;

	if (value)
		*value++ = '\0';
	if (!cluster_hooks() && is_of_cluster(option)) {
		log_error("option %s: this mount.ckptfs was built without the cluster (meson -Dmpi=disabled)", option);
		return -EINVAL;
	}
	r = conf_set(keys, o, option, value, &why);
	if (r == -EINVAL) {
		log_error("option %s%s%s: %s", option, value ? "=" : "", value ? value : "", why);
		return -EINVAL;
	}
	if (r > 0)
		list_add(&o->own, option, value);
	if (r != 0)
		return r < 0 ? r : 0;
	if (kernel_option(o, option, value) > 0)
		return 0;
	if (strcmp(option, "remount") == 0 && !value)
		return 0;
	why = why_not_supported(option);
	if (why && !o->sloppy) {
		log_error("option %s: not supported: %s", option, why);
		return -EINVAL;
	}
	if (o->sloppy) {
		log_info("option %s: not known, ignored", option);
		return 0;
	}
	complain_unknown(option);
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
	if (buf_error(&o->own) < 0 || buf_error(&o->flags) < 0)
		return -ENOMEM;
	return buf_error(&o->kernel);
}

static bool has_remount(const char *list)
{
	for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
		if (strncmp(p, "remount", 7) == 0 && (p[7] == ',' || p[7] == '\0'))
			return true;
	return false;
}

/* Kept for after all options, so that the position of -s does not matter. */
static int take_list(const struct conf_key *k _unused_, void *conf, const char *value, const char **ret_why _unused_)
{
	struct options *o = conf;

	list_add(&o->lists, value, NULL);
	o->remount |= has_remount(value);
	return buf_error(&o->lists);
}

static int ignore(const struct conf_key *k _unused_, void *conf _unused_, const char *value _unused_,
		  const char **ret_why _unused_)
{
	return 0;
}

#define OF(field) offsetof(struct options, field)

static const struct conf_key letters[] = {
	{ "", CONF_PARSED, 0, .letter = 'o', .parse = take_list, .may_be_empty = true, .value = "OPTION,...",
	  .help = "options, see below" },
	{ "", CONF_FLAG, OF(sloppy), .letter = 's', .help = "ignore options that are not known" },
	{ "", CONF_FLAG, OF(fake), .letter = 'f', .help = "check options and paths, mount nothing" },
	{ "", CONF_FLAG, OF(ignored), .letter = 'n', .help = "accepted and without effect: there is no mtab" },
	{ "", CONF_FLAG, OF(verbose), .letter = 'v', .help = "say what is done" },
	{ "foreground", CONF_FLAG, OF(foreground), .letter = 'd', .help = "do not become a daemon; log to standard error" },
	/* The type by which mount(8) found this program, and the namespace that it has entered. */
	{ "", CONF_PARSED, 0, .letter = 't', .parse = ignore, .may_be_empty = true, .help = NULL },
	{ "", CONF_PARSED, 0, .letter = 'N', .parse = ignore, .may_be_empty = true, .help = NULL },
	COMMAND_END,
};

static void mount_help(FILE *to)
{
	conf_help(keys, to);
	fputs("\nOf the kernel's: ro rw nosuid nodev noexec noatime relatime sync dirsync allow_other.\n"
	      "With remount: change ro, rw, nosuid, nodev, noexec, noatime or relatime of an existing mount.\n",
	      to);
}

static const char *check_paths(void *request _unused_, int nr)
{
	return nr == 0 ? "STORE and MOUNTPOINT must be given" :
	       nr == 1 ? "MOUNTPOINT must be given, behind STORE" :
	       nr > 2  ? "too many arguments; STORE and MOUNTPOINT are expected" :
			 NULL;
}

/* Refuses options that are only valid with a tier. */
static int refuse_tier_options(const struct options *o)
{
	static const char name[] = "tier_timeout=";

	for (size_t at = 0; at < o->own.len && !o->tier; at++)
		if ((at == 0 || o->own.data[at - 1] == ',') && o->own.len - at >= strlen(name) &&
		    memcmp(o->own.data + at, name, strlen(name)) == 0) {
			log_error("option tier_timeout: only valid with tier=, or for a mount of a tier by itself");
			return -EINVAL;
		}
	return 0;
}

int options_parse(struct options *o, int argc, char *argv[])
{
	static const struct command command = {
		.name = "mount.ckptfs",
		.usage = "mount.ckptfs STORE MOUNTPOINT [-sfnv] [-o OPTION,...] [--foreground]\n"
			 "       mount.ckptfs dir:/PATH|s3://BUCKET[/PREFIX] MOUNTPOINT [-sfnv] [-o OPTION,...] [--foreground]\n",
		.about = "Mount the deduplicating store in directory STORE, which is created if it is not there. Or mount a tier by "
			 "itself, read-only: its sealed checkpoints, read on demand.",
		.options = letters,
		.more = mount_help,
		.footer = "Exit status: 0 mounted, 1 usage or permission, 2 system error, 32 mount failed.",
		.exit_usage = 1,
		.exit_failed = 2,
		.max_operands = COMMAND_OPERANDS_MAX,
		.check = check_paths,
	};
	int status, r = command_parse(&command, o, argc, argv, &status);

	if (r != 0)
		return r;
	buf_add_u8(&o->lists, 0);
	r = buf_error(&o->lists);
	if (r == 0)
		r = options_parse_list(o, (const char *)o->lists.data);
	if (r < 0)
		return r;
	o->store = argv[optind];
	o->mountpoint = argv[optind + 1];
	o->is_tier = tier_url_is(o->store);
	return o->is_tier ? 0 : refuse_tier_options(o);
}

/* Commas and backslashes in a path would end the option. */
static void add_escaped(struct buf *b, const char *s)
{
	for (; *s; s++) {
		if (*s == ',' || *s == '\\')
			buf_add_u8(b, '\\');
		buf_add_u8(b, (uint8_t)*s);
	}
}

static void add_text(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

int options_for_kernel(const struct options *o, const char *source, bool read_only, struct buf *ret)
{
	bool root = geteuid() == 0;

	add_text(ret, "subtype=ckptfs,default_permissions,fsname=");
	add_escaped(ret, source);
	if (root && !o->is_tier)
		add_text(ret, ",suid,dev"); /* libfuse has other defaults */
	if (root && !o->private)
		add_text(ret, ",allow_other");
	if (read_only)
		add_text(ret, ",ro");
	if (o->kernel.len > 0) {
		buf_add_u8(ret, ',');
		buf_add(ret, o->kernel.data, o->kernel.len);
	}
	buf_add_u8(ret, 0);
	return buf_error(ret);
}
