/* SPDX-License-Identifier: GPL-3.0-or-later */
#include "tools/stat/html.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/conf.h"
#include "base/text.h"
#include "base/util.h"

/* Chart size in SVG units; charts are scaled to the page. */
#define WIDTH 760.0
#define HEIGHT 240.0
#define LEFT 70.0
#define RIGHT 14.0
#define TOP 12.0
#define BOTTOM 30.0
#define Y_TICKS 4.0
#define X_TICKS 5u
#define DAY_S 86400u

void html_text(FILE *to, const char *s)
{
	static const struct {
		char c;
		const char *as;
	} escapes[] = { { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '"', "&quot;" }, { '\'', "&#39;" } };

	while (*s) {
		size_t len = utf8_len(s);
		const char *as = text_is_control(s, len) ? "\xef\xbf\xbd" : NULL;

		for (size_t i = 0; i < ARRAY_SIZE(escapes) && !as; i++)
			as = *s == escapes[i].c ? escapes[i].as : NULL;
		if (as)
			fputs(as, to);
		else
			fwrite(s, 1, len, to);
		s += len > 0 ? len : 1;
	}
}

void html_name(FILE *to, const char *s)
{
	fputs("<bdi>", to);
	html_text(to, s);
	fputs("</bdi>", to);
}

/* Local time, in a format that suits a span of `span_s` seconds. */
static void html_time(FILE *to, time_t t, uint64_t span_s)
{
	char text[64] = "";
	struct tm tm;

	if (!localtime_r(&t, &tm))
		return;
	if (span_s < 600)
		strftime(text, sizeof(text), "%H:%M:%S", &tm);
	else if (span_s < 2 * DAY_S)
		strftime(text, sizeof(text), "%H:%M", &tm);
	else
		strftime(text, sizeof(text), "%Y-%m-%d", &tm);
	fputs(text, to);
}

/* --- scales --- */

struct scale {
	double max, step; /* of y; max is a multiple of step */
	double from, span; /* of x, seconds */
};

/* 1, 2 or 5 times a power of ten, for bytes in a binary unit: a few steps reach `max`. */
static double nice_step(double max, bool bytes)
{
	static const double nice[] = { 1, 2, 5, 10 };
	double unit = 1, want, ten;

	while (bytes && max / unit >= 1000)
		unit *= 1024;
	want = max / unit / Y_TICKS;
	ten = pow(10, floor(log10(want)));
	for (size_t i = 0; i < ARRAY_SIZE(nice); i++)
		if (nice[i] * ten >= want * 0.999)
			return nice[i] * ten * unit;
	return 10 * ten * unit;
}

static struct scale scale_of(const struct chart *c, double max, double extra_s)
{
	struct scale s = { .from = c->nr ? (double)c->x[0] : 0 };

	max = max > 0 ? max : 1;
	s.span = c->nr ? (double)c->x[c->nr - 1] - s.from + extra_s : extra_s;
	s.span = s.span > 0 ? s.span : 1;
	s.step = nice_step(max, c->bytes);
	s.max = s.step * ceil(max / s.step * 0.999);
	return s;
}

static double px(const struct scale *s, double t)
{
	return LEFT + (t - s->from) / s->span * (WIDTH - LEFT - RIGHT);
}

static double py(const struct scale *s, double v)
{
	return HEIGHT - BOTTOM - v / s->max * (HEIGHT - TOP - BOTTOM);
}

static void put_value(FILE *to, double v, bool bytes)
{
	if (bytes)
		fputs(human_size((uint64_t)v).s, to);
	else
		fprintf(to, "%.4g", v);
}

static void open_chart(FILE *to, const char *title, double height)
{
	fprintf(to, "<svg class=\"chart\" viewBox=\"0 0 %g %g\" role=\"img\"><title>", WIDTH, height);
	html_text(to, title);
	fputs("</title>\n", to);
}

static void put_axes(FILE *to, const struct chart *c, const struct scale *s)
{
	for (double v = 0; v <= s->max * 1.0001; v += s->step) {
		fprintf(to, "<path class=\"%s\" d=\"M%g %.1fH%g\"/><text class=\"y\" x=\"%g\" y=\"%.1f\">",
			v > 0 ? "grid" : "axis", LEFT, py(s, v), WIDTH - RIGHT, LEFT - 8, py(s, v) + 4);
		put_value(to, v, c->bytes);
		fputs("</text>\n", to);
	}
	for (unsigned i = 0; i < X_TICKS; i++) {
		double t = s->from + s->span * i / (X_TICKS - 1);

		fprintf(to, "<text class=\"%s\" x=\"%.1f\" y=\"%g\">",
			i == 0		 ? "first" :
			i == X_TICKS - 1 ? "last" :
					   "x",
			px(s, t), HEIGHT - 9);
		html_time(to, (time_t)t, (uint64_t)s->span);
		fputs("</text>\n", to);
	}
}

