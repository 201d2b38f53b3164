#include "fs/control/inquiry.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/mutex.h"
#include "base/util.h"
#include "fs/places.h"

#define INQUIRIES_MAX 16u
static const struct places places = { .all = INQUIRIES_MAX, .reserved = 4, .per_user = 4 };
#define NAMES_MAX (1u << 20) /* directories and single names, 16 bytes each */
#define PATIENCE_NS 30000000000u /* without a request from the client */

struct inquiry {
	struct inquiries *all;
	uint64_t number; /* 0: not in use */
	uint32_t uid; /* of the user that began it */
	uint64_t asked_ns; /* last request from the client */
	struct exclusive_name *names; /* owned by its thread once started */
	size_t nr, size;
	struct fp_domain owner; /* FP_OF_ALL: the names are used */
	struct inquiry_reader *reader; /* NULL: reads everything */
	bool has_thread; /* to be joined */
	bool stop;
	pthread_t thread;
	struct inquiry_status status;
};

struct inquiries {
	struct engine *e; /* constant */

	struct mutex lock; /* leaf */
	struct inquiry v[INQUIRIES_MAX] GUARDED_BY(lock);
};

int inquiries_new(struct engine *e, struct inquiries **ret)
{
	struct inquiries *q = calloc(1, sizeof(*q));

	if (!q)
		return -ENOMEM;
	q->e = e;
	mutex_init(&q->lock);
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		q->v[i].all = q;
	*ret = q;
	return 0;
}

/* It must not be running. */
static void forget(struct inquiry *i)
{
	struct inquiries *all = i->all;

	if (i->has_thread)
		pthread_join(i->thread, NULL); /* it has ended, or is about to end */
	free(i->names);
	if (i->reader)
		i->reader->free(i->reader);
	*i = (struct inquiry){ .all = all };
}

void inquiries_free(struct inquiries *q)
{
	if (!q)
		return;
	mutex_lock(&q->lock);
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		q->v[i].stop = true;
	mutex_unlock(&q->lock);
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		forget(&q->v[i]);
	mutex_release(&q->lock);
	free(q);
}

static bool is_forgotten(const struct inquiry *i)
{
	return i->stop || monotonic_ns() - i->asked_ns > PATIENCE_NS;
}

static bool step(void *userdata, const struct exclusive_report *so_far)
{
	struct inquiry *i = userdata;
	bool go_on;

	mutex_lock(&i->all->lock);
	i->status.report = *so_far;
	go_on = !is_forgotten(i);
	mutex_unlock(&i->all->lock);
	return go_on;
}

static int check(void *userdata, uint64_t ino)
{
	struct inquiry *i = userdata;

	return i->reader ? i->reader->check(i->reader, ino) : 0;
}

static void *run(void *arg)
{
	struct inquiry *i = arg;
	struct exclusive_conf conf = {
		.names = i->names, .nr_names = i->nr, .owner = i->owner, .check = check, .step = step, .userdata = i
	};
	struct exclusive_report report;
	int r;

	pthread_setname_np(pthread_self(), "ckptfs-inquiry");
	r = engine_exclusive(i->all->e, &conf, &report);
	mutex_lock(&i->all->lock);
	if (r == 0)
		i->status.report = report;
	i->status.error = r;
	i->status.running = false;
	mutex_unlock(&i->all->lock);
	return NULL;
}

/* NULL: none. Restarts the timeout. */
static struct inquiry *find_inquiry(struct inquiries *q, uint64_t number) REQUIRES(q->lock)
{
	for (unsigned i = 0; i < INQUIRIES_MAX; i++)
		if (number != 0 && q->v[i].number == number) {
			q->v[i].asked_ns = monotonic_ns();
			return &q->v[i];
		}
	return NULL;
}

/* NULL: no room for this user. */
static struct inquiry *find_free(struct inquiries *q, uint32_t uid, bool is_root) REQUIRES(q->lock)
{
	struct inquiry *found = NULL;
	unsigned nr = 0, nr_own = 0;

