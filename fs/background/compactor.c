/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "fs/background/compactor.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"

#define PATIENCE_NS UINT64_C(30000000000)

struct compactor {
	struct engine *e; /* constant */

	struct task task;
	struct compact_conf conf GUARDED_BY(task.lock); /* constant while it runs, as is the plan */
	struct compact_plan plan GUARDED_BY(task.lock);
	uint64_t number GUARDED_BY(task.lock); /* of the plan; 0: there was none */
	bool filling GUARDED_BY(task.lock); /* not started yet */
	uint64_t touched_ns GUARDED_BY(task.lock);
	struct compact_report report GUARDED_BY(task.lock);
	struct compact_result *result GUARDED_BY(task.lock); /* owned by the thread while it runs */
};

static bool report_progress(void *userdata, const struct compact_report *so_far)
{
	struct compactor *c = userdata;

	mutex_lock(&c->task.lock);
	c->report = *so_far;
	mutex_unlock(&c->task.lock);
	return task_goes_on(&c->task);
}

static int run_recoding(void *userdata)
{
	struct compactor *c = userdata;
	struct compact_report report;
	int r = engine_compact(c->e, &c->conf, &report);

	if (r < 0)
		return r;
	mutex_lock(&c->task.lock);
	c->report = report;
	mutex_unlock(&c->task.lock);
	return 0;
}

int compactor_new(struct engine *e, struct compactor **ret)
{
	struct compactor *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->e = e;
	task_init(&c->task, "ckptfs-compact", run_recoding, c);
	*ret = c;
	return 0;
}

static void forget(struct compactor *c)
{
	compact_plan_release(&c->plan);
	free(TAKE(c->result));
}

void compactor_free(struct compactor *c)
{
	if (!c)
		return;
	task_release(&c->task);
	forget(c);
	free(c);
}

static int begin_locked(struct compactor *c, uint64_t holder, uint64_t *ret) REQUIRES(c->task.lock)
{
	uint64_t now = monotonic_ns();

	if (!task_is_idle(&c->task) || (c->filling && now - c->touched_ns < PATIENCE_NS))
		return -EBUSY;
	forget(c);
	c->report = (struct compact_report){ 0 };
	c->filling = true;
	c->touched_ns = now;
	atomic_store(&c->task.holder, holder);
	*ret = ++c->number;
	return 0;
}

int compactor_begin(struct compactor *c, uint64_t holder, uint64_t *ret)
{
	int r;

	mutex_lock(&c->task.lock);
	r = begin_locked(c, holder, ret);
	mutex_unlock(&c->task.lock);
	return r;
}

/* Is this the plan being filled? If so, restart its timeout. */
static bool touch(struct compactor *c, uint64_t plan) REQUIRES(c->task.lock)
{
	if (!c->filling || c->number != plan)
		return false;
	c->touched_ns = monotonic_ns();
	return true;
}

int compactor_add_file(struct compactor *c, uint64_t plan, uint64_t ino, uint32_t *ret)
{
	int r;

	mutex_lock(&c->task.lock);
	r = touch(c, plan) ? compact_plan_add_file(&c->plan, ino, ret) : -ESTALE;
	mutex_unlock(&c->task.lock);
	return r;
}

int compactor_add(struct compactor *c, const struct ckptfs_compact_add *a)
{
	int r;

	mutex_lock(&c->task.lock);
	r = touch(c, a->plan) ? compact_plan_add(&c->plan, a) : -ESTALE;
	mutex_unlock(&c->task.lock);
	return r;
}

static int start_locked(struct compactor *c, uint64_t plan, const struct compact_conf *conf) REQUIRES(c->task.lock)
{
	if (!touch(c, plan))
		return -ESTALE;
	c->result = calloc(MAX(c->plan.nr_variables, (size_t)1), sizeof(*c->result));
	if (!c->result)
		return -ENOMEM;
	compact_plan_finish(&c->plan);
	c->conf = *conf;
	c->conf.inos = c->plan.inos;
	c->conf.variable = c->plan.variable;
	c->conf.nr_variables = c->plan.nr_variables;
	c->conf.result = c->result;
	c->conf.step = report_progress;
	c->conf.userdata = c;
	c->filling = false;
	return task_start(&c->task, atomic_load(&c->task.holder));
}

int compactor_start(struct compactor *c, uint64_t plan, const struct compact_conf *conf)
{
	int r;

	mutex_lock(&c->task.lock);
	r = start_locked(c, plan, conf);
	mutex_unlock(&c->task.lock);
	return r;
}

int compactor_stop(struct compactor *c, uint64_t plan)
{
	int r = 0;

	mutex_lock(&c->task.lock);
	if (c->number == plan) {
		c->task.stop = true;
		c->filling = false;
	} else {
		r = -ESTALE;
	}
	mutex_unlock(&c->task.lock);
	return r;
}

void compactor_release_holder(struct compactor *c, uint64_t holder)
{
	if (!task_release_holder(&c->task, holder))
		return;
	mutex_lock(&c->task.lock);
	if (atomic_load(&c->task.holder) == 0) /* else another plan was begun */
		c->filling = false;
	mutex_unlock(&c->task.lock);
}

bool compactor_is_running(struct compactor *c)
{
	bool running;

	mutex_lock(&c->task.lock);
	running = !task_is_idle(&c->task);
	mutex_unlock(&c->task.lock);
	return running;
}

int compactor_status(struct compactor *c, uint64_t plan, struct compactor_status *ret)
{
	int r = 0;

	mutex_lock(&c->task.lock);
	if (c->number == plan)
		*ret = (struct compactor_status){ c->task.status, c->report };
	else
		r = -ESTALE;
	mutex_unlock(&c->task.lock);
	return r;
}

int compactor_result(struct compactor *c, uint64_t plan, uint64_t variable, struct compact_result *ret)
{
	int r = -ENOENT;

	mutex_lock(&c->task.lock);
	if (c->number == plan && c->result && !c->task.status.running && variable < c->plan.nr_variables) {
		*ret = c->result[variable];
		r = 0;
	}
	mutex_unlock(&c->task.lock);
	return r;
}
