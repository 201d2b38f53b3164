/* SPDX-License-Identifier: GPL-3.0-or-later */
#include <errno.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/util.h"
#include "fs/cluster_hooks.h"
#include "fs/mount_options.h"

static struct options fresh(void)
{
	struct options o;

	assert_int_equal(options_init(&o), 0);
	return o;
}

static void defaults_are_those_of_the_table(void **state)
{
	_cleanup_(options_release) struct options o = fresh();

	(void)state;
	assert_int_equal(o.engine.page, 4096);
	assert_int_equal(o.engine.cache, MiB(256));
	assert_int_equal(o.engine.dirty, MiB(256));
	assert_int_equal(o.engine.commit_s, 5);
	assert_int_equal(o.engine.pending, MiB(64));
	assert_int_equal(o.replicas, 2);
	assert_null(o.agent);
	assert_int_equal(o.engine.write_rate, 0);
	assert_int_equal(o.hash, 0);
	assert_false(o.engine.verify);
	assert_false(o.engine.read_only);
	assert_int_equal(o.log_level, LOG_LEVEL_INFO);
}

static void a_list_sets_values_and_passes_the_kernels_on(void **state)
{
	_cleanup_(options_release) struct options o = fresh();

	(void)state;
	assert_int_equal(options_parse_list(&o, "page=64K,cache=1.5G,,ro,verify,hash=sha256,nosuid,log=/x/y,commit=30"),
			 0);
	assert_int_equal(o.engine.page, KiB(64));
	assert_int_equal(o.engine.cache, GiB(3) / 2);
	assert_int_equal(o.engine.hash, FP_SHA256);
	assert_int_equal(o.engine.commit_s, 30);
	assert_int_equal(o.engine.compress.kind, COMPRESS_NONE);
	assert_int_equal(options_parse_list(&o, "compress=lz4"), 0);
	assert_int_equal(o.engine.compress.kind, COMPRESS_LZ4);
	assert_int_equal(options_parse_list(&o, "compress=zstd:19"), 0);
	assert_int_equal(o.engine.compress.kind, COMPRESS_ZSTD);
	assert_int_equal(o.engine.compress.level, 19);
	assert_int_equal(options_parse_list(&o, "compress=auto"), 0);
	assert_int_equal(o.engine.compress.kind, COMPRESS_AUTO);
	assert_int_equal(o.engine.compress.level, 0);
	assert_int_equal(o.engine.chunking, CHUNKING_PAGE);
	assert_int_equal(options_parse_list(&o, "chunking=cdc,cdc=1K:8K:64K"), 0);
	assert_int_equal(o.engine.chunking, CHUNKING_CDC);
	assert_int_equal(options_parse_list(&o, "chunking=auto"), 0);
	assert_int_equal(o.engine.chunking, CHUNKING_AUTO);
	assert_int_equal(o.engine.cdc.min, 1024);
	assert_int_equal(o.engine.cdc.avg, 8192);
	assert_int_equal(o.engine.cdc.max, 65536);
	assert_true(o.engine.verify);
	assert_true(o.engine.read_only);
	assert_string_equal(o.log, "/x/y");
	if (cluster_hooks()) { /* a build without the cluster refuses them */
		assert_int_equal(options_parse_list(&o, "agent=/a/s,replicas=4,pending=1G"), 0);
		assert_string_equal(o.agent, "/a/s");
		assert_int_equal(o.replicas, 4);
		assert_int_equal(o.engine.pending, GiB(1));
	} else {
		assert_int_equal(options_parse_list(&o, "agent=/a/s"), -EINVAL);
	}
	assert_int_equal(o.kernel.len, strlen("nosuid"));
	assert_memory_equal(o.kernel.data, "nosuid", o.kernel.len);
}

static void what_only_mount_and_fstab_mean_is_ignored(void **state)
{
	_cleanup_(options_release) struct options o = fresh();

	(void)state;
	assert_int_equal(options_parse_list(&o, "defaults,auto,noauto,user,users,owner,group,_netdev,nofail,user=joe,"
						"x-systemd.automount,x-a=b,comment=c,rw,relatime,default_permissions"),
			 0);
	assert_int_equal(o.kernel.len, 0);
	assert_false(o.engine.read_only);
}

