/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * model --dir DIR [--seed N] [--ops N] [--workers N] [--phases LETTERS]
 *
 * Workers (processes) do random operations in trees of their own and in one that they share, --ops in all for each
 * phase. What comes after a phase is its letter:
 *   n  nothing: compare and go on
 *   r  a remount: prints "remount", waits for a line on stdin, compares everything, attributes to the nanosecond
 *   k  a crash: prints "kill" when the workers start, which go on until the mount is dead; then prints "dead", waits
 *      for a line, and looks for what it finds in the history of the model
 *   K  the same without any fsync, so that what survives is what the daemon commits by itself
 * Exit code 0: no difference. With one worker the same seed gives the same operations again.
 */
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_WORKERS 16

struct options {
	const char *dir, *phases;
	uint64_t seed, ops;
	unsigned workers;
};

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static int open_root(const struct options *o)
{
	int fd = open(o->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		die(o->dir);
	return fd;
}

static struct tree *make_tree(int rootfd, const char *name)
{
	struct tree *t = tree_new(name);
	struct stat st;
	int n;

	if (mkdirat(rootfd, name, 0755) < 0 || fchmodat(rootfd, name, 0755, 0) < 0 || fstatat(rootfd, name, &st, 0) < 0)
		die(name);
	n = node_new(t, NODE_DIR, 0755);
	t->node[n].nlink = 2;
	t->node[n].ino = st.st_ino;
	return t;
}

/* One worker's part of a phase; never returns. */
static void work(const struct options *o, unsigned phase, unsigned i, struct tree *own, struct tree *common,
		 bool kill_phase)
{
	struct worker w = {
		.may_die = kill_phase,
		.no_sync = o->phases[phase] == 'K',
		.rng = mix(mix(o->seed, phase + 1), i + 1) | 1,
	};
	int rootfd = open_root(o), fds[2], r = OP_OK;
	uint64_t n;

	fds[0] = openat(rootfd, own->name, O_RDONLY | O_DIRECTORY);
	fds[1] = openat(rootfd, common->name, O_RDONLY | O_DIRECTORY);
	w.buf = mmap(NULL, 2 * FILE_MAX_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w.buf2 = w.buf + FILE_MAX_SIZE;
	if (w.buf == MAP_FAILED)
		die("mmap");
	if (fds[0] < 0 || fds[1] < 0)
		_exit(kill_phase ? EXIT_SUCCESS : EXIT_FAILURE);
	umask(0);
	for (n = 0; r == OP_OK && (kill_phase || n < o->ops / o->workers); n++) {
		bool shared = n % 4 == 3;

		w.tree = shared ? common : own;
		w.dirfd = fds[shared];
		pthread_mutex_lock(&w.tree->lock);
		r = common->pending && shared ? OP_DEAD : op_random(&w);
		pthread_mutex_unlock(&w.tree->lock);
	}
	_exit(EXIT_SUCCESS);
}

static bool run_workers(const struct options *o, unsigned phase, struct tree **trees, bool kill_phase)
{
	pid_t pid[MAX_WORKERS];
	bool good = true;
	unsigned i;
	int status;

	for (i = 0; i < o->workers; i++) {
		pid[i] = fork();
		if (pid[i] == 0)
			work(o, phase, i, trees[i], trees[o->workers], kill_phase);
		if (pid[i] < 0)
			die("fork");
	}
	for (i = 0; i < o->workers; i++) {
		waitpid(pid[i], &status, 0);
		good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
		if (WIFSIGNALED(status))
			printf("not ok: worker %u died of signal %d\n", i, WTERMSIG(status));
	}
	return good;
}

/* Tell the script that drives us, and wait for its answer. */
static void ask(const char *word)
{
	char line[64];

	puts(word);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin)) {
		fprintf(stderr, "no answer to \"%s\"\n", word);
		exit(EXIT_FAILURE);
	}
}

static bool compare(const struct options *o, struct tree **trees, bool same_attributes)
{
	int rootfd = open_root(o);
	bool good = true;
	unsigned i;

	for (i = 0; i <= o->workers; i++)
		good &= check_exact(trees[i], rootfd, same_attributes);
	close(rootfd);
	return good;
}

static bool run_phase(const struct options *o, unsigned phase, struct tree **trees)
{
	char kind = o->phases[phase];
	bool kill_phase = kind == 'k' || kind == 'K', good;
	unsigned i;
	int rootfd;

	for (i = 0; i <= o->workers; i++) {
		log_reset(trees[i]);
		trees[i]->logging = kill_phase;
	}
	if (kill_phase)
		puts("kill");
	fflush(stdout);
	good = run_workers(o, phase, trees, kill_phase);
	if (!good)
		return false;
	if (kill_phase) {
		ask("dead");
		rootfd = open_root(o);
		good = check_survivors(trees, o->workers + 1, rootfd);
		close(rootfd);
		return good;
	}
	good = compare(o, trees, false);
	if (good && kind == 'r') {
		ask("remount");
		good = compare(o, trees, true);
	}
	return good;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "dir", required_argument, NULL, 'd' },     { "seed", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'n' },     { "workers", required_argument, NULL, 'w' },
		{ "phases", required_argument, NULL, 'p' },  { 0 },
	};
	struct options o = { .phases = "n", .ops = 10000, .workers = 1, .seed = now_ns() ^ getpid() };
	struct tree *trees[MAX_WORKERS + 1];
	uint64_t total = 0;
	char name[32];
	unsigned i;
	int c, rootfd;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
		switch (c) {
		case 'd': o.dir = optarg; break;
		case 's': o.seed = strtoull(optarg, NULL, 0); break;
		case 'n': o.ops = strtoull(optarg, NULL, 0); break;
		case 'w': o.workers = strtoul(optarg, NULL, 0); break;
		case 'p': o.phases = optarg; break;
		default: return 2;
		}
	}
	if (!o.dir || o.workers < 1 || o.workers > MAX_WORKERS) {
		fprintf(stderr, "usage: model --dir DIR [--seed N] [--ops N] [--workers N] [--phases nrkK...]\n");
		return 2;
	}
	printf("# seed %llu, %u workers, phases %s of %llu operations\n", (unsigned long long)o.seed, o.workers,
	       o.phases, (unsigned long long)o.ops);
	rootfd = open_root(&o);
	for (i = 0; i <= o.workers; i++) {
		snprintf(name, sizeof(name), i < o.workers ? "w%u" : "shared", i);
		trees[i] = make_tree(rootfd, name);
	}
	if (strpbrk(o.phases, "kK") && fsync(rootfd) < 0)
		die("fsync");
	close(rootfd);
	for (i = 0; o.phases[i]; i++)
		if (!run_phase(&o, i, trees)) {
			printf("not ok: phase %u (%c); again with --seed %llu --workers %u --ops %llu --phases %s\n", i,
			       o.phases[i], (unsigned long long)o.seed, o.workers, (unsigned long long)o.ops, o.phases);
			return EXIT_FAILURE;
		}
	for (i = 0; i <= o.workers; i++)
		total += trees[i]->nr_ops;
	printf("ok %llu operations\n", (unsigned long long)total);
	return EXIT_SUCCESS;
}
