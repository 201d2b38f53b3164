/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/damage/rig.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/util.h"
#include "tests/crash/record.h"
#include "tests/crash/scratch.h"
#include "tests/crash/tree.h"

struct engine_conf rig_conf(void)
{
	struct engine_conf conf = tree_conf();

	conf.snapshot_bytes = conf.view_flush_bytes = conf.ingest_entries = 0;
	return conf;
}

const char *rig_final(const struct rig *rig)
{
	return rig->work->lists[rig->work->nr];
}

static int make(const struct rig *rig, bool killed, uint64_t *acked)
{
	static const char *const tops[] = { RIG_TOP };
	struct engine_conf conf = tree_conf();
	struct engine *e;
	char path[200];
	int r;

	snprintf(path, sizeof(path), "%s/store", rig->base);
	r = engine_open(path, &conf, &e);
	if (r == 0)
		r = tree_format(e, tops, 1);
	for (size_t i = 0; r == 0 && i < rig->work->nr; i++) {
		r = work_apply(e, RIG_TOP, &rig->work->ops[i]);
		if (r == 0 && rig->work->ops[i].kind == WORK_SYNC)
			*acked = i + 1;
	}
	if (killed)
		kill(getpid(), r == 0 ? SIGKILL : SIGABRT);
	if (r == 0)
		r = engine_close(e);
	*acked = rig->work->nr;
	return r;
}

static int make_apart(struct rig *rig, bool killed)
{
	uint64_t *acked = mmap(NULL, sizeof(*acked), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid;

	if (acked == MAP_FAILED)
		return -errno;
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(make(rig, killed, acked) < 0);
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -errno;
	rig->acked = *acked;
	munmap(acked, sizeof(*acked));
	if (killed)
		return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : -EIO;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

int rig_init(struct rig *rig, const char *scratch, const char *name, uint64_t seed, size_t nr_ops, bool killed)
{
	int r;

	snprintf(rig->base, sizeof(rig->base), "%s/%s", scratch, name);
	r = workload_new(seed, nr_ops, &rig->work);
	if (r == 0)
		r = scratch_empty(rig->base);
	if (r == 0)
		r = make_apart(rig, killed);
	if (r == 0)
		r = record_start(rig->base);
	if (r < 0)
		return r;
	r = record_stop(&rig->log);
	if (r == 0)
		r = states_new(&rig->log, "index", &rig->states);
	if (r == 0)
		r = states_seek(rig->states, rig->log.nr);
	return r < 0 ? r : states_make(rig->states, 0, 0, &rig->state);
}

void rig_release(struct rig *rig)
{
	state_free(rig->state);
	states_free(rig->states);
	oplog_release(&rig->log);
	workload_free(rig->work);
	*rig = (struct rig){ 0 };
}

int rig_stamp(const struct rig *rig, const char *dir)
{
	int r = scratch_empty(dir);

	return r < 0 ? r : state_store(rig->state, dir);
}
