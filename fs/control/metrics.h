/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Metrics over HTTP, for Prometheus: the output of ckptfs-stat --prometheus, at /metrics. Only with the mount option
 * `metrics`.
 *
 * One thread of its own answers, reading counters that are maintained anyway: it adds no lock to requests of the kernel
 * or to writers. A build without libmicrohttpd has metrics_none.c instead, where metrics_listen() fails with a message.
 */
#pragma once

struct fs;
struct metrics;

/* Bind the address; do not answer yet. Done before the store is opened: a port in use changes nothing. Logs. */
int metrics_listen(const char *address, struct metrics **ret);
/* Answer requests until metrics_stop(); `fs` is borrowed until then. */
int metrics_start(struct metrics *m, struct fs *fs);
void metrics_stop(struct metrics *m); /* waits for the reply in progress, and frees. NULL is fine */
