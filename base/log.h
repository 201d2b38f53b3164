/*
 * Logs are for people: object first, values bare, the cause met and not the one guessed.
 * Whoever detects a cause logs it, once; all above pass the errno on.
 *
 * Sinks: stderr (default), whoever has called a command, a file, syslog, a function. Lines are
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
/* "umount.ckptfs: ...", on stderr, as commands speak. `name` is kept; set it before threads start. */
void log_to_caller(const char *name);
/* Every line, without time and level, to whoever shows it. Set it before threads start; called from any of them. */
typedef void log_fn(void *userdata, enum log_level level, const char *line);
void log_to_function(log_fn *fn, void *userdata);
void log_reopen(void);
void log_set_level(enum log_level max);
int log_level_parse(const char *s, enum log_level *ret);
bool log_enabled(enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) _printf_(2, 3);
/* Log at error level with ": strerror(-r)" appended, and return r (a negative errno). */
int log_errno(int r, const char *fmt, ...) _printf_(2, 3);

/*
 * For what users can bring about as often as they like: of one cause so many lines within a minute, and with the first
 * of a later one how many were left out. A limit is static, for one place in the code, and begins with zeros. Who
 * debugs wants all of them, and gets them.
 */
#define LOG_LIMIT_LINES 10u
struct log_limit {
	_Atomic uint64_t since_ns;
	_Atomic uint64_t nr; /* since then */
};
void log_limited(struct log_limit *l, enum log_level level, const char *fmt, ...) _printf_(3, 4);
/* May one be logged now? Then *ret is how many were left out before. `now_ns` is not 0. */
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