static void rw_after_ro_wins(void **state)
{
	_cleanup_(options_release) struct options o = fresh();

	(void)state;
	assert_int_equal(options_parse_list(&o, "ro,rw"), 0);
	assert_false(o.engine.read_only);
	assert_int_equal(o.kernel.len, 0);
}

static void bad_options_are_refused(void **state)
{
	static const char *const bad[] = {
		"frobnicate", "frobnicate=1", "page=5K",      "page=2K",  "page=2M",	    "page=",
		"page",	      "cache=1K",     "dirty=1M",     "commit=0", "commit=4000",    "commit=x",
		"hash=md5",   "chunking=rabin", "compress=gz",  "verify=1", "log_level=loud", "ro=1",
		"read_rate=1", "write_rate=1000K", "compress=", "compress=zstd:", "compress=zstd:0", "compress=zstd:20",
		"compress=lz4:1", "compress=zstd:1x", "compress", "chunking=", "cdc", "cdc=", "cdc=512", "cdc=512:4096",
		"cdc=512:4096:32768:", "cdc=512:4096:32768:1", "cdc=255:4K:32K", "cdc=512:1023:32K", "cdc=512:4K:8191",
		"cdc=512:4K:65K", "cdc=512:4K:4294967808", "cdc=a:b:c", "cdc=::",
		"agent", "agent=", "replicas=0", "replicas=5", "replicas=", "pending=1M", "pending=17G", "pending",
		"strictatime", "noatime,strictatime", "norelatime", "lazytime", "nosymfollow",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_(options_release) struct options o = fresh();

		if (options_parse_list(&o, bad[i]) != -EINVAL)
			fail_msg("%s was accepted", bad[i]);
	}
}

static void sloppy_ignores_the_unknown_but_no_bad_value(void **state)
{
	_cleanup_(options_release) struct options o = fresh();

	(void)state;
	o.sloppy = true;
	assert_int_equal(options_parse_list(&o, "frobnicate,frob=1,strictatime"), 0);
	assert_int_equal(options_parse_list(&o, "page=5K"), -EINVAL);
}

#define PARSE(o, ...)                                                          \
	({                                                                     \
		char *_argv[] = { (char *)"mount.ckptfs", __VA_ARGS__, NULL }; \
		optind = 0;                                                    \
		options_parse(o, (int)ARRAY_SIZE(_argv) - 1, _argv);           \
	})

static void the_command_line_is_that_of_mount_helpers(void **state)
{
	_cleanup_(options_release) struct options o = fresh();
	char store[] = "/s", dir[] = "/m", flags[] = "-nv", list[] = "cache=32M,what", o_flag[] = "-o", sloppy[] = "-s";

	(void)state;
	assert_int_equal(PARSE(&o, store, dir, flags, o_flag, list, sloppy), 0); /* -s counts wherever it stands */
	assert_string_equal(o.store, "/s");
	assert_string_equal(o.mountpoint, "/m");
	assert_true(o.verbose);
	assert_int_equal(o.engine.cache, MiB(32));
}

static void a_wrong_number_of_arguments_is_refused(void **state)
{
	char a[] = "a", b[] = "b", c[] = "c";

	(void)state;
	for (int nr = 0; nr < 4; nr++) {
		_cleanup_(options_release) struct options o = fresh();
		char *argv[] = { (char *)"mount.ckptfs", a, b, c, NULL };

		optind = 0;
		assert_int_equal(options_parse(&o, 1 + nr, argv), nr == 2 ? 0 : -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_are_those_of_the_table),
		cmocka_unit_test(a_list_sets_values_and_passes_the_kernels_on),
		cmocka_unit_test(what_only_mount_and_fstab_mean_is_ignored),
		cmocka_unit_test(rw_after_ro_wins),
		cmocka_unit_test(bad_options_are_refused),
		cmocka_unit_test(sloppy_ignores_the_unknown_but_no_bad_value),
		cmocka_unit_test(the_command_line_is_that_of_mount_helpers),
		cmocka_unit_test(a_wrong_number_of_arguments_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
