/*
 * Writing a page that needs nothing but itself: escaped text, and charts as inline SVG that take their colours from the
 * page's style sheet (classes s0, s1, ... for series). Every chart says in its title what it shows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

/* Text or an attribute's value. What is no UTF-8, or a control character, becomes U+FFFD. */
void html_text(FILE *to, const char *s);
/* An untrusted name: escaped, and isolated so that it cannot change the direction of the text around it. */
void html_name(FILE *to, const char *s);

struct chart_series {
	const char *name;
	const double *y; /* nr of the chart; negative: not known, the line has a gap */
};

struct chart {
	const char *title; /* its description, for screen readers */
	const time_t *x; /* ascending */
	size_t nr;
	const struct chart_series *series;
	size_t nr_series;
	bool bytes; /* else ratios */
};

/* Lines over time; one value is a dot. */
void chart_lines(FILE *to, const struct chart *c);
/* Bars over time, each as wide as `step_s`, the series stacked. */
void chart_bars(FILE *to, const struct chart *c, uint64_t step_s);

struct chart_part {
	const char *name;
	uint64_t value;
};

/* One bar, divided. All zero: nothing is drawn. */
void chart_share(FILE *to, const char *title, const struct chart_part *parts, size_t nr);
/* A bar of part/whole for a table's cell; the figure stands beside it as text. */
void chart_cell(FILE *to, uint64_t part, uint64_t whole);

/* "name" with its colour, one after the other. */
void chart_legend(FILE *to, const struct chart_series *series, size_t nr);
