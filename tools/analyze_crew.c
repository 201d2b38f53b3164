#include "tools/analyze_crew.h"

#include <signal.h>

static int work(struct cutting_thread *m, const struct piece *piece)
{
	struct cutting *c = m->cutting;

	switch (piece->kind) {
	case PIECE_BEGIN:
		cutting_begin(c, piece->files, piece->file, &piece->files->file[piece->file].figures[m->number]);
		return 0;
	case PIECE_DATA:
		return cutting_add(c, piece->window, piece->len);
	case PIECE_ZEROS:
		return cutting_add_zeros(c, piece->len);
	case PIECE_END:
		return cutting_end(c);
	default:
		return cutting_finish(c);
	}
}

static void *member_main(void *userdata)
{
	struct cutting_thread *m = userdata;
	struct crew *crew = m->crew;
	struct piece piece;
	uint64_t nr_taken = 0;
	int r = 0;

	do {
		mutex_lock(&crew->lock);
		while (crew->nr_posted == nr_taken)
			cond_wait(&crew->posted, &crew->lock);
		nr_taken = crew->nr_posted;
		piece = crew->piece;
		mutex_unlock(&crew->lock);
		if (r == 0)
			r = work(m, &piece);
		mutex_lock(&crew->lock);
		crew->error = crew->error < 0 ? crew->error : r;
		if (--crew->nr_busy == 0)
			cond_signal(&crew->done);
		mutex_unlock(&crew->lock);
	} while (piece.kind != PIECE_FINISH);
	return NULL;
}

static int wait_done(struct crew *crew) REQUIRES(crew->lock)
{
	while (crew->nr_busy > 0)
		cond_wait(&crew->done, &crew->lock);
	return crew->error;
}

int crew_post(struct crew *crew, struct piece piece)
{
	int r;

	mutex_lock(&crew->lock);
	r = wait_done(crew);
	crew->piece = piece;
	crew->nr_posted++;
	crew->nr_busy = crew->nr;
	cond_broadcast(&crew->posted);
	mutex_unlock(&crew->lock);
	return r;
}

int crew_stop(struct crew *crew)
{
	int r;

	crew_post(crew, (struct piece){ .kind = PIECE_FINISH });
	for (size_t i = 0; i < crew->nr; i++)
		pthread_join(crew->member[i].thread, NULL);
	r = crew->error;
	cond_release(&crew->posted);
	cond_release(&crew->done);
	mutex_release(&crew->lock);
	return r;
}

int crew_start(struct crew *crew, struct cutting *cutting, size_t nr)
{
	sigset_t all, old;
	int r = 0;

	*crew = (struct crew){ 0 };
	mutex_init(&crew->lock);
	cond_init(&crew->posted);
	cond_init(&crew->done);
	sigfillset(&all); /* an interrupt is for the thread that reads */
	pthread_sigmask(SIG_SETMASK, &all, &old);
	for (size_t i = 0; i < nr && r == 0; i++) {
		struct cutting_thread *m = &crew->member[i];

		*m = (struct cutting_thread){ .crew = crew, .cutting = &cutting[i], .number = i };
		r = pthread_create(&m->thread, NULL, member_main, m);
		crew->nr += r == 0;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r) {
		crew_stop(crew);
		return -r;
	}
	return 0;
}
