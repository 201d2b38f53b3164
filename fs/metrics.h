/*
 * The mount's figures over HTTP, for Prometheus: what ckptfs-stat --prometheus prints, at /metrics. Only where the
 * mount option `metrics` asks for it.
 *
 * One thread of its own answers, with what it reads of counters that are kept anyway: requests of the kernel and
 * writers meet no lock that they would not meet without it. A build without libmicrohttpd has metrics_none.c instead,
 * where listening is an error that says so.
 */
#pragma once

struct fs;
struct metrics;

/* Take the address; nobody is answered yet. Before the store is opened, so that a taken port changes nothing. Logs. */
int metrics_listen(const char *address, struct metrics **ret);
/* Answer, from now on until metrics_stop(); fs is borrowed until then. */
int metrics_start(struct metrics *m, struct fs *fs);
void metrics_stop(struct metrics *m); /* waits for the answer under way, and frees. NULL is fine */