	for (unsigned i = 0; i < INQUIRIES_MAX; i++) {
		struct inquiry *at = &q->v[i];

		if (at->number != 0 && !at->status.running && is_forgotten(at))
			forget(at);
		if (at->number == 0) {
			found = at;
			continue;
		}
		nr++;
		nr_own += at->uid == uid;
	}
	return places_has_room(&places, nr, nr_own, is_root) ? found : NULL;
}

int inquiry_begin(struct inquiries *q, uint32_t uid, bool is_root, uint64_t *ret)
{
	struct inquiry *i;
	uint64_t number;

	do
		if (getrandom(&number, sizeof(number), 0) != sizeof(number))
			return -EIO;
	while (number == 0);
	mutex_lock(&q->lock);
	i = find_free(q, uid, is_root);
	if (i) {
		i->number = *ret = number;
		i->uid = uid;
		i->asked_ns = monotonic_ns();
	}
	mutex_unlock(&q->lock);
	return i ? 0 : -EBUSY;
}

static int add_locked(struct inquiry *i, struct exclusive_name name)
{
	if (!i || i->has_thread)
		return -ESTALE;
	if (i->owner.kind != FP_OF_ALL)
		return -EINVAL;
	if (i->nr == NAMES_MAX)
		return -E2BIG;
	if (i->nr == i->size) {
		size_t size = MAX(2 * i->size, (size_t)64);
		struct exclusive_name *more = reallocarray(i->names, size, sizeof(*more));

		if (!more)
			return -ENOMEM;
		i->names = more;
		i->size = size;
	}
	i->names[i->nr++] = name;
	return 0;
}

int inquiry_add(struct inquiries *q, uint64_t number, struct exclusive_name name)
{
	int r;

	mutex_lock(&q->lock);
	r = add_locked(find_inquiry(q, number), name);
	mutex_unlock(&q->lock);
	return r;
}

int inquiry_add_owner(struct inquiries *q, uint64_t number, struct fp_domain owner)
{
	struct inquiry *i;
	int r = 0;

	mutex_lock(&q->lock);
	i = find_inquiry(q, number);
	if (!i || i->has_thread)
		r = -ESTALE;
	else if (i->nr > 0 || i->owner.kind != FP_OF_ALL)
		r = -EINVAL;
	else
		i->owner = owner;
	mutex_unlock(&q->lock);
	return r;
}

static int start_locked(struct inquiry *i, struct inquiry_reader *reader)
{
	int r;

	if (!i || i->has_thread)
		return -ESTALE;
	i->status.running = true;
	i->reader = reader;
	/* the new thread takes the lock only later, and the caller releases it soon */
	r = pthread_create(&i->thread, NULL, run, i);
	if (r != 0) {
		i->status.running = false;
		i->reader = NULL;
		return -r;
	}
	i->has_thread = true;
	return 0;
}

int inquiry_start(struct inquiries *q, uint64_t number, struct inquiry_reader *reader)
{
	int r;

	mutex_lock(&q->lock);
	r = start_locked(find_inquiry(q, number), reader);
	mutex_unlock(&q->lock);
	return r;
}

int inquiry_status(struct inquiries *q, uint64_t number, struct inquiry_status *ret)
{
	struct inquiry *i;

	mutex_lock(&q->lock);
	i = find_inquiry(q, number);
	if (i)
		*ret = i->status;
	mutex_unlock(&q->lock);
	return i ? 0 : -ESTALE;
}

int inquiry_end(struct inquiries *q, uint64_t number)
{
	struct inquiry *i;

	mutex_lock(&q->lock);
	i = find_inquiry(q, number);
	if (i && i->status.running)
		i->stop = true; /* its slot is freed after the thread has seen this */
	else if (i)
		forget(i);
	mutex_unlock(&q->lock);
	return i ? 0 : -ESTALE;
}