/* --- charts --- */

static void put_line(FILE *to, const struct chart *c, const struct scale *s, size_t k)
{
	const double *y = c->series[k].y;
	bool drawing = false;

	fprintf(to, "<path class=\"line s%zu\" d=\"", k);
	for (size_t i = 0; i < c->nr; i++) {
		if (y[i] >= 0)
			fprintf(to, "%c%.1f %.1f", drawing ? 'L' : 'M', px(s, (double)c->x[i]), py(s, y[i]));
		drawing = y[i] >= 0;
	}
	fputs("\"/>\n", to);
	for (size_t i = 0; i < c->nr && c->nr <= 60; i++)
		if (y[i] >= 0)
			fprintf(to, "<circle class=\"dot s%zu\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", k,
				px(s, (double)c->x[i]), py(s, y[i]));
}

void chart_lines(FILE *to, const struct chart *c)
{
	struct scale s;
	double max = 0;

	for (size_t k = 0; k < c->nr_series; k++)
		for (size_t i = 0; i < c->nr; i++)
			max = fmax(max, c->series[k].y[i]);
	s = scale_of(c, max, 0);
	open_chart(to, c->title, HEIGHT);
	put_axes(to, c, &s);
	for (size_t k = 0; k < c->nr_series; k++)
		put_line(to, c, &s, k);
	fputs("</svg>\n", to);
}

static void put_bar(FILE *to, const struct chart *c, const struct scale *s, size_t i, uint64_t step_s)
{
	double x0 = px(s, (double)c->x[i]), x1 = px(s, (double)c->x[i] + (double)step_s), below = 0;
	double gap = fmin(2, (x1 - x0) / 4);

	for (size_t k = 0; k < c->nr_series; k++) {
		double v = c->series[k].y[i];

		if (v <= 0)
			continue;
		fprintf(to, "<rect class=\"s%zu\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"><title>", k,
			x0 + gap, py(s, below + v), fmax(x1 - x0 - 2 * gap, 0.5),
			fmax(py(s, below) - py(s, below + v), 0.5));
		html_time(to, c->x[i], (uint64_t)s->span);
		fputs(", ", to);
		html_text(to, c->series[k].name);
		fputs(": ", to);
		put_value(to, v, c->bytes);
		fputs("</title></rect>\n", to);
		below += v;
	}
}

void chart_bars(FILE *to, const struct chart *c, uint64_t step_s)
{
	struct scale s;
	double max = 0;

	for (size_t i = 0; i < c->nr; i++) {
		double sum = 0;

		for (size_t k = 0; k < c->nr_series; k++)
			sum += c->series[k].y[i];
		max = fmax(max, sum);
	}
	s = scale_of(c, max, (double)step_s);
	open_chart(to, c->title, HEIGHT);
	put_axes(to, c, &s);
	for (size_t i = 0; i < c->nr; i++)
		put_bar(to, c, &s, i, step_s);
	fputs("</svg>\n", to);
}

void chart_share(FILE *to, const char *title, const struct chart_part *parts, size_t nr)
{
	double whole = 0, x = 0;

	for (size_t i = 0; i < nr; i++)
		whole += (double)parts[i].value;
	if (whole <= 0)
		return;
	open_chart(to, title, 34);
	for (size_t i = 0; i < nr; i++) {
		double w = (double)parts[i].value / whole * WIDTH;

		if (parts[i].value == 0)
			continue;
		fprintf(to, "<rect class=\"s%zu\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"34\"><title>", i, x,
			fmax(w - 1, 0.5));
		html_text(to, parts[i].name);
		fprintf(to, ": %s</title></rect>\n", human_size(parts[i].value).s);
		x += w;
	}
	fputs("</svg>\n", to);
}

void chart_cell(FILE *to, uint64_t part, uint64_t whole)
{
	double share = whole ? fmin(1, (double)part / (double)whole) : 0;

	fprintf(to,
		"<svg class=\"cell\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
		"<rect class=\"s0\" width=\"%.2f\" height=\"10\"/></svg>",
		part > 0 ? fmax(share * 100, 0.5) : 0);
}

void chart_legend(FILE *to, const struct chart_series *series, size_t nr)
{
	fputs("<p class=\"legend\">", to);
	for (size_t k = 0; k < nr; k++) {
		fprintf(to,
			"<span><svg viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"s%zu\" width=\"10\" "
			"height=\"10\" rx=\"2\"/></svg>",
			k);
		html_text(to, series[k].name);
		fputs("</span>\n", to);
	}
	fputs("</p>\n", to);
}
