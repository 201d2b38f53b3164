#include "fs/scrubber.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mutex.h"
#include "base/util.h"

#define HITS_MAX 1000u /* kept for whoever asks; more are counted only */

struct scrubber {
	struct engine *e; /* constant */

	struct mutex lock; /* leaf */
	struct scrubber_status status GUARDED_BY(lock);
	struct scrubber_hit hits[HITS_MAX] GUARDED_BY(lock);
	struct scrub_conf conf GUARDED_BY(lock); /* constant while it runs */
	bool stop GUARDED_BY(lock);
	bool has_thread GUARDED_BY(lock); /* to be joined */
	pthread_t thread GUARDED_BY(lock);
};

int scrubber_new(struct engine *e, struct scrubber **ret)
{
	struct scrubber *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->e = e;
	mutex_init(&s->lock);
	*ret = s;
	return 0;
}

static bool step(void *userdata, const struct scrub_report *so_far)
{
	struct scrubber *s = userdata;
	bool go_on;

	mutex_lock(&s->lock);
	s->status.report = *so_far;
	go_on = !s->stop;
	mutex_unlock(&s->lock);
	return go_on;
}

static void on_hit(void *userdata, const char *path, uint64_t ino, uint64_t off, uint64_t len)
{
	struct scrubber *s = userdata;

	mutex_lock(&s->lock);
	if (s->status.nr_hits < HITS_MAX)
		s->hits[s->status.nr_hits++] = (struct scrubber_hit){ ino, off, len, path ? strdup(path) : NULL };
	mutex_unlock(&s->lock);
}

static void forget_hits(struct scrubber *s) REQUIRES(s->lock)
{
	while (s->status.nr_hits > 0)
		free(s->hits[--s->status.nr_hits].path);
}

static void *run(void *arg)
{
	struct scrubber *s = arg;
	struct scrub_report report;
	struct scrub_conf conf;
	int r;

	pthread_setname_np(pthread_self(), "ckptfs-scrub");
	mutex_lock(&s->lock);
	conf = s->conf;
	mutex_unlock(&s->lock);
	r = engine_scrub(s->e, &conf, &report);
	mutex_lock(&s->lock);
	if (r == 0)
		s->status.report = report;
	s->status.error = r;
	s->status.running = false;
	mutex_unlock(&s->lock);
	return NULL;
}

static int start_locked(struct scrubber *s, const struct scrub_conf *conf) REQUIRES(s->lock)
{
	int r;

	if (s->status.running)
		return -EBUSY;
	if (s->has_thread)
		pthread_join(s->thread, NULL); /* it has ended */
	s->has_thread = false;
	s->conf = *conf;
	s->conf.step = step;
	s->conf.hit = on_hit;
	s->conf.userdata = s;
	s->stop = false;
	forget_hits(s);
	s->status.run++;
	s->status.running = true;
	s->status.error = 0;
	s->status.report = (struct scrub_report){ 0 };
	r = pthread_create(&s->thread, NULL, run, s);
	s->has_thread = r == 0;
	s->status.running = r == 0;
	return -r;
}

int scrubber_start(struct scrubber *s, const struct scrub_conf *conf)
{
	int r;

	mutex_lock(&s->lock);
	r = start_locked(s, conf);
	mutex_unlock(&s->lock);
	return r;
}

void scrubber_stop(struct scrubber *s)
{
	mutex_lock(&s->lock);
	s->stop = true;
	mutex_unlock(&s->lock);
}

void scrubber_status(struct scrubber *s, struct scrubber_status *ret)
{
	mutex_lock(&s->lock);
	*ret = s->status;
	mutex_unlock(&s->lock);
}

int scrubber_hit(struct scrubber *s, uint64_t run, uint64_t i, struct scrubber_hit *ret)
{
	int r = -ENOENT;

	mutex_lock(&s->lock);
	if (run == s->status.run && i < s->status.nr_hits) {
		*ret = s->hits[i];
		if (ret->path)
			ret->path = strdup(ret->path);
		r = s->hits[i].path && !ret->path ? -ENOMEM : 0;
	}
	mutex_unlock(&s->lock);
	return r;
}

void scrubber_free(struct scrubber *s)
{
	bool has_thread;

	if (!s)
		return;
	scrubber_stop(s);
	mutex_lock(&s->lock);
	has_thread = s->has_thread;
	mutex_unlock(&s->lock);
	if (has_thread)
		pthread_join(s->thread, NULL);
	mutex_lock(&s->lock);
	forget_hits(s);
	mutex_unlock(&s->lock);
	mutex_release(&s->lock);
	free(s);
}
