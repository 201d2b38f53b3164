/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/common/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "base/util.h"

#define SHOW_NS UINT64_C(200000000)
#define WAIT_NS UINT64_C(500000000) /* shorter work shows no bar */
#define BAR_WIDTH 24u

void progress_init(struct progress *p)
{
	*p = (struct progress){ .on = isatty(STDERR_FILENO) };
}

void progress_clear(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = false;
}

static void put_amount(double n, bool bytes)
{
	static const char *const units[] = { "", "K", "M", "G", "T", "P" };
	double step = bytes ? 1024 : 1000;
	unsigned u = 0;

	while (n >= step && u + 1 < ARRAY_SIZE(units)) {
		n /= step;
		u++;
	}
	fprintf(stderr, "%.*f %s%s", u > 0 && n < 100 ? 1 : 0, n, units[u], bytes ? (u > 0 ? "iB" : "B") : "");
}

static void put_bar(uint64_t done, uint64_t all)
{
	unsigned full = (unsigned)((double)done / (double)all * BAR_WIDTH);

	fputc('[', stderr);
	for (unsigned i = 0; i < BAR_WIDTH; i++)
		fputc(i < full ? '#' : '.', stderr);
	fprintf(stderr, "] %3.0f %% ", 100.0 * (double)done / (double)all);
}

void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t all, bool bytes)
{
	uint64_t now;
	double seconds, rate;

	if (!p->on)
		return;
	now = monotonic_ns();
	if (strncmp(p->what, what, sizeof(p->what) - 1) != 0) {
		snprintf(p->what, sizeof(p->what), "%s", what);
		p->start_ns = p->last_ns = now;
		p->start_done = done;
	}
	if (now - p->last_ns < SHOW_NS || now - p->start_ns < WAIT_NS || done < p->start_done)
		return;
	p->last_ns = now;
	seconds = (double)(now - p->start_ns) / 1e9;
	rate = (double)(done - p->start_done) / seconds;
	fputs("\r\033[K", stderr);
	text_printf(stderr, "%s ", p->what);
	done = all > 0 ? MIN(done, all) : done;
	if (all > 0)
		put_bar(done, all);
	put_amount((double)done, bytes);
	fputs(", ", stderr);
	put_amount(rate, bytes);
	fputs("/s", stderr);
	if (all > 0 && rate > 0) {
		uint64_t left = (uint64_t)((double)(all - done) / rate);

		fprintf(stderr, ", %" PRIu64 ":%02" PRIu64 " left", left / 60, left % 60);
	}
	fflush(stderr);
	p->shown = true;
}
