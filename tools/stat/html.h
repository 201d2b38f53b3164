/* SPDX-License-Identifier: GPL-3.0-or-later */
/*
 * Writing a self-contained page: escaped text, and charts as inline SVG with colours from the page's style sheet
 * (classes s0, s1, ... for series). Every chart has a title that describes it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* Text or an attribute's value. Invalid UTF-8 and control characters become U+FFFD. */
void html_text(FILE *to, const char *s);
/* An untrusted name: escaped, and isolated so that it cannot change the direction of the text around it. */
void html_name(FILE *to, const char *s);

struct chart_series {
	const char *name;
	const double *y; /* `nr` of the chart; negative: unknown, a gap in the line */
};

struct chart {
	const char *title; /* description for screen readers */
	const time_t *x; /* ascending */
	size_t nr;
	const struct chart_series *series;
	size_t nr_series;
	bool bytes; /* y values are bytes, else ratios */
};

/* Lines over time; a single value is a dot. */
void chart_lines(FILE *to, const struct chart *c);
/* Bars over time, each as wide as `step_s`, the series stacked. */
void chart_bars(FILE *to, const struct chart *c, uint64_t step_s);

struct chart_part {
	const char *name;
	uint64_t value;
};

/* One divided bar. Nothing is drawn if all parts are zero. */
void chart_share(FILE *to, const char *title, const struct chart_part *parts, size_t nr);
/* A bar of part/whole in a table cell, beside a figure. */
void chart_cell(FILE *to, uint64_t part, uint64_t whole);

/* Names of the series with their colours. */
void chart_legend(FILE *to, const struct chart_series *series, size_t nr);
