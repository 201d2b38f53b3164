/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/doctor/checkup.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

#define SCHEMA_VERSION 1

static const char *const words[] = { [HEALTHY] = "ok", [HEALTH_WARNING] = "WARNING", [HEALTH_CRITICAL] = "CRITICAL" };

void checkup_begin(struct checkup *c)
{
	if (!c->has_json)
		return;
	c->out = json_to_file(stdout);
	json_open(&c->out, NULL);
	json_u64(&c->out, "schema_version", SCHEMA_VERSION);
	json_open_array(&c->out, "findings");
}

void checkup_about(struct checkup *c, const char *about)
{
	c->about = about;
	c->has_heading = false;
}

static void print_finding(struct checkup *c, enum health health, const char *subject, const char *action, const char *text)
{
	if (c->quiet && health == HEALTHY)
		return;
	if (!c->has_heading)
		text_printf(stdout, "%s:\n", c->about);
	c->has_heading = true;
	text_printf(stdout, "  %-9s %-11s %s\n", words[health], subject, text);
	if (action)
		text_printf(stdout, "  %-9s %-11s -> %s\n", "", "", action);
}

void checkup_found(struct checkup *c, enum health health, const char *subject, const char *action, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	c->worst = MAX(c->worst, health);
	c->nr[health]++;
	if (c->to) {
		c->to(c->user, &(struct finding){ health, subject, text, action });
		return;
	}
	if (!c->has_json) {
		print_finding(c, health, subject, action, text);
		return;
	}
	json_open(&c->out, NULL);
	json_string(&c->out, "about", c->about);
	json_string(&c->out, "subject", subject);
	json_string(&c->out, "health", health == HEALTHY ? "ok" : health == HEALTH_WARNING ? "warning" : "critical");
	json_string(&c->out, "text", text);
	json_string(&c->out, "action", action);
	json_close(&c->out);
}

void checkup_end(struct checkup *c)
{
	if (c->has_json) {
		json_close_array(&c->out);
		json_u64(&c->out, "ok", c->nr[HEALTHY]);
		json_u64(&c->out, "warnings", c->nr[HEALTH_WARNING]);
		json_u64(&c->out, "critical", c->nr[HEALTH_CRITICAL]);
		json_end(&c->out);
	} else if (!c->quiet && c->worst == HEALTHY) {
		puts("All is well.");
	} else if (!c->quiet) {
		printf("%zu warning%s, %zu critical\n", c->nr[HEALTH_WARNING], c->nr[HEALTH_WARNING] == 1 ? "" : "s",
		       c->nr[HEALTH_CRITICAL]);
	}
}
