#include "fs/collect.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

struct collect {
	struct engine *e; /* constant */

	struct task task;
	struct gc_conf conf GUARDED_BY(task.lock); /* constant while it runs */
	struct gc_report report GUARDED_BY(task.lock);
	uint64_t garbage, garbage_ns GUARDED_BY(task.lock);
};

static bool step(void *userdata, const struct gc_report *so_far)
{
	struct collect *c = userdata;
	bool go_on;

	mutex_lock(&c->task.lock);
	c->report = *so_far;
	go_on = !c->task.stop;
	mutex_unlock(&c->task.lock);
	return go_on;
}

static int work(void *userdata)
{
	struct collect *c = userdata;
	struct gc_report report;
	int r;

	r = engine_gc(c->e, &c->conf, &report);
	if (r < 0)
		return r;
	mutex_lock(&c->task.lock);
	c->report = report;
	if (report.complete) {
		c->garbage = report.dead_bytes - MIN(report.dead_bytes, report.freed_bytes);
		c->garbage_ns = monotonic_ns();
	}
	mutex_unlock(&c->task.lock);
	return 0;
}

int collect_new(struct engine *e, struct collect **ret)
{
	struct collect *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->e = e;
	task_init(&c->task, "ckptfs-gc", work, c);
	*ret = c;
	return 0;
}

static int start_locked(struct collect *c, const struct gc_conf *conf) REQUIRES(c->task.lock)
{
	if (!task_is_idle(&c->task))
		return -EBUSY;
	c->conf = *conf;
	c->conf.step = step;
	c->conf.userdata = c;
	c->report = (struct gc_report){ 0 };
	return task_start(&c->task);
}

int collect_start(struct collect *c, const struct gc_conf *conf)
{
	int r;

	mutex_lock(&c->task.lock);
	r = start_locked(c, conf);
	mutex_unlock(&c->task.lock);
	return r;
}

void collect_stop(struct collect *c)
{
	task_stop(&c->task);
}

void collect_status(struct collect *c, struct collect_status *ret)
{
	mutex_lock(&c->task.lock);
	*ret = (struct collect_status){ c->task.status, c->report, c->garbage, c->garbage_ns };
	mutex_unlock(&c->task.lock);
}

void collect_free(struct collect *c)
{
	if (!c)
		return;
	task_release(&c->task);
	free(c);
}
