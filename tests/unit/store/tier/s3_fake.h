/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * An S3 object store for tests (tests/tier/fake_s3.py) as a child of the test. It ends with it. One at a time: the
 * environment of this process has its endpoint and credentials. With --upstream these stay as they are.
 */
#pragma once

#include <stdbool.h>

#include "base/util.h"

struct tier;
struct tier_s3_conf;
struct s3_fake;

#define S3_FAKE_ACCESS "AKIAFAKEACCESSKEY"
#define S3_FAKE_SECRET "fake+secret/of+forty/characters+Qx7vTz1q"
#define S3_FAKE_TOKEN "fake//session+token=="

bool s3_fake_is_possible(void); /* this build has S3 */
/* `script`: fake_s3.py. `arguments`: for it, separated by spaces; NULL: none. Sets the environment. */
struct s3_fake *s3_fake_start(const char *script, const char *arguments);
void s3_fake_stop(struct s3_fake *f); /* NULL is fine */
/* Sends a command and expects `ok`. */
void s3_fake_tell(struct s3_fake *f, const char *fmt, ...) _printf_(2, 3);
/* Sends a command that is answered with a number. */
unsigned s3_fake_ask(struct s3_fake *f, const char *fmt, ...) _printf_(2, 3);
unsigned s3_fake_port(const struct s3_fake *f);

/* Of the few tries, short pauses and small pages that suit tests. */
extern const struct tier_s3_conf s3_fake_conf;
struct tier *s3_fake_open(const char *place);
