/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heat diffusion on a plate with checkpoints by libckptfs: a complete example.
 *
 *	cc heat.c $(pkg-config --cflags --libs ckptfs) -o heat
 *	./heat /mnt/ckpt/heat 2000     # kill it, and start it again
 */
#include <ckptfs.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define N 512
#define EVERY 50

static void check(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", what, ckptfs_strerror(r));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	long step = 0, steps = argc > 2 ? atol(argv[2]) : 0;
	double (*plate)[N], (*next)[N], sum = 0;
	int r;

	if (steps <= 0) {
		fprintf(stderr, "usage: heat DIR STEPS\n");
		return 2;
	}
	check(ckptfs_init(argv[1], NULL), argv[1]);
	check(ckptfs_protect("step", &step, sizeof(step)), "step");
	plate = ckptfs_malloc("plate", sizeof(double[N][N]));
	next = calloc(N, sizeof(*next)); /* recomputed in each step: need not be protected */
	if (!plate || !next)
		return 1;
	for (int i = 0; i < N; i++)
		plate[0][i] = 100;
	r = ckptfs_restart(0, 0, NULL);
	if (r != -ENOENT)
		check(r, "restart");
	if (r == 0)
		fprintf(stderr, "restarting at step %ld\n", step);
	for (; step < steps; step++) {
		if (step % EVERY == 0 && step > 0)
			check(ckptfs_checkpoint(), "checkpoint");
		for (int i = 1; i < N - 1; i++)
			for (int k = 1; k < N - 1; k++)
				next[i][k] =
					0.25 * (plate[i - 1][k] + plate[i + 1][k] + plate[i][k - 1] + plate[i][k + 1]);
		for (int i = 1; i < N - 1; i++)
			for (int k = 1; k < N - 1; k++)
				plate[i][k] = next[i][k];
	}
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++)
			sum += plate[i][k];
	check(ckptfs_finish(), "finish");
	printf("heat %.12g\n", sum);
	return 0;
}
