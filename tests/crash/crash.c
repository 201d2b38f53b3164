/*
 * crash: record a run of the engine, then look at what every crash in it would leave.
 *
 * A child records (it must not be the one that checks: RocksDB's threads do not survive fork). Workers, one per CPU,
 * take crash points in order, make variants of each (states.h), skip trees that any of them has seen, write the rest
 * into a directory in memory, open the engine on it and compare. The run itself is not deterministic, its log is: a
 * failure names the log, which is kept, and the state in it.
 */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
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
#include "tests/crash/session.h"
#include "tests/crash/states.h"

#define MAX_JOBS 64
#define SEEN_SLOTS ((size_t)1 << 23) /* far more than states, so probes are short */
#define PASS_VARIANTS 8		     /* drawn per point in each pass after the first */
#define HANG_S 60
#define FURTHER_EVERY 8		     /* states that are also written to and opened again */

struct options {
	uint64_t seed, nr_states;
	size_t nr_ops;
	int jobs;
	const char *log;
	bool one; /* state */
	size_t point;
	unsigned variant;
	const char *keep;
};

/* Shared by all processes of a run. */
struct shared {
	_Atomic uint64_t next_point; /* over all passes: pass * (points + 1) + point */
	_Atomic uint64_t nr_checked, nr_same, nr_further;
	_Atomic bool stop;
	struct {
		_Atomic uint64_t point, variant, since_ns;
	} worker[MAX_JOBS];
	_Atomic uint64_t seen[SEEN_SLOTS];
};

