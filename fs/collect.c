#include "fs/collect.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/mutex.h"
#include "base/util.h"

struct collect {
	struct engine *e; /* constant */

	struct mutex lock; /* leaf */
	struct collect_status status GUARDED_BY(lock);
	struct gc_conf conf GUARDED_BY(lock); /* constant while it runs */
	bool stop GUARDED_BY(lock);
	bool has_thread GUARDED_BY(lock); /* to be joined */
	pthread_t thread GUARDED_BY(lock);
};

int collect_new(struct engine *e, struct collect **ret)
{
	struct collect *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->e = e;
	mutex_init(&c->lock);
	*ret = c;
	return 0;
}

static bool step(void *userdata, const struct gc_report *so_far)
{
	struct collect *c = userdata;
	bool go_on;

	mutex_lock(&c->lock);
	c->status.report = *so_far;
	go_on = !c->stop;
	mutex_unlock(&c->lock);
	return go_on;
}

static void *run(void *arg)
{
	struct collect *c = arg;
	struct gc_report report;
	struct gc_conf conf;
	int r;

	pthread_setname_np(pthread_self(), "ckptfs-gc");
	mutex_lock(&c->lock);
	conf = c->conf;
	mutex_unlock(&c->lock);
	r = engine_gc(c->e, &conf, &report);
	mutex_lock(&c->lock);
	if (r == 0)
		c->status.report = report;
	if (r == 0 && report.complete) {
		c->status.garbage = report.dead_bytes - MIN(report.dead_bytes, report.freed_bytes);
		c->status.garbage_ns = monotonic_ns();
	}
	c->status.error = r;
	c->status.running = false;
	mutex_unlock(&c->lock);
	return NULL;
}

static int start_locked(struct collect *c, const struct gc_conf *conf) REQUIRES(c->lock)
{
	int r;

	if (c->status.running)
		return -EBUSY;
	if (c->has_thread)
		pthread_join(c->thread, NULL); /* it has ended */
	c->has_thread = false;
	c->conf = *conf;
	c->conf.step = step;
	c->conf.userdata = c;
	c->stop = false;
	c->status.run++;
	c->status.running = true;
	c->status.error = 0;
	c->status.report = (struct gc_report){ 0 };
	r = pthread_create(&c->thread, NULL, run, c);
	c->has_thread = r == 0;
	c->status.running = r == 0;
	return -r;
}

int collect_start(struct collect *c, const struct gc_conf *conf)
{
	int r;

	mutex_lock(&c->lock);
	r = start_locked(c, conf);
	mutex_unlock(&c->lock);
	return r;
}

void collect_stop(struct collect *c)
{
	mutex_lock(&c->lock);
	c->stop = true;
	mutex_unlock(&c->lock);
}

void collect_status(struct collect *c, struct collect_status *ret)
{
	mutex_lock(&c->lock);
	*ret = c->status;
	mutex_unlock(&c->lock);
}

void collect_free(struct collect *c)
{
	bool has_thread;

	if (!c)
		return;
	collect_stop(c);
	mutex_lock(&c->lock);
	has_thread = c->has_thread;
	mutex_unlock(&c->lock);
	if (has_thread)
		pthread_join(c->thread, NULL);
	mutex_release(&c->lock);
	free(c);
}
