#include "tests/crash/explore.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "tests/crash/record.h"
#include "tests/crash/states.h"

#define SEEN_SLOTS ((size_t)1 << 20) /* far more than states of one log, so probes are short */
#define PASS_VARIANTS 8		     /* drawn per point in each pass after the first */
#define MAX_PASSES 1000		     /* a log that has no more states to give */
#define HANG_S 60
#define FURTHER_EVERY 8
#define NESTED_EVERY 200
#define NESTED_DRAWN 3 /* variants per point of a recovery, besides the first four */

/* Shared by all processes. */
struct shared {
	_Atomic uint64_t next_point; /* over all passes: pass * (points + 1) + point */
	_Atomic uint64_t nr_checked, nr_same, nr_further, nr_nested;
	_Atomic bool stop;
	struct {
		_Atomic uint64_t point, variant, since_ns;
		_Atomic bool nested; /* the log is the worker's own: nested.N */
	} worker[EXPLORE_JOBS_MAX];
	_Atomic uint64_t seen[SEEN_SLOTS];
};

struct worker {
	const struct explore *x;
	struct shared *sh;
	int me;
	char dir[128], why[128], nested_log[128];
};

/* true: was not there, and now is. */
static bool remember(struct shared *sh, uint64_t hash)
{
	hash |= hash == 0;
	for (size_t i = hash % SEEN_SLOTS;; i = (i + 1) % SEEN_SLOTS) {
		uint64_t empty = 0;

		if (atomic_compare_exchange_strong(&sh->seen[i], &empty, hash))
			return true;
		if (empty == hash)
			return false;
	}
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int explore_remove(const char *dir)
{
	return nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT ? -errno : 0;
}

int explore_empty_dir(const char *dir)
{
	int r = explore_remove(dir);

	return r == 0 && mkdir(dir, 0700) < 0 ? -errno : r;
}

static uint64_t state_key(const struct state *st, const uint64_t acked[SESSION_THREADS])
{
	return (state_hash(st) ^ acked[0] * 0x9e3779b97f4a7c15) * 0xd1342543de82ef95 ^ acked[1];
}

/* The state of the walker's point in `dir`, opened and compared. */
static bool store_and_check(const struct explore *x, const struct state *st, const uint64_t acked[SESSION_THREADS],
			    bool further, const char *dir, FILE *to)
{
	int r = explore_empty_dir(dir);

	if (r == 0)
		r = state_store(st, dir);
	if (r < 0) {
		fprintf(to, "cannot store the state in %s: %s\n", dir, strerror(-r));
		return false;
	}
	if (session_check(x->session, dir, acked, further, to))
		return true;
	fprintf(to, "what was not synced:\n");
	state_describe(st, to);
	return false;
}

/* One variant at a point: made, and checked unless seen before. *ret_key 0: seen. */
static bool check_variant(struct worker *w, struct states *s, size_t point, unsigned variant, bool nested, uint64_t *ret_key)
{
	_cleanup_(state_freep) struct state *st = NULL;
	struct shared *sh = w->sh;
	uint64_t acked[SESSION_THREADS], key;
	bool good = false;
	FILE *to;

	atomic_store(&sh->worker[w->me].point, point);
	atomic_store(&sh->worker[w->me].variant, variant);
	atomic_store(&sh->worker[w->me].nested, nested);
	atomic_store(&sh->worker[w->me].since_ns, monotonic_ns());
	to = fopen(w->why, "we");
	if (!to)
		return false;
	log_to_file(w->why);
	if (states_make(s, w->x->seed, variant, &st) == 0) {
		states_mark(s, &acked[0], &acked[1]);
		key = state_key(st, acked);
		*ret_key = 0;
		good = true;
		if (remember(sh, key)) {
			bool further = key % FURTHER_EVERY == 0 && !nested;

			good = store_and_check(w->x, st, acked, further, w->dir, to);
			*ret_key = key;
			atomic_fetch_add(&sh->nr_further, further);
			atomic_fetch_add(&sh->nr_checked, 1);
			atomic_fetch_add(&sh->nr_nested, nested);
		} else {
			atomic_fetch_add(&sh->nr_same, 1);
		}
	}
	fclose(to);
	if (atomic_load(&sh->nr_checked) >= w->x->nr_states)
		atomic_store(&sh->stop, true);
	return good;
}

/* All points of a recovery that was recorded. */
static bool check_recovery(struct worker *w, const struct oplog *log)
{
	_cleanup_(states_freep) struct states *s = NULL;
	size_t first = 0;

	if (states_new(log, "index", &s) < 0)
		return false;
	while (first < log->nr && log->ops[first].kind != OP_MARK)
		first++; /* up to here it is the state itself */
	for (size_t point = first + 1; point <= log->nr && !atomic_load(&w->sh->stop); point++) {
		if (states_seek(s, point) < 0)
			return false;
		for (unsigned i = 0; i < 4 + NESTED_DRAWN; i++) {
			uint64_t key;

			if (!check_variant(w, s, point, i < 4 ? i : STATES_FIXED + i, true, &key))
				return false;
		}
	}
	return true;
}

/* Crash in the recovery from a crash: record what opening and closing this state does, then crash in that. */
static bool check_nested(struct worker *w, struct states *s, unsigned variant)
{
	_cleanup_(oplog_release) struct oplog log = OPLOG_EMPTY;
	_cleanup_(state_freep) struct state *st = NULL;
	uint64_t acked[SESSION_THREADS];
	int r;

	states_mark(s, &acked[0], &acked[1]);
	r = states_make(s, w->x->seed, variant, &st);
	if (r == 0)
		r = explore_empty_dir(w->dir);
	if (r == 0)
		r = state_store(st, w->dir);
	if (r == 0)
		r = record_start(w->dir);
	if (r < 0)
		return false;
	record_mark(acked[0], acked[1]);
	if (!session_check(w->x->session, w->dir, acked, false, stdout))
		return false;
	r = record_stop(&log);
	if (r == 0)
		r = oplog_save(&log, w->nested_log);
	return r == 0 && check_recovery(w, &log);
}

/* The numbers of variants of a pass: first the fixed ones, then drawn ones. */
static unsigned pass_first(uint64_t pass)
{
	return pass == 0 ? 0 : STATES_FIXED + (unsigned)(pass - 1) * PASS_VARIANTS;
}

static bool work_point(struct worker *w, struct states *s, uint64_t pass, size_t point)
{
	unsigned end = states_nr_pending(s) == 0 ? pass_first(pass) + (pass == 0) : pass_first(pass + 1);

	for (unsigned v = pass_first(pass); v < end && !atomic_load(&w->sh->stop); v++) {
		uint64_t key = 0;

		if (!check_variant(w, s, point, v, false, &key))
			return false;
		if (key && key % NESTED_EVERY == 0 && !check_nested(w, s, v))
			return false;
	}
	return true;
}

static int work(const struct explore *x, struct shared *sh, int me)
{
	_cleanup_(states_freep) struct states *s = NULL;
	struct worker w = { .x = x, .sh = sh, .me = me };
	int r;

	snprintf(w.dir, sizeof(w.dir), "%s/w%d", x->scratch, me);
	snprintf(w.why, sizeof(w.why), "%s/why.%d", x->scratch, me);
	snprintf(w.nested_log, sizeof(w.nested_log), "%s/nested.%d", x->scratch, me);
	record_set_sparse(true);
	r = states_new(x->log, "index", &s);
	while (r == 0 && !atomic_load(&sh->stop)) {
		uint64_t next = atomic_fetch_add(&sh->next_point, 1), points = x->log->nr + 1;

		if (next / points > MAX_PASSES)
			break;
		r = states_seek(s, next % points);
		if (r == 0 && !work_point(&w, s, next / points, next % points))
			return 1;
	}
	return r == 0 ? 0 : 1;
}

static void report_failure(const struct explore *x, struct shared *sh, int me, const char *how)
{
	char from[256], kept[256], command[600];
	size_t point = sh->worker[me].point;
	unsigned variant = (unsigned)sh->worker[me].variant;

	snprintf(from, sizeof(from), "%s", x->log_path);
	if (sh->worker[me].nested)
		snprintf(from, sizeof(from), "%s/nested.%d", x->scratch, me);
	snprintf(kept, sizeof(kept), "%s/crash-%" PRIu64 ".%d.log", x->keep, x->seed, getpid());
	snprintf(command, sizeof(command), "cp %s %s", from, kept);
	if (system(command) != 0)
		printf("the log could not be kept\n");
	printf("FAILED (%s): state %zu.%u%s\n", how, point, variant, sh->worker[me].nested ? " of a recovery" : "");
	fflush(stdout);
	snprintf(command, sizeof(command), "cat %s/why.%d", x->scratch, me);
	if (system(command) != 0)
		printf("no reason given\n");
	printf("again: crash --seed %" PRIu64 " --ops %zu --log %s --state %zu.%u\n", x->seed, x->nr_ops, kept, point, variant);
	fflush(stdout);
}

/* Look after one worker. false: it failed. *pid is 0 when it is gone. */
static bool look_after(const struct explore *x, struct shared *sh, int me, pid_t *pid, bool tell)
{
	uint64_t since = sh->worker[me].since_ns;
	int status;

	if (waitpid(*pid, &status, WNOHANG) == *pid) {
		*pid = 0;
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			return true;
		if (tell)
			report_failure(x, sh, me, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "wrong");
		return false;
	}
	if (since && monotonic_ns() - since > HANG_S * UINT64_C(1000000000)) {
		if (tell)
			report_failure(x, sh, me, "hangs");
		kill(*pid, SIGKILL);
		waitpid(*pid, &status, 0);
		*pid = 0;
		return false;
	}
	return true;
}

bool explore_all(const struct explore *x, struct explore_result *ret)
{
	struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[EXPLORE_JOBS_MAX];
	bool good = true;
	int left = x->jobs;

	if (sh == MAP_FAILED)
		return false;
	fflush(stdout);
	for (int i = 0; i < x->jobs; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(work(x, sh, i));
	}
	while (left > 0) {
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
		for (int i = 0; i < x->jobs; i++) {
			if (pids[i] == 0)
				continue;
			if (!look_after(x, sh, i, &pids[i], good)) {
				good = false;
				atomic_store(&sh->stop, true);
			}
			left -= pids[i] == 0;
		}
	}
	*ret = (struct explore_result){ sh->nr_checked, sh->nr_further, sh->nr_nested, sh->nr_same };
	munmap(sh, sizeof(*sh));
	return good;
}

bool explore_one(const struct explore *x, size_t point, unsigned variant)
{
	_cleanup_(states_freep) struct states *s = NULL;
	_cleanup_(state_freep) struct state *st = NULL;
	uint64_t acked[SESSION_THREADS];
	char dir[128];
	bool good;

	snprintf(dir, sizeof(dir), "%s/w0", x->scratch);
	log_set_level(LOG_LEVEL_DEBUG);
	if (states_new(x->log, "index", &s) < 0 || states_seek(s, point) < 0 || states_make(s, x->seed, variant, &st) < 0)
		return false;
	states_mark(s, &acked[0], &acked[1]);
	good = store_and_check(x, st, acked, true, dir, stdout);
	printf("state %zu.%u: %s\n", point, variant, good ? "right" : "WRONG");
	return good;
}
