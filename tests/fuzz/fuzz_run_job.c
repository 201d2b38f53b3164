/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The environment of a job, "NAME=value" lines, and behind the first empty line a pattern for names: nothing but 0 or a
 * refusal, and then what it promises. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "tools/run/run_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *lines; /* each ends with NUL, the last one with two */

static const char *env(const char *name)
{
	size_t len = strlen(name);

	if (strcmp(name, "PBS_NODEFILE") == 0)
		return NULL; /* any file of this machine */
	for (const char *p = lines; *p; p += strlen(p) + 1)
		if (strncmp(p, name, len) == 0 && p[len] == '=')
			return p + len + 1;
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(freep) char *text = calloc(1, size + 3);
	_cleanup_(freep) char *name = NULL;
	const char *what = NULL;
	struct run_job job = { .nodes = 1 };
	char *end, *pattern;
	uint64_t left;
	int r;

	assert(text);
	memcpy(text, data, size);
	end = strstr(text, "\n\n");
	pattern = end ? end + 2 : text + strlen(text);
	if (end)
		end[0] = end[1] = '\0';
	lines = text;
	for (char *p = text; (p = strchr(p, '\n')); p++)
		*p = '\0';
	r = run_job_read(env, &job, &what);
	assert(r == 0 || (r == -EINVAL && what && env(what)));
	assert(job.nodes >= 1 && !strchr(job.id, '/') && (r < 0 || (job.id[0] && job.id[0] != '.')));
	left = 0;
	r = run_job_parse_left(pattern, &left);
	assert(r == 0 || (r == -EINVAL && left == 0));
	r = run_job_expand(&job, pattern, &name);
	assert(r == 0 ? name != NULL : r == -EINVAL);
	return 0;
}
