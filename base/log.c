/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One line is one write(2) to a descriptor in append mode, so lines of several threads (and, in a
 * file, of several processes) do not mix and no lock is held meanwhile. The descriptor of the log
 * file keeps its number for good: reopening puts another file behind it with dup3(), so a thread
 * that is just writing never meets a closed descriptor.
 */
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/mutex.h"
#include "base/text.h"

#define LINE_SIZE 2048 /* longer ones are cut: a log that allocates fails when it is needed most */

enum sink { SINK_STDERR, SINK_CALLER, SINK_FILE, SINK_SYSLOG, SINK_FUNCTION };

static const struct {
	const char *name;
	int syslog;
} levels[] = {
	[LOG_LEVEL_ERROR] = { "error", LOG_ERR },      [LOG_LEVEL_WARNING] = { "warning", LOG_WARNING },
	[LOG_LEVEL_NOTICE] = { "notice", LOG_NOTICE }, [LOG_LEVEL_INFO] = { "info", LOG_INFO },
	[LOG_LEVEL_DEBUG] = { "debug", LOG_DEBUG },
};

static _Atomic(enum sink) sink = SINK_STDERR;
static _Atomic(enum log_level) level_max = LOG_LEVEL_INFO;
static atomic_int file_fd = -1; /* never closed once open */
static log_fn *function;
static void *function_userdata;
static const char *command;

static struct mutex file_lock = MUTEX_INIT; /* leaf */
static char *file_path GUARDED_BY(file_lock);

/* Open `path` behind file_fd. */
static int file_open(const char *path) REQUIRES(file_lock)
{
	_cleanup_(closep) int fd = -1;
	int old = atomic_load(&file_fd);

	assert(mutex_held(&file_lock));
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
	if (fd < 0)
		return -errno;
	if (old < 0) {
		atomic_store(&file_fd, fd);
		fd = -1;
	} else if (dup3(fd, old, O_CLOEXEC) < 0) {
		return -errno;
	}
	return 0;
}

int log_to_file(const char *path)
{
	int r;

	mutex_lock(&file_lock);
	r = file_open(path);
	if (r == 0) {
		char *absolute = realpath(path, NULL); /* a daemon changes its directory before log_reopen() */

		r = absolute ? 0 : -errno;
		if (absolute) {
			free(file_path);
			file_path = absolute;
		}
	}
	mutex_unlock(&file_lock);
	if (r < 0)
		return log_errno(r, "log %s: cannot open", path);
	atomic_store(&sink, SINK_FILE);
	return 0;
}

void log_reopen(void)
{
	int r;

	if (atomic_load(&sink) != SINK_FILE)
		return;
	mutex_lock(&file_lock);
	r = file_open(file_path);
	mutex_unlock(&file_lock);
	if (r < 0)
		log_errno(r, "log: cannot reopen, continuing in the old file");
}

void log_to_syslog(const char *ident)
{
	openlog(ident, LOG_PID, LOG_DAEMON);
	atomic_store(&sink, SINK_SYSLOG);
}

void log_to_stderr(void)
{
	atomic_store(&sink, SINK_STDERR);
}

void log_to_caller(const char *name)
{
	command = name;
	atomic_store(&sink, SINK_CALLER);
}

void log_to_function(log_fn *fn, void *userdata)
{
	function = fn;
	function_userdata = userdata;
	atomic_store(&sink, SINK_FUNCTION);
}

void log_set_level(enum log_level max)
{
	atomic_store_explicit(&level_max, max, memory_order_relaxed);
}

bool log_enabled(enum log_level level)
{
	return level <= atomic_load_explicit(&level_max, memory_order_relaxed);
}

struct line {
	char s[LINE_SIZE];
	size_t len;
};

static _printf_(2, 0) void line_add_list(struct line *l, const char *fmt, va_list ap)
{
	int n = vsnprintf(l->s + l->len, sizeof(l->s) - l->len, fmt, ap);

	if (n > 0)
		l->len = MIN(l->len + (size_t)n, sizeof(l->s) - 1);
}

static _printf_(2, 3) void line_add(struct line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	line_add_list(l, fmt, ap);
	va_end(ap);
}

