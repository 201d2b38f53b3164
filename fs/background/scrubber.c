/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/scrubber.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HITS_MAX 1000u /* kept for scrubber_hit(); further ones are only counted */

struct scrubber {
	struct engine *e; /* constant */

	struct task task;
	struct scrub_conf conf GUARDED_BY(task.lock); /* constant while it runs */
	struct scrub_report report GUARDED_BY(task.lock);
	struct scrubber_hit hits[HITS_MAX] GUARDED_BY(task.lock);
	uint64_t nr_hits GUARDED_BY(task.lock);
};

static bool report_progress(void *userdata, const struct scrub_report *so_far)
{
	struct scrubber *s = userdata;

	mutex_lock(&s->task.lock);
	s->report = *so_far;
	mutex_unlock(&s->task.lock);
	return task_goes_on(&s->task);
}

static void on_hit(void *userdata, const char *path, uint64_t ino, uint64_t off, uint64_t len)
{
	struct scrubber *s = userdata;

	mutex_lock(&s->task.lock);
	if (s->nr_hits < HITS_MAX)
		s->hits[s->nr_hits++] = (struct scrubber_hit){ ino, off, len, path ? strdup(path) : NULL };
	mutex_unlock(&s->task.lock);
}

static int run_scrub(void *userdata)
{
	struct scrubber *s = userdata;
	struct scrub_report report;
	int r;

	r = engine_scrub(s->e, &s->conf, &report);
	if (r < 0)
		return r;
	mutex_lock(&s->task.lock);
	s->report = report;
	mutex_unlock(&s->task.lock);
	return 0;
}

int scrubber_new(struct engine *e, struct scrubber **ret)
{
	struct scrubber *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->e = e;
	task_init(&s->task, "ckptfs-scrub", run_scrub, s);
	*ret = s;
	return 0;
}

static void forget_hits(struct scrubber *s)
{
	while (s->nr_hits > 0)
		free(s->hits[--s->nr_hits].path);
}

static int start_locked(struct scrubber *s, const struct scrub_conf *conf, uint64_t holder) REQUIRES(s->task.lock)
{
	if (!task_is_idle(&s->task))
		return -EBUSY;
	s->conf = *conf;
	s->conf.step = report_progress;
	s->conf.hit = on_hit;
	s->conf.userdata = s;
	s->report = (struct scrub_report){ 0 };
	forget_hits(s);
	return task_start(&s->task, holder);
}

int scrubber_start(struct scrubber *s, const struct scrub_conf *conf, uint64_t holder)
{
	int r;

	mutex_lock(&s->task.lock);
	r = start_locked(s, conf, holder);
	mutex_unlock(&s->task.lock);
	return r;
}

void scrubber_release_holder(struct scrubber *s, uint64_t holder)
{
	task_release_holder(&s->task, holder);
}

void scrubber_stop(struct scrubber *s)
{
	task_stop(&s->task);
}

void scrubber_status(struct scrubber *s, struct scrubber_status *ret)
{
	mutex_lock(&s->task.lock);
	*ret = (struct scrubber_status){ s->task.status, s->report, s->nr_hits };
	mutex_unlock(&s->task.lock);
}

int scrubber_hit(struct scrubber *s, uint64_t run, uint64_t i, struct scrubber_hit *ret)
{
	int r = -ENOENT;

	mutex_lock(&s->task.lock);
	if (run == s->task.status.run && i < s->nr_hits) {
		*ret = s->hits[i];
		if (ret->path)
			ret->path = strdup(ret->path);
		r = s->hits[i].path && !ret->path ? -ENOMEM : 0;
	}
	mutex_unlock(&s->task.lock);
	return r;
}

void scrubber_free(struct scrubber *s)
{
	if (!s)
		return;
	task_release(&s->task);
	forget_hits(s);
	free(s);
}
