/* SPDX-License-Identifier: GPL-3.0-or-later */
/* The first section of a report: what ckptfs-doctor finds about the mount, and when its disk will be full. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/conf.h"
#include "base/json/json_flat.h"
#include "base/util.h"
#include "client/ioctl.h"
#include "tools/doctor/checkup.h"
#include "tools/stat/html.h"
#include "tools/stat/report.h"
#include "tools/stat/report_parts.h"

#define NS_PER_S 1000000000
#define HOUR_S UINT64_C(3600)
#define DAY_S UINT64_C(86400)
#define RATE_DAYS 7u /* the present rate is the mean of these */
#define SOON_DAYS 7u
#define FAR_DAYS 3650u /* says nothing about when */

static void put_finding(void *user, const struct finding *f)
{
	static const char *const words[] = { "ok", "warning", "critical" };
	FILE *to = user;

	fputs("<tr><td>", to);
	parts_badge(to, f->health, words[f->health]);
	fputs("</td><th scope=\"row\">", to);
	html_text(to, f->subject);
	fputs("</th><td><p>", to);
	html_name(to, f->text);
	fputs("</p>", to);
	if (f->action) {
		fputs("<p class=\"soft\">&rarr; ", to);
		html_name(to, f->action);
		fputs("</p>", to);
	}
	fputs("</td></tr>\n", to);
}

/* "3.5 days" */
static struct human_nr time_of(uint64_t s)
{
	struct human_nr h;

	if (s >= 2 * DAY_S)
		snprintf(h.s, sizeof(h.s), "%.*f days", s < 10 * DAY_S, (double)s / (double)DAY_S);
	else if (s < 2 * HOUR_S)
		snprintf(h.s, sizeof(h.s), "%s", human_nr(s / 60, "minute").s);
	else
		snprintf(h.s, sizeof(h.s), "%.*f hours", s < 10 * HOUR_S, (double)s / (double)HOUR_S);
	return h;
}

/* The next section lists them. */
static void check_seals(struct checkup *c, const struct report *r)
{
	size_t nr[3] = { 0 };

	for (size_t i = 0; i < r->seals->nr; i++)
		nr[r->seals->v[i].state]++;
	if (nr[SEAL_DAMAGED] > 0)
		checkup_found(c, HEALTH_CRITICAL, "checkpoints",
			      "ckptfs restart finds the newest one that is not damaged", "%zu of %s: not as sealed",
			      nr[SEAL_DAMAGED], human_nr(r->seals->nr, "sealed checkpoint").s);
	if (nr[SEAL_UNKNOWN] > 0)
		checkup_found(c, HEALTH_WARNING, "checkpoints", "ckptfs verify says why",
			      "%zu of %s: could not be verified", nr[SEAL_UNKNOWN],
			      human_nr(r->seals->nr, "sealed checkpoint").s);
}

/* How long the oldest sealed checkpoint without a replica has waited for it. */
static void check_lag(struct checkup *c, const struct report *r)
{
	int64_t now_s = (int64_t)r->record->reading[r->record->nr - 1].time_s;

	if (strcmp(json_flat_get(r->mount, "cluster.protects"), "true") != 0)
		return;
	for (size_t i = 0; i < r->seals->all.nr; i++) {
		const struct sealed *s = &r->seals->all.v[i];
		int64_t age_s = now_s - s->sealed_ns / NS_PER_S;

		if (s->facts & (CKPTFS_SEAL_PROTECTED | CKPTFS_SEAL_REMOTE))
			continue;
		checkup_found(c, HEALTH_WARNING, "replica lag", "ckptfs wait DIRECTORY waits for the replica",
			      "%s was sealed %s ago and has no replica", s->path[0] ? s->path : "the mountpoint",
			      time_of(age_s > 0 ? (uint64_t)age_s : 0).s);
		return;
	}
	checkup_found(c, HEALTHY, "replica lag", NULL, "none");
}

static void check_growth(struct checkup *c, const struct report *r, const char *freed_by)
{
	double rate, left_s;
	uint64_t span_s;
	char day[64] = "";
	enum health health;
	time_t when;
	struct tm tm;

	if (!record_growth(r->record, RATE_DAYS * DAY_S, HOUR_S, &rate, &span_s)) {
		checkup_found(c, HEALTHY, "disk full", NULL,
			      "not known yet: the readings of this page must be an hour apart");
		return;
	}
	left_s = rate > 0 ? (double)r->available / rate : 0;
	if (rate <= 0) {
		checkup_found(c, HEALTHY, "disk full", NULL, "not at the present rate: the store has not grown in %s",
			      time_of(span_s).s);
		return;
	}
	if (left_s > (double)(FAR_DAYS * DAY_S)) {
		checkup_found(c, HEALTHY, "disk full", NULL, "in more than %u years at the present rate, %s a day",
			      FAR_DAYS / 365, human_size((uint64_t)(rate * (double)DAY_S)).s);
		return;
	}
	when = (time_t)r->record->reading[r->record->nr - 1].time_s + (time_t)left_s;
	if (localtime_r(&when, &tm))
		strftime(day, sizeof(day), left_s < 2.0 * (double)DAY_S ? ", on %Y-%m-%d at %H:%M" : ", on %Y-%m-%d",
			 &tm);
	health = left_s < (double)DAY_S		      ? HEALTH_CRITICAL :
		 left_s < (double)(SOON_DAYS * DAY_S) ? HEALTH_WARNING :
							HEALTHY;
	checkup_found(c, health, "disk full", health == HEALTHY ? NULL : freed_by,
		      "in %s at the present rate%s: %s a day, the mean of the last %s", time_of((uint64_t)left_s).s,
		      day, human_size((uint64_t)(rate * (double)DAY_S)).s, time_of(span_s).s);
}

static void put_verdict(FILE *to, const struct checkup *c)
{
	char text[128];

	if (c->worst == HEALTHY)
		snprintf(text, sizeof(text), "All is well");
	else if (c->nr[HEALTH_WARNING] == 0)
		snprintf(text, sizeof(text), "%zu critical", c->nr[HEALTH_CRITICAL]);
	else if (c->nr[HEALTH_CRITICAL] == 0)
		snprintf(text, sizeof(text), "%s", human_nr(c->nr[HEALTH_WARNING], "warning").s);
	else
		snprintf(text, sizeof(text), "%zu critical, %s", c->nr[HEALTH_CRITICAL],
			 human_nr(c->nr[HEALTH_WARNING], "warning").s);
	parts_badge(to, c->worst, text);
}

void parts_health(FILE *to, const struct report *r)
{
	const char *point = json_flat_get(r->mount, "mountpoint");
	_cleanup_(freep) char *rows = NULL;
	char gc[PATH_MAX + 64];
	size_t len = 0;
	FILE *rows_to = open_memstream(&rows, &len);
	struct checkup c = { .to = put_finding, .user = rows_to };

	if (!rows_to)
		return;
	snprintf(gc, sizeof(gc), "ckptfs gc --delete %s", point);
	checkup_integrity(&c, r->mount, point);
	check_seals(&c, r);
	check_lag(&c, r);
	if (r->size > 0) {
		checkup_space(&c, r->available, r->size, gc);
		check_growth(&c, r, gc);
	}
	checkup_upkeep(&c, r->mount, gc);
	fclose(rows_to);
	parts_open(to, "health", "Health",
		   "Damage, scrubbing, replicas and space, as <code>ckptfs doctor</code> judges them.");
	put_verdict(to, &c);
	fprintf(to, "<div class=\"wide\"><table class=\"findings\"><tbody>\n%s</tbody></table></div>\n</section>\n",
		rows ? rows : "");
}