struct run {
	struct options o;
	struct session session;
	struct oplog log;
	struct shared *shared;
	char scratch[64], log_path[128];
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

static int remove_tree(const char *dir)
{
	return nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT ? -errno : 0;
}

static int empty_dir(const char *dir)
{
	int r = remove_tree(dir);

	return r == 0 && mkdir(dir, 0700) < 0 ? -errno : r;
}

/* The state at the point the walker is at. 1 right, 0 wrong (told to `to`), 2 seen before. */
static int check_one(struct run *run, struct states *s, unsigned variant, const char *dir, FILE *to)
{
	_cleanup_(state_freep) struct state *st = NULL;
	uint64_t acked[SESSION_THREADS], key;
	bool further;
	int r;

	r = states_make(s, run->o.seed, variant, &st);
	if (r < 0) {
		fprintf(to, "cannot make the state: %s\n", strerror(-r));
		return 0;
	}
	states_mark(s, &acked[0], &acked[1]);
	key = (state_hash(st) ^ acked[0] * 0x9e3779b97f4a7c15) * 0xd1342543de82ef95 ^ acked[1];
	if (!run->o.one && !remember(run->shared, key))
		return 2;
	further = run->o.one || key % FURTHER_EVERY == 0;
	atomic_fetch_add(&run->shared->nr_further, further);
	r = empty_dir(dir);
	if (r == 0)
		r = state_store(st, dir);
	if (r < 0) {
		fprintf(to, "cannot store the state in %s: %s\n", dir, strerror(-r));
		return 0;
	}
	if (session_check(&run->session, dir, acked, further, to))
		return 1;
	fprintf(to, "what was not synced:\n");
	state_describe(st, to);
	return 0;
}

/* The numbers of variants of a pass: first the fixed ones, then drawn ones. */
static unsigned pass_first(uint64_t pass)
{
	return pass == 0 ? 0 : STATES_FIXED + (unsigned)(pass - 1) * PASS_VARIANTS;
}

static bool work_point(struct run *run, struct states *s, int me, uint64_t pass, size_t point, const char *dir)
{
	struct shared *sh = run->shared;
	unsigned end = states_nr_pending(s) == 0 ? pass_first(pass) + (pass == 0) : pass_first(pass + 1);

	for (unsigned v = pass_first(pass); v < end && !atomic_load(&sh->stop); v++) {
		char why[120];
		FILE *to;
		int r;

		atomic_store(&sh->worker[me].point, point);
		atomic_store(&sh->worker[me].variant, v);
		atomic_store(&sh->worker[me].since_ns, monotonic_ns());
		snprintf(why, sizeof(why), "%s/why.%d", run->scratch, me);
		to = fopen(why, "we");
		if (!to)
			return false;
		log_to_file(why);
		r = check_one(run, s, v, dir, to);
		fclose(to);
		if (r == 0)
			return false;
		atomic_fetch_add(r == 1 ? &sh->nr_checked : &sh->nr_same, 1);
		if (atomic_load(&sh->nr_checked) >= run->o.nr_states)
			atomic_store(&sh->stop, true);
	}
	return true;
}

static int work(struct run *run, int me)
{
	_cleanup_(states_freep) struct states *s = NULL;
	struct shared *sh = run->shared;
	char dir[100];
	int r;

	snprintf(dir, sizeof(dir), "%s/w%d", run->scratch, me);
	r = states_new(&run->log, "index", &s);
	while (r == 0 && !atomic_load(&sh->stop)) {
		uint64_t next = atomic_fetch_add(&sh->next_point, 1), points = run->log.nr + 1;

		r = states_seek(s, next % points);
		if (r == 0 && !work_point(run, s, me, next / points, next % points, dir))
			return 1;
	}
	return r == 0 ? 0 : 1;
}

static int record(struct run *run)
{
	char dir[100];
	pid_t pid;
	int status;

	snprintf(dir, sizeof(dir), "%s/record", run->scratch);
	if (empty_dir(dir) < 0)
		return -EIO;
	pid = fork();
	if (pid == 0) {
		int r = session_record(&run->session, dir, run->log_path);

		if (r < 0)
			fprintf(stderr, "recording failed: %s\n", strerror(-r));
		_exit(r < 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static void report_failure(struct run *run, int me, const char *how)
{
	char kept[256], command[600];
	size_t point = run->shared->worker[me].point;
	unsigned variant = (unsigned)run->shared->worker[me].variant;

	snprintf(kept, sizeof(kept), "%s/crash-%" PRIu64 ".log", run->o.keep, run->o.seed);
	if (!run->o.log) {
		snprintf(command, sizeof(command), "cp %s %s", run->log_path, kept);
		if (system(command) != 0)
			printf("the log could not be kept\n");
	}
	printf("FAILED (%s): state %zu.%u\n", how, point, variant);
	fflush(stdout);
	snprintf(command, sizeof(command), "cat %s/why.%d", run->scratch, me);
	if (system(command) != 0)
		printf("no reason given\n");
	printf("again: crash --seed %" PRIu64 " --ops %zu --log %s --state %zu.%u\n", run->o.seed, run->o.nr_ops,
	       run->o.log ? run->o.log : kept, point, variant);
	fflush(stdout);
}

/* Wait for the workers; the first failure ends the run. */
static bool watch(struct run *run, pid_t *pids)
{
	struct shared *sh = run->shared;
	int left = run->o.jobs;
	bool good = true;

	while (left > 0) {
		nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
		for (int i = 0; i < run->o.jobs; i++) {
			uint64_t since = sh->worker[i].since_ns;
			int status;

			if (pids[i] == 0)
				continue;
			if (waitpid(pids[i], &status, WNOHANG) == pids[i]) {
				pids[i] = 0;
				left--;
				if (good && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
					good = false;
					report_failure(run, i, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "wrong");
				}
				atomic_store(&sh->stop, sh->stop || !good);
			} else if (good && since && monotonic_ns() - since > HANG_S * UINT64_C(1000000000)) {
				good = false;
				report_failure(run, i, "hangs");
				atomic_store(&sh->stop, true);
				kill(pids[i], SIGKILL);
			}
		}
	}
	return good;
}

static bool run_all(struct run *run)
{
	uint64_t start = monotonic_ns();
	pid_t pids[MAX_JOBS];
	double took;
	bool good;

	fflush(stdout);
	for (int i = 0; i < run->o.jobs; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(work(run, i));
	}
	good = watch(run, pids);
	took = (double)(monotonic_ns() - start) / 1e9;
	printf("seed %" PRIu64 ": %zu operations recorded, %" PRIu64 " states checked (%" PRIu64 " of them written to and opened "
	       "again), %" PRIu64 " more were the same, %.1f s, %.0f states/s\n", run->o.seed, run->log.nr,
	       run->shared->nr_checked, run->shared->nr_further, run->shared->nr_same, took,
	       (double)run->shared->nr_checked / took);
	return good;
}

static bool run_one(struct run *run)
{
	_cleanup_(states_freep) struct states *s = NULL;
	char dir[100];
	int r;

	snprintf(dir, sizeof(dir), "%s/w0", run->scratch);
	log_set_level(LOG_LEVEL_DEBUG);
	r = states_new(&run->log, "index", &s);
	if (r == 0)
		r = states_seek(s, run->o.point);
	if (r == 0)
		r = check_one(run, s, run->o.variant, dir, stdout);
	printf("state %zu.%u: %s\n", run->o.point, run->o.variant, r == 1 ? "right" : "WRONG");
	return r == 1;
}

static void usage(void)
{
	printf("Usage: crash [--seed N] [--states N | --long] [--ops N] [--jobs N] [--keep DIR] [--log FILE [--state P.V]]\n"
	       "  --states N   distinct crash states to check (20000; --long: 1000000)\n"
	       "  --ops N      operations per thread of the run that is recorded (160)\n"
	       "  --keep DIR   where the log of a failed run is left ($CKPTFS_BUILD, else here)\n"
	       "  --log FILE   take this log instead of recording; --state checks one state of it, with the engine's log\n");
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option long_options[] = {
		{ "seed", required_argument, NULL, 's' }, { "states", required_argument, NULL, 'n' },
		{ "long", no_argument, NULL, 'L' },	  { "ops", required_argument, NULL, 'o' },
		{ "jobs", required_argument, NULL, 'j' }, { "keep", required_argument, NULL, 'k' },
		{ "log", required_argument, NULL, 'l' },  { "state", required_argument, NULL, 'S' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) >= 0)
		switch (c) {
		case 's': o->seed = strtoull(optarg, NULL, 0); break;
		case 'n': o->nr_states = strtoull(optarg, NULL, 0); break;
		case 'L': o->nr_states = 1000000; break;
		case 'o': o->nr_ops = strtoull(optarg, NULL, 0); break;
		case 'j': o->jobs = atoi(optarg); break;
		case 'k': o->keep = optarg; break;
		case 'l': o->log = optarg; break;
		case 'S': o->one = sscanf(optarg, "%zu.%u", &o->point, &o->variant) == 2; break;
		default: return -EINVAL;
		}
	if (optind < argc || o->jobs < 1 || o->jobs > MAX_JOBS || o->nr_ops < 1)
		return -EINVAL;
	return 0;
}

int main(int argc, char **argv)
{
	struct run run = { .o = { .seed = (uint64_t)time(NULL), .nr_states = 20000, .nr_ops = 160,
				  .jobs = MIN((int)sysconf(_SC_NPROCESSORS_ONLN), MAX_JOBS), .keep = getenv("CKPTFS_BUILD") } };
	bool good = false;
	int r;

	if (parse(argc, argv, &run.o) < 0) {
		usage();
		return 2;
	}
	run.o.keep = run.o.keep ? run.o.keep : ".";
	snprintf(run.scratch, sizeof(run.scratch), "/dev/shm/ckptfs-crash.XXXXXX");
	run.shared = mmap(NULL, sizeof(*run.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (run.shared == MAP_FAILED || !mkdtemp(run.scratch)) {
		perror("crash");
		return 1;
	}
	snprintf(run.log_path, sizeof(run.log_path), "%s/log", run.scratch);
	printf("seed %" PRIu64 "\n", run.o.seed);
	r = session_init(&run.session, run.o.seed, run.o.nr_ops);
	if (r == 0 && !run.o.log)
		r = record(&run);
	if (r == 0)
		r = oplog_load(run.o.log ? run.o.log : run.log_path, &run.log);
	if (r < 0)
		printf("FAILED: no log: %s\n", strerror(-r));
	else
		good = run.o.one ? run_one(&run) : run_all(&run);
	session_release(&run.session);
	oplog_release(&run.log);
	return remove_tree(run.scratch) == 0 && good ? 0 : 1;
}
