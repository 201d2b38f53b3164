/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tests/unit/store/tier/s3_fake.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/tier/tier.h"
#include "store/tier/s3/tier_s3.h"

struct s3_fake {
	pid_t pid;
	FILE *to, *from;
	unsigned port;
};

const struct tier_s3_conf s3_fake_conf = { .nr_tries = 3, .backoff_ns = 1000000, .page = 3 };

bool s3_fake_is_possible(void)
{
	struct tier *t = NULL;
	int r;

	setenv("AWS_ACCESS_KEY_ID", S3_FAKE_ACCESS, 1);
	setenv("AWS_SECRET_ACCESS_KEY", S3_FAKE_SECRET, 1);
	r = tier_s3_open("bucket", &s3_fake_conf, &t);
	tier_close(t);
	return r != -EOPNOTSUPP;
}

/* The arguments become words of the command. */
static _Noreturn void run(const char *script, const char *arguments, int in, int out)
{
	char *words[16] = { strdup("python3"), strdup(script) }, *rest = strdup(arguments ? arguments : ""), *word;
	size_t nr = 2;

	while (nr < ARRAY_SIZE(words) - 1 && (word = strsep(&rest, " ")))
		if (*word)
			words[nr++] = word;
	dup2(in, 0);
	dup2(out, 1);
	execvp(words[0], words);
	perror(words[0]);
	_exit(127);
}

static unsigned read_number(struct s3_fake *f)
{
	char line[100];
	unsigned n = 0;

	assert_non_null(fgets(line, sizeof(line), f->from));
	assert_int_equal(sscanf(line, "%u", &n), 1);
	return n;
}

struct s3_fake *s3_fake_start(const char *script, const char *arguments)
{
	struct s3_fake *f = calloc(1, sizeof(*f));
	int in[2], out[2];
	char endpoint[60];

	assert_non_null(f);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	f->pid = fork();
	assert_true(f->pid >= 0);
	if (f->pid == 0)
		run(script, arguments, in[0], out[1]);
	close(in[0]);
	close(out[1]);
	f->to = fdopen(in[1], "w");
	f->from = fdopen(out[0], "r");
	assert_true(f->to && f->from);
	f->port = read_number(f);
	snprintf(endpoint, sizeof(endpoint), "%s://127.0.0.1:%u",
		 arguments && strstr(arguments, "--tls") ? "https" : "http", f->port);
	setenv("AWS_ENDPOINT_URL", endpoint, 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null/none", 1);
	setenv("AWS_CONFIG_FILE", "/dev/null/none", 1);
	unsetenv("AWS_SESSION_TOKEN");
	unsetenv("AWS_PROFILE");
	unsetenv("http_proxy");
	unsetenv("https_proxy");
	if (arguments && strstr(arguments, "--upstream"))
		return f;
	setenv("AWS_ACCESS_KEY_ID", S3_FAKE_ACCESS, 1);
	setenv("AWS_SECRET_ACCESS_KEY", S3_FAKE_SECRET, 1);
	s3_fake_tell(f, "credentials %s %s", S3_FAKE_ACCESS, S3_FAKE_SECRET);
	return f;
}

void s3_fake_stop(struct s3_fake *f)
{
	int status;

	if (!f)
		return;
	fclose(f->to);
	fclose(f->from);
	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	free(f);
}

static void _printf_(2, 0) send_command(struct s3_fake *f, const char *fmt, va_list ap)
{
	vfprintf(f->to, fmt, ap);
	fputc('\n', f->to);
	assert_int_equal(fflush(f->to), 0);
}

void s3_fake_tell(struct s3_fake *f, const char *fmt, ...)
{
	char line[100];
	va_list ap;

	va_start(ap, fmt);
	send_command(f, fmt, ap);
	va_end(ap);
	assert_non_null(fgets(line, sizeof(line), f->from));
	assert_string_equal(line, "ok\n");
}

unsigned s3_fake_ask(struct s3_fake *f, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	send_command(f, fmt, ap);
	va_end(ap);
	return read_number(f);
}

unsigned s3_fake_port(const struct s3_fake *f)
{
	return f->port;
}

struct tier *s3_fake_open(const char *place)
{
	struct tier *t = NULL;

	assert_int_equal(tier_s3_open(place, &s3_fake_conf, &t), 0);
	return t;
}
