/* SPDX-License-Identifier: GPL-3.0-or-later */
/* What batch systems say of a job, and names made of it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/util.h"
#include "tools/run/run_job.h"

static const char *const *environment; /* name, value, ..., NULL */

static const char *env(const char *name)
{
	for (const char *const *p = environment; *p; p += 2)
		if (strcmp(p[0], name) == 0)
			return p[1];
	return NULL;
}

#define ENV(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void every_batch_system_is_understood(void **state _unused_)
{
	static const char hosts[] = "/tmp/ckptfs-test-hosts.XXXXXX", lines[] = "n1\nn1\nn2\n\nn3\nn2\nn3";
	char path[sizeof(hosts)];
	int fd;

	memcpy(path, hosts, sizeof(hosts));
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, lines, strlen(lines)), strlen(lines));
	close(fd);

	const struct {
		const char *const *env;
		enum run_scheduler scheduler;
		const char *id;
		uint64_t nodes, node, end_s;
	} cases[] = {
		{ ENV("SLURM_JOB_ID", "17", "SLURM_JOB_NUM_NODES", "4", "SLURM_NODEID", "3", "SLURM_JOB_END_TIME",
		      "1800000000"),
		  RUN_SLURM, "17", 4, 3, 1800000000 },
		{ ENV("SLURM_JOB_ID", "17", "SLURM_NODEID", "0", "OMPI_COMM_WORLD_RANK", "2"), RUN_SLURM, "17", 1, 2, 0 },
		{ ENV("FLUX_JOB_ID", "ƒAbc", "FLUX_JOB_NNODES", "2", "FLUX_TASK_RANK", "1"), RUN_FLUX, "__Abc", 2, 1, 0 },
		{ ENV("FLUX_ENCLOSING_ID", "f7"), RUN_FLUX, "f7", 1, 0, 0 },
		{ ENV("PBS_JOBID", "12.head/x", "PBS_NODEFILE", path, "PBS_NODENUM", "2"), RUN_PBS, "12.head_x", 3, 2, 0 },
		{ ENV("SLURM_JOB_ID", "", "PBS_JOBID", ".."), RUN_PBS, "_.", 1, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *what = "";
		struct run_job job;

		environment = cases[i].env;
		assert_int_equal(run_job_read(env, &job, &what), 0);
		assert_int_equal(job.scheduler, cases[i].scheduler);
		assert_string_equal(job.id, cases[i].id);
		assert_int_equal(job.nodes, cases[i].nodes);
		assert_int_equal(job.node, cases[i].node);
		assert_int_equal(job.end_s, cases[i].end_s);
	}
	unlink(path);
}

static void what_is_no_number_is_named(void **state _unused_)
{
	static const char *const wrong[] = { "many", "", "-1", "1x", " 1", "99999999999999999999" };

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		const char *const variables[] = { "SLURM_JOB_ID", "1", "SLURM_JOB_NUM_NODES", wrong[i], NULL };
		struct run_job job = { .nodes = 77 };
		const char *what = "";

		environment = variables;
		assert_int_equal(run_job_read(env, &job, &what), -EINVAL);
		assert_string_equal(what, "SLURM_JOB_NUM_NODES");
		assert_int_equal(job.nodes, 77);
	}
	environment = ENV("PBS_JOBID", "1", "PBS_NODEFILE", "/nowhere/at/all");
	{
		struct run_job job;
		const char *what = "";

		assert_int_equal(run_job_read(env, &job, &what), -ENOENT);
		assert_string_equal(what, "PBS_NODEFILE");
	}
}

static void names_have_the_job_in_them(void **state _unused_)
{
	const struct run_job job = { .id = "17", .node = 3 };
	static const struct {
		const char *pattern, *name;
	} cases[] = {
		{ "", "" },
		{ "/a b/%j.%n", "/a b/17.3" },
		{ "%%j%%%j", "%j%17" },
		{ "%", NULL },
		{ "/x/%x", NULL },
		{ "/x/%", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(freep) char *name = NULL;

		assert_int_equal(run_job_expand(&job, cases[i].pattern, &name), cases[i].name ? 0 : -EINVAL);
		if (cases[i].name)
			assert_string_equal(name, cases[i].name);
		else
			assert_null(name);
	}
	assert_true(run_job_is_per_node("/a/%h"));
	assert_true(run_job_is_per_node("%j%n"));
	assert_false(run_job_is_per_node("/a/%j"));
	assert_false(run_job_is_per_node("/a/%%n"));
	assert_false(run_job_is_per_node("/a/%"));
}

static void the_time_that_is_left_is_read_as_it_is_printed(void **state _unused_)
{
	static const struct {
		const char *text;
		int64_t seconds; /* -1: none */
	} cases[] = {
		{ "90\n", 90 },	{ "0:00", 0 },	       { "12:34\n", 754 },     { "1:02:03", 3723 },
		{ "1-02:03:04", 93784 }, { "10-00:00:00", 864000 }, { "", -1 },	    { "UNLIMITED\n", -1 },
		{ "INVALID", -1 },	{ "1:2:3:4", -1 },     { "-1:00", -1 },	    { "1--1", -1 },
		{ "1:", -1 },		{ ":1", -1 },	       { "99999999999", -1 }, { "inf", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t left = 77;

		assert_int_equal(run_job_parse_left(cases[i].text, &left), cases[i].seconds < 0 ? -EINVAL : 0);
		assert_int_equal(left, cases[i].seconds < 0 ? 77 : cases[i].seconds);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_batch_system_is_understood),
		cmocka_unit_test(what_is_no_number_is_named),
		cmocka_unit_test(names_have_the_job_in_them),
		cmocka_unit_test(the_time_that_is_left_is_read_as_it_is_printed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
