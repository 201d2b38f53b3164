/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * crash: record runs of the engine, then look at what every crash in them would leave.
 *
 * Rounds: a run with a seed of its own is recorded by a child (it must not be the one that checks: RocksDB's threads
 * do not survive fork), then its log is explored. A run is not deterministic, its log is: a failure names the log,
 * which is kept, and the state in it.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "tests/crash/explore.h"
#include "tests/crash/fate.h"
#include "tests/crash/peer.h"
#include "tests/crash/pool.h"
#include "tests/crash/scratch.h"
#include "tests/crash/tree.h"

/* Of a round: about what the fixed variants at all points of its run come to. */
#define STATES_PER_OP 12.5

struct options {
	uint64_t seed, nr_states;
	size_t nr_ops;
	int jobs;
	const char *log, *keep;
	bool one; /* state */
	size_t point;
	unsigned variant;
};

static int record(const struct session *s, const char *scratch, const char *log_path)
{
	char dir[128];
	pid_t pid;
	int status;

	snprintf(dir, sizeof(dir), "%s/record", scratch);
	if (scratch_empty(dir) < 0)
		return -EIO;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		int r = session_record(s, dir, log_path);

		if (r < 0)
			fprintf(stderr, "recording failed: %s\n", strerror(-r));
		_exit(r < 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

static bool run_round(const struct options *o, uint64_t seed, uint64_t nr_states, const char *scratch, uint64_t *ret_nr)
{
	_cleanup_(session_release) struct session session = { 0 };
	_cleanup_(oplog_release) struct oplog log = OPLOG_EMPTY;
	struct explore_result res = { 0 };
	uint64_t start = monotonic_ns();
	char log_path[128];
	struct explore x = {
		.session = &session,
		.log = &log,
		.log_path = o->log ? o->log : log_path,
		.keep = o->keep,
		.scratch = scratch,
		.seed = seed,
		.nr_states = nr_states,
		.nr_ops = o->nr_ops,
		.jobs = o->jobs,
	};
	bool good;
	int r;

	snprintf(log_path, sizeof(log_path), "%s/log", scratch);
	tree_set_options(seed);
	r = session_init(&session, seed, o->nr_ops);
	if (r == 0 && !o->log)
		r = peer_begin(seed, log_path, true);
	if (r == 0 && !o->log)
		r = record(&session, scratch, log_path);
	if (r == 0)
		r = peer_begin(seed, x.log_path, false);
	if (r == 0)
		r = oplog_load(x.log_path, &log);
	if (r < 0) {
		printf("FAILED: seed %" PRIu64 ": no log: %s\n", seed, strerror(-r));
		return false;
	}
	if (o->one)
		return explore_one(&x, o->point, o->variant);
	good = explore_all(&x, &res);
	printf("seed %" PRIu64 ": %zu steps recorded, %" PRIu64 " states checked (%" PRIu64
	       " of them written to and opened again, "
	       "%" PRIu64 " of a recovery), %" PRIu64 " more were the same, %.0f states/s\n",
	       seed, log.nr, res.nr_checked, res.nr_further, res.nr_nested, res.nr_same,
	       (double)res.nr_checked * 1e9 / (double)(monotonic_ns() - start));
	fflush(stdout);
	*ret_nr = res.nr_checked;
	return good;
}

static bool run_rounds(const struct options *o, const char *scratch)
{
	uint64_t start = monotonic_ns(), done = 0, nr = 0;
	bool good = true;

	for (uint64_t i = 0; good && done < o->nr_states; i++, done += nr) {
		uint64_t want = o->nr_states - done;

		good = run_round(o, o->seed + i,
				 o->log ? want : MIN(want, (uint64_t)(STATES_PER_OP * (double)o->nr_ops)), scratch, &nr);
		if (o->log || o->one)
			return good;
	}
	printf("%" PRIu64 " states, %s, %.0f s\n", done, good ? "all right" : "one WRONG",
	       (double)(monotonic_ns() - start) / 1e9);
	return good;
}

static void usage(void)
{
	printf("Usage: crash [--seed N] [--states N | --long] [--ops N] [--jobs N] [--keep DIR]\n"
	       "             [--log FILE [--state P.V]]\n"
	       "  --states N   distinct crash states to check (10000; --long: 1000000)\n"
	       "  --ops N      operations per thread of each run that is recorded (200; --long: 400)\n"
	       "  --keep DIR   where the log of a failed run is left ($CKPTFS_BUILD, else here)\n"
	       "  --log FILE   take this log instead of recording\n"
	       "  --state P.V  check only this state of it, and show the engine's log\n");
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option long_options[] = {
		{ "seed", required_argument, NULL, 's' },
		{ "states", required_argument, NULL, 'n' },
		{ "long", no_argument, NULL, 'L' },
		{ "ops", required_argument, NULL, 'o' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "keep", required_argument, NULL, 'k' },
		{ "log", required_argument, NULL, 'l' },
		{ "state", required_argument, NULL, 'S' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) >= 0)
		switch (c) {
		case 's':
			o->seed = strtoull(optarg, NULL, 0);
			break;
		case 'n':
			o->nr_states = strtoull(optarg, NULL, 0);
			break;
		case 'L':
			o->nr_states = 1000000;
			o->nr_ops = 400;
			break;
		case 'o':
			o->nr_ops = strtoull(optarg, NULL, 0);
			break;
		case 'j':
			o->jobs = atoi(optarg);
			break;
		case 'k':
			o->keep = optarg;
			break;
		case 'l':
			o->log = optarg;
			break;
		case 'S':
			o->one = sscanf(optarg, "%zu.%u", &o->point, &o->variant) == 2;
			break;
		default:
			return -EINVAL;
		}
	return optind < argc || o->jobs < 1 || o->jobs > POOL_JOBS_MAX || o->nr_ops < 1 ? -EINVAL : 0;
}

int main(int argc, char **argv)
{
	struct options o = { .seed = fate_seed(),
			     .nr_states = 10000,
			     .nr_ops = 200,
			     .jobs = pool_jobs(),
			     .keep = getenv("CKPTFS_BUILD") };
	char scratch[] = "/dev/shm/ckptfs-crash.XXXXXX";
	bool good;

	if (parse(argc, argv, &o) < 0) {
		usage();
		return 2;
	}
	o.keep = o.keep ? o.keep : ".";
	if (!mkdtemp(scratch)) {
		perror(scratch);
		return 1;
	}
	good = run_rounds(&o, scratch);
	scratch_remove(scratch);
	return good ? 0 : 1;
}
