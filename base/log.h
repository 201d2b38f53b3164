/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logs are for people: object first, values bare, the observed cause and not a guess.
 * The function that detects a failure logs it, once; its callers pass the errno on.
 *
 * Sinks: stderr (default), the caller of a command, a file, syslog, a function. Lines are
 * "2026-01-31T12:00:00.123Z error pack 7: ..." (syslog adds its own time). Safe from any thread.
 */
#pragma once

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_NOTICE, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

int log_to_file(const char *path); /* appends; reopened by log_reopen() after rotation */
void log_to_syslog(const char *ident);
void log_to_stderr(void);
/* "umount.ckptfs: ...", on stderr, as usual for commands. Borrows `name`; call before threads start. */
void log_to_caller(const char *name);
/* Passes every line, without time and level, to a function. Call before threads start; the function is called from any
 * thread. */
typedef void log_fn(void *userdata, enum log_level level, const char *line);
void log_to_function(log_fn *fn, void *userdata);
void log_reopen(void);
void log_set_level(enum log_level max);
bool log_enabled(enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);
/* Log at error level with ": strerror(-r)" appended, and return r (a negative errno). */
int log_errno(int r, const char *fmt, ...) _printf_(2, 3);
/* The same without the text of r, for messages that name the cause themselves. */
int log_cause(int r, const char *fmt, ...) _printf_(2, 3);

/*
 * For messages that users can trigger at will: logs LOG_LIMIT_LINES lines within a minute for one cause, and later the
 * number of lines suppressed. A limit is a static, zeroed variable for one place in the code. At debug level nothing is
 * suppressed.
 */
#define LOG_LIMIT_LINES 10u
struct log_limit {
	_Atomic uint64_t since_ns;
	_Atomic uint64_t nr; /* since then */
};
void log_limited(struct log_limit *l, enum log_level level, const char *fmt, ...) _printf_(3, 4);
/* May a line be logged now? Then *ret is the number suppressed before. `now_ns` is not 0. */
bool log_limit_allows(struct log_limit *l, uint64_t now_ns, uint64_t *ret);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_notice(...) log_line(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                             \
	do {                                                       \
		if (log_enabled(LOG_LEVEL_DEBUG))                  \
			log_line(LOG_LEVEL_DEBUG, __VA_ARGS__);    \
	} while (0)