static void line_add_head(struct line *l, enum log_level level)
{
	struct timespec ts;
	struct tm tm;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	l->len += strftime(l->s + l->len, sizeof(l->s) - l->len, "%Y-%m-%dT%H:%M:%S", &tm);
	line_add(l, ".%03dZ %s ", (int)(ts.tv_nsec / 1000000), levels[level].name);
}

/* File names may contain anything: a line must not look like two, or send control sequences to a terminal. */
static void line_escape(struct line *l)
{
	struct line plain = *l;
	char c[TEXT_CHAR_MAX];

	l->len = 0;
	for (const char *s = plain.s; *s;) {
		size_t n;

		s += text_char(s, c);
		n = strlen(c);
		if (n > sizeof(l->s) - 1 - l->len)
			break;
		memcpy(l->s + l->len, c, n);
		l->len += n;
	}
	l->s[l->len] = '\0';
}

static void line_write(struct line *l, int fd)
{
	ssize_t n _unused_;

	l->len = MIN(l->len, sizeof(l->s) - 1);
	l->s[l->len++] = '\n';
	n = TEMP_FAILURE_RETRY(write(fd, l->s, l->len)); /* a failure cannot be reported */
}

/* `r`: a negative errno to explain, or 0. */
static _printf_(3, 0) void log_list(enum log_level level, int r, const char *fmt, va_list ap)
{
	enum sink to = atomic_load(&sink);
	int saved = errno;
	char why[128];
	struct line l;

	l.len = 0;
	if (to == SINK_STDERR || to == SINK_FILE)
		line_add_head(&l, level);
	else if (to == SINK_CALLER)
		line_add(&l, "%s: %s", command, level == LOG_LEVEL_WARNING ? "warning: " : "");
	line_add_list(&l, fmt, ap);
	if (r < 0)
		line_add(&l, ": %s", strerror_r(-r, why, sizeof(why)));
	line_escape(&l);
	if (to == SINK_SYSLOG)
		syslog(levels[level].syslog, "%.*s", (int)l.len, l.s);
	else if (to == SINK_FUNCTION)
		function(function_userdata, level, l.s);
	else
		line_write(&l, to == SINK_FILE ? atomic_load(&file_fd) : STDERR_FILENO);
	errno = saved;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	log_list(level, 0, fmt, ap);
	va_end(ap);
}

int log_errno(int r, const char *fmt, ...)
{
	va_list ap;

	assert(r < 0);
	va_start(ap, fmt);
	log_list(LOG_LEVEL_ERROR, r, fmt, ap);
	va_end(ap);
	return r;
}

int log_cause(int r, const char *fmt, ...)
{
	va_list ap;

	assert(r < 0);
	va_start(ap, fmt);
	log_list(LOG_LEVEL_ERROR, 0, fmt, ap);
	va_end(ap);
	return r;
}

#define LIMIT_NS (60 * UINT64_C(1000000000))

bool log_limit_allows(struct log_limit *l, uint64_t now_ns, uint64_t *ret)
{
	uint64_t since = atomic_load(&l->since_ns), before = 0;

	if ((since == 0 || now_ns - since >= LIMIT_NS) && atomic_compare_exchange_strong(&l->since_ns, &since, now_ns))
		before = atomic_exchange(&l->nr, 0);
	if (atomic_fetch_add(&l->nr, 1) >= LOG_LIMIT_LINES)
		return false;
	*ret = before > LOG_LIMIT_LINES ? before - LOG_LIMIT_LINES : 0;
	return true;
}

void log_limited(struct log_limit *l, enum log_level level, const char *fmt, ...)
{
	uint64_t left_out = 0;
	va_list ap;

	if (!log_enabled(level) || (!log_limit_allows(l, monotonic_ns(), &left_out) && !log_enabled(LOG_LEVEL_DEBUG)))
		return;
	if (left_out > 0)
		log_line(level, "log: suppressed %" PRIu64 " lines like the next one", left_out);
	va_start(ap, fmt);
	log_list(level, 0, fmt, ap);
	va_end(ap);
}
