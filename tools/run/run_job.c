/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/run/run_job.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

#define HOST_MAX 256
#define NR_NODES_MAX 1000000

/* The first of these variables that is set decides. */
static const struct {
	const char *id;
	enum run_scheduler scheduler;
	const char *nodes, *end;
} schedulers[] = {
	{ "SLURM_JOB_ID", RUN_SLURM, "SLURM_JOB_NUM_NODES", "SLURM_JOB_END_TIME" },
	{ "FLUX_JOB_ID", RUN_FLUX, "FLUX_JOB_NNODES", NULL },
	{ "FLUX_ENCLOSING_ID", RUN_FLUX, NULL, NULL },
	{ "PBS_JOBID", RUN_PBS, NULL, NULL },
};

/* Launchers first: within a Slurm job mpirun's SLURM_NODEID is that of the batch script. */
static const char *const node_variables[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_RANK",
					      "FLUX_TASK_RANK",	      "SLURM_NODEID", "PBS_NODENUM" };

void run_job_call(struct run_job *job, const char *name)
{
	snprintf(job->id, sizeof(job->id), "%s", name);
	for (char *p = job->id; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("._-+", *p))
			*p = '_';
	if (job->id[0] == '.' || job->id[0] == '\0')
		job->id[0] = '_';
}

static int parse_number(const char *s, uint64_t max, uint64_t *ret)
{
	unsigned long long n;
	char *end;

	errno = 0;
	n = strtoull(s, &end, 10);
	if (!isdigit((unsigned char)s[0]) || *end != '\0' || errno != 0 || n > max)
		return -EINVAL;
	*ret = n;
	return 0;
}

/* A variable that is not set leaves *ret as it is. */
static int read_number(const char *(*env)(const char *), const char *name, uint64_t max, uint64_t *ret,
		       const char **ret_what)
{
	const char *s = name ? env(name) : NULL;
	int r = s ? parse_number(s, max, ret) : 0;

	if (r < 0)
		*ret_what = name;
	return r;
}

int run_job_parse_left(const char *text, uint64_t *ret_s)
{
	static const uint64_t more[] = { 60, 60, 24 }; /* how many make one of the next unit */
	uint64_t days = 0, s = 0, unit = 1;
	char copy[64], *rest = copy, *part;

	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
		return -EINVAL;
	copy[strcspn(copy, "\r\n")] = '\0';
	part = strchr(rest, '-');
	if (part) {
		*part = '\0';
		if (parse_number(rest, INT32_MAX, &days) < 0)
			return -EINVAL;
		rest = part + 1;
	}
	for (size_t i = 0; rest; i++) {
		uint64_t n;

		if (i == ARRAY_SIZE(more))
			return -EINVAL;
		part = strrchr(rest, ':');
		if (parse_number(part ? part + 1 : rest, INT32_MAX, &n) < 0)
			return -EINVAL;
		s += n * unit;
		unit *= more[i];
		if (part)
			*part = '\0';
		else
			rest = NULL;
	}
	*ret_s = days * 24 * 3600 + s;
	return 0;
}

static bool is_known(char *const *names, size_t nr, const char *name)
{
	for (size_t i = 0; i < nr; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* The file has a line per processor, so hosts are repeated. */
static int count_hosts(const char *path, uint64_t *ret)
{
	_cleanup_(freep) char *line = NULL;
	FILE *f = fopen(path, "re");
	char **names = NULL;
	size_t nr = 0, room = 0;
	int r = f ? 0 : -errno;
	ssize_t len;

	while (r == 0 && (len = getline(&line, &room, f)) > 0) {
		char **more;

		if (line[len - 1] == '\n')
			line[len - 1] = '\0';
		if (line[0] == '\0' || is_known(names, nr, line))
			continue;
		more = reallocarray(names, nr + 1, sizeof(*names));
		if (more)
			names = more;
		if (!more || !(names[nr] = strdup(line)))
			r = -ENOMEM;
		else
			nr++;
	}
	if (f)
		fclose(f);
	for (size_t i = 0; i < nr; i++)
		free(names[i]);
	free(names);
	if (r == 0)
		*ret = MAX(nr, (size_t)1);
	return r;
}

int run_job_read(const char *(*env)(const char *name), struct run_job *ret, const char **ret_what)
{
	struct run_job job = { .nodes = 1 };
	char pid[32];
	int r = 0;

	snprintf(pid, sizeof(pid), "pid%ld", (long)getpid());
	run_job_call(&job, pid);
	for (size_t i = 0; i < ARRAY_SIZE(schedulers); i++) {
		const char *id = env(schedulers[i].id);

		if (!id || !id[0])
			continue;
		job.scheduler = schedulers[i].scheduler;
		run_job_call(&job, id);
		r = read_number(env, schedulers[i].nodes, NR_NODES_MAX, &job.nodes, ret_what);
		if (r == 0)
			r = read_number(env, schedulers[i].end, UINT32_MAX, &job.end_s, ret_what);
		break;
	}
	if (r == 0 && job.scheduler == RUN_PBS && env("PBS_NODEFILE")) {
		r = count_hosts(env("PBS_NODEFILE"), &job.nodes);
		*ret_what = "PBS_NODEFILE";
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(node_variables); i++)
		if (env(node_variables[i])) {
			r = read_number(env, node_variables[i], NR_NODES_MAX, &job.node, ret_what);
			break;
		}
	if (r == 0 && job.nodes == 0)
		job.nodes = 1;
	if (r == 0)
		*ret = job;
	return r;
}

bool run_job_is_per_node(const char *pattern)
{
	for (const char *p = pattern; (p = strchr(p, '%')) && p[1]; p += 2)
		if (p[1] == 'h' || p[1] == 'n')
			return true;
	return false;
}

static void print_letter(FILE *to, const struct run_job *job, char letter)
{
	char host[HOST_MAX] = "localhost";

	if (letter == 'u') {
		const struct passwd *user = getpwuid(geteuid());

		if (user)
			fputs(user->pw_name, to);
		else
			fprintf(to, "%u", geteuid());
	} else if (letter == 'h') {
		gethostname(host, sizeof(host) - 1);
		fputs(host, to);
	} else if (letter == 'j') {
		fputs(job->id, to);
	} else if (letter == 'n') {
		fprintf(to, "%llu", (unsigned long long)job->node);
	} else {
		fputc('%', to);
	}
}

int run_job_expand(const struct run_job *job, const char *pattern, char **ret)
{
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);
	int r = 0;

	if (!to)
		return -ENOMEM;
	for (const char *p = pattern; r == 0 && *p; p++) {
		if (*p != '%')
			fputc(*p, to);
		else if (p[1] && strchr("jhnu%", p[1]))
			print_letter(to, job, *++p);
		else
			r = -EINVAL;
	}
	if (fclose(to) != 0 && r == 0)
		r = -ENOMEM;
	if (r < 0)
		free(text);
	else
		*ret = text;
	return r;
}
